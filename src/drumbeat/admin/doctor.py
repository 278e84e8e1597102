"""What is wrong with the cluster on a store, and what to do about it: for `drumbeat doctor` and the System page.

`check_cluster` is a pure function of a snapshot. The store checks itself (`Inspect.check_health`); `app.system.doctor()` gives
both. Every query is bounded, and nothing is changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches

from drumbeat.client import Client
from drumbeat.clock import Clock
from drumbeat.core.failure_rate import find_failing_tasks
from drumbeat.core.health import HealthCheck, HealthLevel
from drumbeat.core.instance import LeaderInfo, Role
from drumbeat.core.job import Job, JobState, PendingView
from drumbeat.core.job_query import JobFilter, QueueStats, TaskStats
from drumbeat.core.lock import LockInfo
from drumbeat.core.schedule import Schedule, ScheduleState
from drumbeat.core.stats import Rollup
from drumbeat.durations import format_length
from drumbeat.plural import format_count
from drumbeat.store.protocol import Store

from . import dependency_checks, limit_checks, malformed
from .dependency_checks import DependencySample, check_dependencies, read_dependencies
from .health import read_past, read_recent
from .health_rules import MAX_LAG_US, MAX_OVERDUE_US, describe_failures, queue_lag_us, unknown_tasks, worst_of
from .instance_snapshot import InstanceSnapshot
from .limit_checks import LimitsSample, check_limits, read_limits

MAX_EXAMINED = 1_000
"""Of schedules, locks, running jobs and waiting jobs each."""
RECHECK_DELAY = 1.0
"""Seconds after which a state that may be transient is checked again."""
MAX_NAMED = 3


class ClusterSnapshot(InstanceSnapshot, frozen=True, kw_only=True):
    """What the checks look at."""

    leader: LeaderInfo | None = None
    queues: Sequence[QueueStats] = ()
    tasks: Sequence[TaskStats] = ()
    schedules: Sequence[Schedule] = ()
    locks: Sequence[LockInfo] = ()
    running: Sequence[Job] = ()
    waiting: Sequence[Job] = ()
    """Some of the jobs that wait for something other than time."""
    minutes: Sequence[Rollup] = ()
    """Roll-ups of the last 10 minutes."""
    hours: Sequence[Rollup] = ()
    """Of the last 8 days."""
    dead: int = 0
    dependencies: DependencySample = DependencySample()
    limits: LimitsSample = LimitsSample()


async def examine(client: Client, clock: Clock) -> list[HealthCheck]:
    """Check everything on the store; `app.system.facts()` checks the store itself."""
    store = await client.store()
    return [
        *check_cluster(await _take_snapshot(store, client, clock)),
        *malformed.check_records(await store.inspect.find_malformed(MAX_EXAMINED)),
    ]


async def _take_snapshot(store: Store, client: Client, clock: Clock) -> ClusterSnapshot:
    inspect = store.inspect
    now = await inspect.now()
    waiting = (await inspect.find_page(JobFilter(view=PendingView.WAITING, limit=MAX_EXAMINED))).items
    return ClusterSnapshot(
        now=now,
        dead_after=round(client.settings.dead_after * 1_000_000),
        instances=await inspect.list_instances(),
        leader=await inspect.get_leader(),
        queues=await inspect.list_queues(),
        tasks=await inspect.list_tasks(),
        schedules=await store.schedules.list_page(limit=MAX_EXAMINED),
        locks=await _read_locks(store, clock),
        running=(await inspect.find_page(JobFilter(state=JobState.RUNNING, limit=MAX_EXAMINED))).items,
        waiting=waiting,
        minutes=await read_recent(store, now),
        hours=await read_past(store, now),
        dead=(await inspect.count_jobs(JobFilter())).dead,
        dependencies=await read_dependencies(store, waiting, MAX_EXAMINED),
        limits=await read_limits(store, clock, MAX_EXAMINED),
    )


async def _read_locks(store: Store, clock: Clock) -> list[LockInfo]:
    """Waiters notice an ended lease within a second: only a lock that stays stalled is a problem."""
    locks = await store.locks.list_page(limit=MAX_EXAMINED)
    if not any(map(is_stalled, locks)):
        return locks
    await clock.sleep(RECHECK_DELAY)
    still = {lock.name for lock in locks if is_stalled(lock)}
    return [
        lock for lock in await store.locks.list_page(limit=MAX_EXAMINED) if lock.name in still or not is_stalled(lock)
    ]


def is_stalled(lock: LockInfo) -> bool:
    """It has waiters, no holder, and no closed rate window."""
    return lock.waiting > 0 and lock.holding == 0 and lock.opens_at is None


def check_cluster(snapshot: ClusterSnapshot) -> list[HealthCheck]:
    """The findings about each part; a part without problems gets one that says so."""
    found: list[HealthCheck] = []
    for name, check, ok_text in _CHECKS:
        found += list(check(snapshot)) or [HealthCheck(name=name, level=HealthLevel.OK, value=ok_text)]
    return [*found, _check_dead_letters(snapshot)]


def worst_level(findings: Iterable[HealthCheck]) -> HealthLevel:
    return worst_of(finding.level for finding in findings)


def _check_workers(snapshot: ClusterSnapshot) -> Iterator[HealthCheck]:
    workers = snapshot.workers()
    if not workers:
        ready = sum(queue.ready for queue in snapshot.queues)
        level = HealthLevel.BAD if ready else HealthLevel.NOTE
        value = f"none is alive, and {format_count(ready, 'job')} could run" if ready else "none is alive"
        yield HealthCheck(name="workers", level=level, value=value, advice="`drumbeat run module:attr` starts one")
    for instance in snapshot.instances:
        name = f"instance {instance.id}"
        where = f"process {instance.pid} on {instance.host}"
        if snapshot.silence_us(instance) > snapshot.dead_after:
            advice = "another instance declares it dead and frees its jobs; if none is alive, start one"
            value = f"{where} has been silent for {format_length(snapshot.silence_us(instance))}"
            yield HealthCheck(name=name, level=HealthLevel.WARN, value=value, advice=advice)
        if instance.refused:
            yield HealthCheck(
                name=name,
                level=HealthLevel.WARN,
                value=f"{format_count(instance.refused, 'late result')} of {where} refused",
                advice="it was declared dead while it was stopped, and others ran its jobs: see its log; "
                "raise dead_after if machines here are suspended or swap",
            )
    versions: dict[str, set[str]] = {}
    for instance in snapshot.living_instances():
        versions.setdefault(instance.app, set()).add(instance.version)
    for app, found in sorted(versions.items()):
        if len(found) > 1:
            value = f"versions {', '.join(sorted(map(repr, found)))} run side by side"
            yield HealthCheck(name=f"app {app}", level=HealthLevel.NOTE, value=value, advice="normal during a deploy")


def _check_queues(snapshot: ClusterSnapshot) -> Iterator[HealthCheck]:
    taken = {queue for worker in snapshot.workers() for queue in worker.queues}
    for queue in snapshot.queues:
        name, ready = f"queue {queue.name}", format_count(queue.ready, "job")
        lag = queue_lag_us(queue, snapshot.now)
        if queue.paused:
            by, reason = queue.paused_by or "unknown", queue.paused_reason or "no reason given"
            yield HealthCheck(
                name=name,
                level=HealthLevel.WARN if queue.ready else HealthLevel.NOTE,
                value=f"paused by {by} ({reason}); {ready} ready",
                advice=f"`drumbeat queues resume {queue.name}`",
            )
        elif queue.ready and queue.name not in taken:
            yield HealthCheck(
                name=name,
                level=HealthLevel.BAD,
                value=f"{ready} ready, and no living worker takes it",
                advice=f"start a worker that takes it: `drumbeat run module:attr --queues {queue.name}`",
            )
        elif queue.ready and lag > MAX_LAG_US:
            yield HealthCheck(
                name=name,
                level=HealthLevel.WARN,
                value=f"{ready} ready, the oldest for {format_length(lag)}",
                advice="more workers, a higher --concurrency, or faster handlers; `drumbeat explain ID` explains one job",
            )


def _check_tasks(snapshot: ClusterSnapshot) -> Iterator[HealthCheck]:
    workers = snapshot.workers()
    known = {task for worker in workers for task in worker.tasks}
    if not workers and any(task.pending for task in snapshot.tasks):
        yield HealthCheck(name="tasks", level=HealthLevel.NOTE, value="no worker is alive that could know them")
    for task in unknown_tasks(snapshot.tasks, workers):
        near = get_close_matches(task.name, sorted(known), n=1)
        yield HealthCheck(
            name=f"task {task.name}",
            level=HealthLevel.BAD,
            value=f"{_format_waiting(task.pending)} for it, and no living worker knows it",
            advice="import the module that registers it (`imports`), or restart workers of an older deploy"
            + (f"; the nearest name is {near[0]!r}" if near else ""),
        )
    versions = Counter(job.task for job in snapshot.waiting if (job.blocked_on or "").startswith("version:"))
    for name, count in sorted(versions.items()):
        yield HealthCheck(
            name=f"task {name}",
            level=HealthLevel.WARN,
            value=f"{_format_waiting(count)} for a worker of another version of it",
            advice="they become dead letters after wait_for_version: start such a worker, or register an upgrade",
        )


def _check_runs(snapshot: ClusterSnapshot) -> Iterator[HealthCheck]:
    for task in find_failing_tasks(snapshot.now, snapshot.minutes, snapshot.hours):
        yield HealthCheck(
            name=f"task {task.name}",
            level=HealthLevel.BAD if task.is_total else HealthLevel.WARN,
            value=describe_failures(task),
            advice=f"`drumbeat jobs list --task {task.name}` shows their errors; "
            "`drumbeat queues pause` stops further runs meanwhile",
        )


def _check_schedules(snapshot: ClusterSnapshot) -> Iterator[HealthCheck]:
    active = [schedule for schedule in snapshot.schedules if schedule.state is ScheduleState.ACTIVE]
    controllers = [each for each in snapshot.living_instances() if Role.CONTROLLER in each.roles]
    if active and not controllers:
        yield HealthCheck(
            name="controllers",
            level=HealthLevel.BAD
            if any(_overdue_us(snapshot, schedule) > 0 for schedule in active)
            else HealthLevel.WARN,
            value=f"none is alive, so nobody fires {format_count(len(active), 'schedule')}",
            advice="`drumbeat run module:attr` is one, unless --role worker says otherwise",
        )
    elif controllers and snapshot.leader is None:
        advice = "another controller takes over within seconds; no fire is lost meanwhile"
        yield HealthCheck(name="leader", level=HealthLevel.NOTE, value="there is none at present", advice=advice)
    for schedule in active:
        if _overdue_us(snapshot, schedule) > MAX_OVERDUE_US:
            yield HealthCheck(
                name=f"schedule {schedule.name}",
                level=HealthLevel.BAD,
                value=f"its fire time was {format_length(_overdue_us(snapshot, schedule))} ago, and it has not fired",
                advice="see the log of the controllers for the reason; or start one",
            )


def _overdue_us(snapshot: ClusterSnapshot, schedule: Schedule) -> int:
    return 0 if schedule.next_at is None else max(0, snapshot.now - schedule.next_at)


def _check_locks(snapshot: ClusterSnapshot) -> Iterator[HealthCheck]:
    for lock in snapshot.locks:
        if is_stalled(lock):
            yield HealthCheck(
                name=f"lock {lock.name}",
                level=HealthLevel.BAD,
                value=f"{format_count(lock.waiting, 'ticket')} waiting, and no living process holds it",
                advice="the waiters do not respond: see whether their processes are stopped "
                f"(`drumbeat locks show {lock.name}`)",
            )


def _check_orphaned_jobs(snapshot: ClusterSnapshot) -> Iterator[HealthCheck]:
    living = {instance.id for instance in snapshot.living_instances()}
    orphaned = [job for job in snapshot.running if job.instance not in living]
    if orphaned:
        named = ", ".join(job.id for job in orphaned[:MAX_NAMED])
        more = " ..." if len(orphaned) > MAX_NAMED else ""
        yield HealthCheck(
            name="running jobs",
            level=HealthLevel.WARN if living else HealthLevel.BAD,
            value=f"{format_count(len(orphaned), 'job')} of processes that are gone or silent: {named}{more}",
            advice="living instances free them within seconds" if living else "start a worker: it frees them",
        )


def _check_dead_letters(snapshot: ClusterSnapshot) -> HealthCheck:
    advice = "`drumbeat dead groups` shows what they have in common" if snapshot.dead else ""
    level = HealthLevel.NOTE if snapshot.dead else HealthLevel.OK
    return HealthCheck(name="dead letters", level=level, value=f"{snapshot.dead:,}", advice=advice)


def _format_waiting(number: int) -> str:
    return "1 job waits" if number == 1 else f"{number:,} jobs wait"


_CHECKS: tuple[tuple[str, Callable[[ClusterSnapshot], Iterator[HealthCheck]], str], ...] = (
    ("workers", _check_workers, "all send heartbeats"),
    ("queues", _check_queues, "every queue with ready jobs has a worker"),
    ("tasks", _check_tasks, "every task with jobs is known by a worker"),
    ("runs", _check_runs, "no task fails most of its runs, or more than before"),
    ("schedules", _check_schedules, "none is overdue"),
    ("locks", _check_locks, "none is stalled"),
    (
        dependency_checks.CHECK_NAME,
        lambda snapshot: check_dependencies(snapshot.dependencies, snapshot.now),
        "no job waits for an old dead letter, and counts of open parents are right",
    ),
    (
        limit_checks.CHECK_NAME,
        lambda snapshot: check_limits(snapshot.limits, snapshot.now),
        "counts are right, all are declared, and no group has been full for an hour",
    ),
    ("running jobs", _check_orphaned_jobs, "all belong to living processes"),
)
"""Name, check, and what is said if it finds nothing."""
