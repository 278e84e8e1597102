"""Is the cluster healthy? One answer for the dashboard, `/api/v1/status`, the event stream and `drumbeat top`.

`judge_health` is a pure function of a snapshot: a level, a sentence, and the reasons. It judges the work and not only the
processes: a task whose runs all fail is not healthy, however regular the heartbeats are. `HealthMonitor` repeats the expensive
queries at most every 10 s. `doctor.py` lists everything that may be wrong, with what to do about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, NamedTuple

import msgspec

from drumbeat.clock import Clock
from drumbeat.core.field_doc import doc
from drumbeat.core.health import HealthLevel
from drumbeat.core.instance import Instance, InstanceState, LeaderInfo, Role, is_healthy
from drumbeat.core.job_query import QueueStats
from drumbeat.core.schedule import Schedule
from drumbeat.core.stats import Resolution, Rollup
from drumbeat.durations import format_length, to_us
from drumbeat.plural import format_count
from drumbeat.store.protocol import Store

RECENT_WINDOW_US = 600_000_000
"""Runs and deaths of the last 10 minutes count."""
MIN_RUNS = 5
"""A smaller sample is no evidence: a single job that dies is a dead letter, not a failing task."""
FAILING_SHARE = 0.5
MAX_LAG_US = 60_000_000
"""A queue whose oldest ready job is older is behind: it has too few slots, or none. Ten times as old, it is bad."""
MAX_OVERDUE_US = 5_000_000
"""A schedule that has not fired this long after its fire time is late: the death of a leader costs about 2 s."""
MAX_STORE_MS = 500.0
RECENT_INTERVAL = 10.0
"""Workers write their counts every 10 s: reading more often gives nothing new."""
HEALTHY_TEXT = "Healthy"
_SEVERITY = list(HealthLevel)
"""The last is the worst."""


class HealthReason(msgspec.Struct, frozen=True, kw_only=True):
    """One problem."""

    level: Annotated[HealthLevel, doc("warn or bad.")]
    kind: Annotated[str, doc("task, queue, schedule, instance, instances or store.")]
    name: Annotated[str, doc("Of the task, queue, schedule or instance; empty for instances and store.")]
    text: Annotated[str, doc("One line for people.")]
    detail: str = ""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the cluster does its work, and why not."""

    level: Annotated[HealthLevel, doc("ok, warn or bad: of the worst reason.")]
    text: Annotated[str, doc('"Healthy", or the worst reason.')]
    reasons: Annotated[tuple[HealthReason, ...], doc("The worst first.")] = ()


class FailingTask(NamedTuple):
    """A task of which at least half of the recent runs failed."""

    name: str
    runs: int
    failed: int


class HealthSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What `judge_health` looks at."""

    now: int
    """By the store's clock."""
    instances: Sequence[Instance] = ()
    """Those alive."""
    leader: LeaderInfo | None = None
    queues: Sequence[QueueStats] = ()
    due: Sequence[Schedule] = ()
    """Some schedules whose fire time has passed, the oldest first."""
    died: Sequence[Instance] = ()
    """Instances that were declared dead in the last 10 minutes."""
    rollups: Sequence[Rollup] = ()
    """Of the last 10 minutes, for each queue and task."""
    store_ms: float = 0.0
    heartbeat: float = 1.0
    """Seconds between two heartbeats, by this program's settings."""


class HealthReport(msgspec.Struct, frozen=True, kw_only=True):
    """A health, and the snapshot that it was judged from."""

    health: Health
    snapshot: HealthSnapshot


class HealthMonitor:
    """Judges a store again and again, and caches the expensive queries in between."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._recent: tuple[float, list[Instance], list[Rollup]] | None = None

    async def check(self, store: Store, *, heartbeat: float) -> HealthReport:
        """Raises what the store raises: callers report a store that is unavailable."""
        inspect = store.inspect
        asked = self._clock.monotonic()
        leader = await inspect.get_leader()
        store_ms = (self._clock.monotonic() - asked) * 1_000
        now = await inspect.now()
        died, rollups = await self._read_recent(store, now)
        snapshot = HealthSnapshot(
            now=now,
            instances=await inspect.list_instances(),
            leader=leader,
            queues=await inspect.list_queues(),
            due=(await store.schedules.get_due(1)).schedules,
            died=died,
            rollups=rollups,
            store_ms=round(store_ms, 3),
            heartbeat=heartbeat,
        )
        return HealthReport(health=judge_health(snapshot), snapshot=snapshot)

    async def _read_recent(self, store: Store, now: int) -> tuple[list[Instance], list[Rollup]]:
        asked = self._clock.monotonic()
        if self._recent is None or asked - self._recent[0] >= RECENT_INTERVAL:
            died = [each for each in await store.inspect.list_instances(all=True) if each.state is InstanceState.DEAD]
            self._recent = (asked, died, await read_recent(store, now))
        _, died, rollups = self._recent
        return [each for each in died if each.ended_at and now - to_us(each.ended_at) <= RECENT_WINDOW_US], rollups


async def read_recent(store: Store, now: int) -> list[Rollup]:
    """The rollups of the last 10 minutes, for each queue and task."""
    return await store.stats.read(Resolution.MINUTE, now - RECENT_WINDOW_US, now + Resolution.MINUTE)


def judge_health(snapshot: HealthSnapshot) -> Health:
    found = [
        *_judge_workers(snapshot),
        *_judge_tasks(snapshot),
        *_judge_queues(snapshot),
        *_judge_schedules(snapshot),
        *_judge_deaths(snapshot),
        *_judge_store_and_leader(snapshot),
    ]
    if not found:
        return Health(level=HealthLevel.OK, text=HEALTHY_TEXT)
    reasons = sorted(found, key=lambda reason: -_SEVERITY.index(reason.level))
    return Health(level=reasons[0].level, text=reasons[0].text, reasons=tuple(reasons))


def worst_of(levels: Iterable[HealthLevel]) -> HealthLevel:
    return max(levels, key=_SEVERITY.index, default=HealthLevel.OK)


def queue_lag_us(queue: QueueStats, now: int) -> int:
    """How long the oldest ready job has been ready."""
    return 0 if queue.oldest_due is None else now - to_us(queue.oldest_due)


def failing_tasks(rollups: Iterable[Rollup]) -> list[FailingTask]:
    """Tasks of which at least half of the runs failed or crashed, the largest first."""
    runs: dict[str, int] = {}
    failed: dict[str, int] = {}
    for each in rollups:
        runs[each.task] = runs.get(each.task, 0) + each.started
        failed[each.task] = failed.get(each.task, 0) + each.failed + each.crashed
    found = [
        FailingTask(name=name, runs=number, failed=min(number, failed[name]))
        for name, number in runs.items()
        if number >= MIN_RUNS and failed[name] >= number * FAILING_SHARE
    ]
    return sorted(found, key=lambda task: (-task.failed, task.name))


def _judge_workers(snapshot: HealthSnapshot) -> Iterator[HealthReason]:
    workers = [each for each in snapshot.instances if Role.WORKER in each.roles]
    silent = [each for each in workers if not is_healthy(each, snapshot.now, snapshot.heartbeat)]
    if not workers:
        pending = sum(queue.ready + queue.scheduled + queue.waiting for queue in snapshot.queues)
        if pending or snapshot.died:
            detail = f"{format_count(pending, 'job')} pending" if pending else ""
            yield _instances_reason(HealthLevel.BAD if pending else HealthLevel.WARN, "No worker is alive", detail)
        else:
            yield _instances_reason(HealthLevel.WARN, "No worker yet", "`drumbeat run module:attr` starts one")
    elif len(silent) == len(workers):
        yield _instances_reason(
            HealthLevel.BAD, "No worker responds", f"no heartbeat of {format_count(len(workers), 'worker')} for 2 s"
        )
    elif silent:
        names = ", ".join(each.id for each in silent[:3])
        text = "1 worker is silent" if len(silent) == 1 else f"{len(silent)} workers are silent"
        yield _instances_reason(HealthLevel.WARN, text, f"no heartbeat for 2 s: {names}")


def _judge_tasks(snapshot: HealthSnapshot) -> Iterator[HealthReason]:
    for task in failing_tasks(snapshot.rollups):
        every = task.failed == task.runs
        level = HealthLevel.BAD if every else HealthLevel.WARN
        detail = f"{'all ' if every else f'{task.failed:,} of '}{task.runs:,} runs failed in the last 10 min"
        yield _named_reason(level, "task", task.name, "fails", detail)


def _judge_queues(snapshot: HealthSnapshot) -> Iterator[HealthReason]:
    for queue in snapshot.queues:
        lag = queue_lag_us(queue, snapshot.now)
        if queue.ready and not queue.paused and lag > MAX_LAG_US:
            level = HealthLevel.BAD if lag > 10 * MAX_LAG_US else HealthLevel.WARN
            detail = f"{queue.ready:,} ready, the oldest for {format_length(lag)}"
            yield _named_reason(level, "queue", queue.name, "is behind", detail)


def _judge_schedules(snapshot: HealthSnapshot) -> Iterator[HealthReason]:
    for schedule in snapshot.due:
        late = 0 if schedule.next_at is None else snapshot.now - schedule.next_at
        if late > MAX_OVERDUE_US:
            detail = f"its fire time was {format_length(late)} ago, and it has not fired"
            yield _named_reason(HealthLevel.BAD, "schedule", schedule.name, "is late", detail)


def _judge_deaths(snapshot: HealthSnapshot) -> Iterator[HealthReason]:
    if len(snapshot.died) == 1:
        [one] = snapshot.died
        detail = f"process {one.pid} on {one.host}: {one.ended_reason or 'no reason recorded'}"
        yield HealthReason(level=HealthLevel.WARN, kind="instance", name=one.id, text="1 instance died", detail=detail)
    elif snapshot.died:
        last = max(snapshot.died, key=lambda each: each.ended_at or each.beat_at)
        detail = f"in the last 10 min; the last: process {last.pid} on {last.host}"
        yield _instances_reason(HealthLevel.WARN, f"{len(snapshot.died)} instances died", detail)


def _judge_store_and_leader(snapshot: HealthSnapshot) -> Iterator[HealthReason]:
    if snapshot.store_ms > MAX_STORE_MS:
        detail = f"{snapshot.store_ms:,.0f} ms for a small query"
        yield HealthReason(level=HealthLevel.WARN, kind="store", name="", text="The store is slow", detail=detail)
    if snapshot.leader is None and snapshot.instances:
        yield _instances_reason(HealthLevel.WARN, "No leader", "no schedule fires until a controller leads")


def _named_reason(level: HealthLevel, kind: str, name: str, problem: str, detail: str) -> HealthReason:
    return HealthReason(level=level, kind=kind, name=name, text=f"{kind.title()} {name} {problem}", detail=detail)


def _instances_reason(level: HealthLevel, text: str, detail: str) -> HealthReason:
    return HealthReason(level=level, kind="instances", name="", text=text, detail=detail)
