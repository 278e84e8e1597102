"""Is the cluster healthy? One judgement, for the dashboard, `/api/v1/status`, the event stream and `drumbeat top`.

`judge_health` is pure: from what was seen to a level, a sentence, and the reasons. It judges the work and not only the
processes: a task whose runs all fail and a worker that died are no health, however green the heartbeats are. What costs
the store more than a moment is asked for at most once in 10 s (`HealthWatch`). Everything that may be wrong, with what to do
about it, is `doctor.py` beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from drumbeat import durations
from drumbeat.clock import Clock
from drumbeat.core.health import HealthLevel
from drumbeat.core.instance import Instance, InstanceState, LeaderInfo, Role, is_healthy
from drumbeat.core.job_query import QueueStats
from drumbeat.core.schedule import Schedule
from drumbeat.core.stats import Resolution, Rollup
from drumbeat.durations import to_us
from drumbeat.store.protocol import Store

RECENT_WINDOW_US = 600_000_000
"""Runs and deaths of the last 10 minutes count."""
MIN_RUNS = 5
"""Of fewer runs a share says nothing: a single job that dies is a dead letter, not an illness."""
FAILING_SHARE = 0.5
MAX_LAG_US = 60_000_000
"""A queue whose oldest ready job is older is behind; ten times as old, it is bad."""
MAX_OVERDUE_US = 5_000_000
"""A schedule that has not fired so long after its moment is late: a leader's death costs about 2 s."""
MAX_STORE_MS = 500.0
RECENT_INTERVAL = 10.0
"""Workers write what they counted every 10 s: asking more often gives nothing new."""
HEALTHY_TEXT = "Healthy"


class HealthReason(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not as it should be."""

    level: HealthLevel
    """warn or bad."""
    kind: str
    """What it is about: task, queue, schedule, instance, instances, store."""
    name: str
    """Which task, queue, schedule or instance; empty where there is only one."""
    text: str
    """The whole in one line, for people."""
    detail: str = ""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the cluster does its work."""

    level: HealthLevel
    """ok, warn or bad: of the worst reason."""
    text: str
    """"Healthy", or the worst reason."""
    reasons: tuple[HealthReason, ...] = ()
    """Everything that speaks against it, the worst first."""


class FailingTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task of whose recent runs half or more failed."""

    name: str
    runs: int
    failed: int


class HealthSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen, at one moment by the store's clock."""

    now: int
    instances: Sequence[Instance] = ()
    """The living."""
    leader: LeaderInfo | None = None
    queues: Sequence[QueueStats] = ()
    due: Sequence[Schedule] = ()
    """Schedules whose moment has come, the oldest first; some of them are enough."""
    died: Sequence[Instance] = ()
    """Instances that were called dead lately."""
    rollups: Sequence[Rollup] = ()
    """What was counted lately, for each queue and task."""
    store_ms: float = 0.0
    heartbeat: float = 1.0
    """Seconds between two heartbeats of an instance, as this program has it."""


class HealthReport(msgspec.Struct, frozen=True, kw_only=True):
    """A judgement, and what it was made from."""

    health: Health
    snapshot: HealthSnapshot


class HealthMonitor:
    """Looks at a store and judges; for as long as somebody watches, so that what is dear is not asked each time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._recent: tuple[float, list[Instance], list[Rollup]] | None = None

    async def check(self, store: Store, *, heartbeat: float) -> HealthReport:
        """Raises what the store raises: one that is away is told by whoever asks."""
        look = store.inspect
        asked = self._clock.monotonic()
        leader = await look.get_leader()
        store_ms = (self._clock.monotonic() - asked) * 1_000
        now = await look.now()
        died, rollups = await self._read_recent(store, now)
        signs = HealthSnapshot(
            now=now,
            instances=await look.list_instances(),
            leader=leader,
            queues=await look.list_queues(),
            due=(await store.schedules.get_due(1)).schedules,
            died=died,
            rollups=rollups,
            store_ms=round(store_ms, 3),
            heartbeat=heartbeat,
        )
        return HealthReport(health=judge_health(signs), snapshot=signs)

    async def _read_recent(self, store: Store, now: int) -> tuple[list[Instance], list[Rollup]]:
        asked = self._clock.monotonic()
        if self._recent is None or asked - self._recent[0] >= RECENT_INTERVAL:
            died = [each for each in await store.inspect.list_instances(all=True) if each.state is InstanceState.DEAD]
            self._recent = (asked, died, await read_recent(store, now))
        _, died, rollups = self._recent
        return [each for each in died if each.ended_at and now - to_us(each.ended_at) <= RECENT_WINDOW_US], rollups


async def read_recent(store: Store, now: int) -> list[Rollup]:
    """What was counted in the last 10 minutes, for each queue and task."""
    return await store.stats.read(Resolution.MINUTE, now - RECENT_WINDOW_US, now + Resolution.MINUTE)


def judge_health(snapshot: HealthSnapshot) -> Health:
    """The worst reason says it in one line."""
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
    order = list(HealthLevel)
    reasons = sorted(found, key=lambda reason: -order.index(reason.level))
    return Health(level=reasons[0].level, text=reasons[0].text, reasons=tuple(reasons))


def failing_tasks(rollups: Iterable[Rollup]) -> list[FailingTask]:
    """Tasks of whose runs half or more failed or crashed, the largest first."""
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
            detail = f"{_format_count(pending, 'job')} pending" if pending else ""
            yield _instances_reason(HealthLevel.BAD if pending else HealthLevel.WARN, "No worker is alive", detail)
        else:
            yield _instances_reason(HealthLevel.WARN, "No worker yet", "`drumbeat run module:attr` starts one")
    elif len(silent) == len(workers):
        yield _instances_reason(
            HealthLevel.BAD, "No worker responds", f"no heartbeat of {_format_count(len(workers), 'worker')} for 2 s"
        )
    elif silent:
        names = ", ".join(each.id for each in silent[:3])
        text = "1 worker is silent" if len(silent) == 1 else f"{len(silent)} workers are silent"
        yield _instances_reason(HealthLevel.WARN, text, f"no heartbeat for 2 s: {names}")


def _judge_tasks(snapshot: HealthSnapshot) -> Iterator[HealthReason]:
    for task in failing_tasks(snapshot.rollups):
        every = task.failed == task.runs
        yield HealthReason(
            level=HealthLevel.BAD if every else HealthLevel.WARN,
            kind="task",
            name=task.name,
            text=f"Task {task.name} fails",
            detail=f"{'all ' if every else f'{task.failed:,} of '}{task.runs:,} runs failed in the last 10 min",
        )


def _judge_queues(snapshot: HealthSnapshot) -> Iterator[HealthReason]:
    for queue in snapshot.queues:
        lag = 0 if queue.oldest_due is None else snapshot.now - to_us(queue.oldest_due)
        if queue.ready and not queue.paused and lag > MAX_LAG_US:
            yield HealthReason(
                level=HealthLevel.BAD if lag > 10 * MAX_LAG_US else HealthLevel.WARN,
                kind="queue",
                name=queue.name,
                text=f"Queue {queue.name} is behind",
                detail=f"{queue.ready:,} ready, the oldest for {durations.format_duration(lag)}",
            )


def _judge_schedules(snapshot: HealthSnapshot) -> Iterator[HealthReason]:
    for schedule in snapshot.due:
        late = 0 if schedule.next_at is None else snapshot.now - schedule.next_at
        if late > MAX_OVERDUE_US:
            yield HealthReason(
                level=HealthLevel.BAD,
                kind="schedule",
                name=schedule.name,
                text=f"Schedule {schedule.name} is late",
                detail=f"its moment passed {durations.format_duration(late)} ago and was not fired",
            )


def _judge_deaths(snapshot: HealthSnapshot) -> Iterator[HealthReason]:
    if len(snapshot.died) == 1:
        [one] = snapshot.died
        detail = f"process {one.pid} on {one.host}: {one.ended_reason or 'no reason on record'}"
        yield HealthReason(level=HealthLevel.WARN, kind="instance", name=one.id, text="1 instance died", detail=detail)
    elif snapshot.died:
        last = max(snapshot.died, key=lambda each: each.ended_at or each.beat_at)
        detail = f"in the last 10 min; the last: process {last.pid} on {last.host}"
        yield _instances_reason(HealthLevel.WARN, f"{len(snapshot.died)} instances died", detail)


def _judge_store_and_leader(snapshot: HealthSnapshot) -> Iterator[HealthReason]:
    if snapshot.store_ms > MAX_STORE_MS:
        detail = f"{snapshot.store_ms:,.0f} ms for a small question"
        yield HealthReason(level=HealthLevel.WARN, kind="store", name="", text="The store is slow", detail=detail)
    if snapshot.leader is None and snapshot.instances:
        yield _instances_reason(HealthLevel.WARN, "No leader", "nobody fires schedules at this moment")


def _instances_reason(level: HealthLevel, text: str, detail: str) -> HealthReason:
    return HealthReason(level=level, kind="instances", name="", text=text, detail=detail)


def _format_count(number: int, one: str) -> str:
    return f"{number:,} {one}{'' if number == 1 else 's'}"
