"""What counts as healthy: the work is judged, not only the processes; and every verdict says why."""

from datetime import timedelta
from typing import Any

import pytest

from drumbeat.admin.health_rules import Health, HealthSnapshot, is_missed, judge_health
from drumbeat.core.health import HealthLevel
from drumbeat.core.instance import Instance, InstanceState, LeaderInfo, Role
from drumbeat.core.job_query import QueueStats, TaskStats
from drumbeat.core.schedule import Fire, FireOutcome
from drumbeat.core.stats import Resolution, Rollup, interval_of
from drumbeat.durations import from_us
from drumbeat.ids import new_instance_id

NOW = 1_800_000_000_000_000
SECOND = 1_000_000


def instance(**facts: Any) -> Instance:
    given: dict[str, Any] = {
        "id": new_instance_id(),
        "state": InstanceState.ALIVE,
        "app": "shop",
        "version": "1",
        "host": "rack7",
        "pid": 42,
        "roles": (Role.WORKER, Role.CONTROLLER),
        "queues": ("mail",),
        "tasks": {},
        "concurrency": 4,
        "running": 0,
        "refused": 0,
        "beat": 1,
        "started_at": from_us(NOW - 3_600 * SECOND),
        "beat_at": from_us(NOW - SECOND),
    }
    return Instance(**(given | facts))


def queue(ready: int = 0, *, age: int = 0, paused: bool = False) -> QueueStats:
    oldest = from_us(NOW) - timedelta(seconds=age) if ready else None
    return QueueStats(name="mail", ready=ready, scheduled=0, running=0, waiting=0, oldest_due=oldest, paused=paused)


def rollup(task: str = "charge", **numbers: int) -> Rollup:
    return Rollup(resolution=Resolution.MINUTE, at=NOW - 60 * SECOND, queue="mail", task=task, **numbers)  # type: ignore[arg-type]


def hour(*, ago: int, **numbers: int) -> Rollup:
    at = interval_of(Resolution.HOUR, NOW) - ago * Resolution.HOUR
    return Rollup(resolution=Resolution.HOUR, at=at, queue="mail", task="charge", **numbers)  # type: ignore[arg-type]


def past(**numbers: int) -> list[Rollup]:
    """Two days ago."""
    return [hour(ago=48, **numbers)]


def fire(schedule: str, count: int) -> Fire:
    return Fire(schedule, NOW - SECOND, NOW, count, FireOutcome.SKIPPED, "late", None, NOW)


def judged(**signs: Any) -> Health:
    """Of a cluster in which all else is well."""
    one = instance()
    leader = LeaderInfo(instance=one.id, term=1, since=one.started_at, until=from_us(NOW + SECOND))
    return judge_health(HealthSnapshot(**({"now": NOW, "instances": [one], "leader": leader} | signs)))  # type: ignore[arg-type]


def test_a_cluster_that_does_its_work_is_healthy() -> None:
    busy = [rollup(started=770, succeeded=760, failed=10), rollup("rare", started=1, failed=1)]
    assert judged(queues=[queue(5, age=20)], minutes=busy) == Health(level=HealthLevel.OK, text="Healthy")


@pytest.mark.parametrize(
    ("signs", "level", "text", "detail"),
    [
        (
            {"minutes": [rollup(started=700, failed=700), rollup(started=70, failed=65, crashed=5)]},
            HealthLevel.BAD,
            "Task charge fails",
            "all 770 runs failed in the last 10 min",
        ),
        (
            {"minutes": [rollup(started=10, failed=6, succeeded=4)]},
            HealthLevel.WARN,
            "Task charge fails",
            "6 of 10 runs failed in the last 10 min",
        ),
        (
            {"died": [instance(state=InstanceState.DEAD, ended_at=from_us(NOW), ended_reason="no heartbeat for 10 s")]},
            HealthLevel.WARN,
            "1 instance died",
            "process 42 on rack7: no heartbeat for 10 s",
        ),
        ({"queues": [queue(3, age=90)]}, HealthLevel.WARN, "Queue mail is behind", "3 ready, the oldest for 1m 30s"),
        ({"queues": [queue(3, age=900)]}, HealthLevel.BAD, "Queue mail is behind", "3 ready, the oldest for 15m"),
        ({"instances": [], "queues": [queue(3)]}, HealthLevel.BAD, "No worker is alive", "3 jobs pending"),
        ({"instances": []}, HealthLevel.WARN, "No worker yet", "`drumbeat run module:attr` starts one"),
        (
            {"instances": [instance(beat_at=from_us(NOW - 3 * SECOND))]},
            HealthLevel.BAD,
            "No worker responds",
            "no heartbeat of 1 worker for 2 s",
        ),
        (
            {"minutes": [rollup(started=100, failed=8)], "hours": past(started=1_000, failed=4)},
            HealthLevel.WARN,
            "Task charge fails more often than before",
            "8 of 100 runs failed in the last 10 min; 0.4 % in the week before",
        ),
        (
            {"hours": [hour(ago=5, started=6, failed=6)]},
            HealthLevel.WARN,
            "Task charge fails",
            "all 6 runs failed in the last 24 h",
        ),
        (
            {"instances": [instance(tasks={"greet": "1"})], "tasks": [TaskStats(name="charge", pending=3)]},
            HealthLevel.BAD,
            "Task charge has no handler",
            "3 jobs pending, and no live worker has registered it",
        ),
        (
            {"instances": [instance(queues=("other",))], "queues": [queue(3, age=1)]},
            HealthLevel.BAD,
            "Queue mail has no worker",
            "3 jobs ready, and no live worker takes this queue",
        ),
        (
            {"missed": [fire("nightly", 2), fire("nightly", 1)]},
            HealthLevel.WARN,
            "Schedule nightly missed",
            "3 fires in the last hour: nobody fired in time (catch_up, max_late)",
        ),
        ({"store_ms": 900.0}, HealthLevel.WARN, "The store is slow", "900 ms for a small query"),
        ({"leader": None}, HealthLevel.WARN, "No leader", "no schedule fires until a controller leads"),
    ],
)
def test_what_is_not_well_is_told_with_its_reason(
    signs: dict[str, Any], level: HealthLevel, text: str, detail: str
) -> None:
    health = judged(**signs)
    assert (health.level, health.text) == (level, text)
    assert [(reason.text, reason.detail) for reason in health.reasons] == [(text, detail)]


def test_the_worst_is_told_first_and_nothing_is_left_out() -> None:
    health = judged(
        store_ms=900.0,
        queues=[queue(3, age=90)],
        minutes=[rollup(started=9, failed=9), rollup("half", started=9, failed=5, succeeded=4)],
    )
    assert (health.level, health.text) == (HealthLevel.BAD, "Task charge fails")
    assert [(reason.level, reason.kind, reason.name) for reason in health.reasons] == [
        ("bad", "task", "charge"),
        ("warn", "task", "half"),
        ("warn", "queue", "mail"),
        ("warn", "store", ""),
    ]


def test_a_pause_is_no_illness() -> None:
    assert judged(queues=[queue(3, age=900, paused=True)]).level is HealthLevel.OK


@pytest.mark.parametrize(
    ("signs", "page"),
    [
        ({"minutes": [rollup(started=9, failed=9, dead=2)]}, "/jobs?task=charge&state=dead"),
        ({"minutes": [rollup(started=9, failed=9)]}, "/jobs?task=charge&state=retrying"),
        ({"queues": [queue(3, age=90)]}, "/jobs?queue=mail&state=ready"),
        ({"tasks": [TaskStats(name="a b&c", pending=1)]}, "/jobs?task=a+b%26c&state=pending"),
        ({"missed": [fire("a/b", 1)]}, "/schedules/a%2Fb"),
        ({"leader": None}, "/instances"),
        ({"store_ms": 900.0}, "/system"),
    ],
)
def test_a_reason_names_the_page_that_shows_it(signs: dict[str, Any], page: str) -> None:
    assert [reason.page for reason in judged(**signs).reasons] == [page]


@pytest.mark.parametrize(
    ("outcome", "reason", "age", "missed"),
    [
        (FireOutcome.SKIPPED, "late", 0, True),
        (FireOutcome.SKIPPED, "limit", 3_599, True),
        (FireOutcome.SKIPPED, "late", 3_601, False),
        (FireOutcome.SKIPPED, "overlap", 0, False),
        (FireOutcome.SKIPPED, "caught up", 0, False),
        (FireOutcome.FIRED, "", 0, False),
    ],
)
def test_what_a_policy_skips_is_not_missed(outcome: FireOutcome, reason: str, age: int, missed: bool) -> None:
    record = Fire("nightly", NOW, NOW, 1, outcome, reason, None, NOW - age * SECOND)
    assert is_missed(record, NOW) is missed
