"""What is wrong with the cluster on a store, and what to do about it: for `drumbeat doctor` and the System page.

`judge` is pure: from what was seen to findings. What a store says of itself is told elsewhere (`Inspect.facts`);
`app.system.doctor()` gives both. Every look is bounded; nothing is changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches

import msgspec

from drumbeat import durations
from drumbeat.client import Client
from drumbeat.clock import Clock
from drumbeat.durations import to_us
from drumbeat.model.finding import Finding, Level
from drumbeat.model.instance import Instance, LeaderInfo, Role
from drumbeat.model.job import Job, JobFilter, JobState, QueueStats, TaskStats, View
from drumbeat.model.lock import LockInfo
from drumbeat.model.schedule import Schedule, ScheduleState
from drumbeat.model.stats import Rollup
from drumbeat.store.protocol import Store

from . import malformed
from .health import failing_tasks, read_recent

OVERDUE_US = 5_000_000
"""A schedule that has not fired so long after its moment stands still: a leader's death costs about 2 s."""
LAG_US = 60_000_000
"""A queue whose oldest ready job is older has too few slots, or none."""
MOST = 1_000
"""Schedules, locks, running and waiting jobs are looked at up to here."""
SECOND_LOOK_S = 1.0
"""What may be so for a moment is looked at again after this."""
MOST_NAMED = 3

_HEALTHY = {
    "workers": "all are heard of",
    "queues": "every queue with ready jobs has a worker",
    "tasks": "every task with jobs is known by a worker",
    "runs": "no task fails most of its runs",
    "schedules": "none is overdue",
    "locks": "every line moves",
    "running jobs": "all belong to living processes",
}


class Signs(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen."""

    now: int
    dead_after: int
    instances: Sequence[Instance] = ()
    leader: LeaderInfo | None = None
    queues: Sequence[QueueStats] = ()
    tasks: Sequence[TaskStats] = ()
    schedules: Sequence[Schedule] = ()
    locks: Sequence[LockInfo] = ()
    running: Sequence[Job] = ()
    waiting: Sequence[Job] = ()
    """Some of those that wait for something other than time."""
    rollups: Sequence[Rollup] = ()
    """What was counted in the last 10 minutes."""
    dead: int = 0

    def silence(self, instance: Instance) -> int:
        return self.now - to_us(instance.beat_at)

    def living(self) -> list[Instance]:
        return [each for each in self.instances if self.silence(each) <= self.dead_after]

    def workers(self) -> list[Instance]:
        return [each for each in self.living() if Role.WORKER in each.roles]


async def examine(client: Client, clock: Clock) -> list[Finding]:
    """Look at everything that is on the store; what the store says of itself is `app.system.facts()`."""
    store = await client.store()
    return [*judge(await _seen(store, client, clock)), *malformed.judge(await store.inspect.malformed(MOST))]


async def _seen(store: Store, client: Client, clock: Clock) -> Signs:
    look = store.inspect
    now = await look.now()
    return Signs(
        now=now,
        dead_after=round(client.settings.dead_after * 1_000_000),
        instances=await look.instances(),
        leader=await look.leader(),
        queues=await look.queues(),
        tasks=await look.tasks(),
        schedules=await store.schedules.page(limit=MOST),
        locks=await _locks(store, clock),
        running=(await look.page(JobFilter(state=JobState.RUNNING, limit=MOST))).items,
        waiting=(await look.page(JobFilter(view=View.WAITING, limit=MOST))).items,
        rollups=await read_recent(store, now),
        dead=(await look.counts(JobFilter())).dead,
    )


async def _locks(store: Store, clock: Clock) -> list[LockInfo]:
    """A lease that has just ended is noticed by the next in line within moments: only what stays so is a sign."""
    locks = await store.locks.page(limit=MOST)
    if not any(map(stands_still, locks)):
        return locks
    await clock.sleep(SECOND_LOOK_S)
    still = {lock.name for lock in locks if stands_still(lock)}
    return [lock for lock in await store.locks.page(limit=MOST) if lock.name in still or not stands_still(lock)]


def stands_still(lock: LockInfo) -> bool:
    """Somebody waits, nobody holds it, and no rate window is closed."""
    return lock.waiting > 0 and lock.holding == 0 and lock.opens_at is None


def judge(signs: Signs) -> list[Finding]:
    """Everything that was looked at, what is wrong with it or that nothing is."""
    groups = {
        "workers": list(_workers(signs)),
        "queues": list(_queues(signs)),
        "tasks": list(_tasks(signs)),
        "runs": list(_runs(signs)),
        "schedules": list(_schedules(signs)),
        "locks": list(_lines(signs)),
        "running jobs": list(_strays(signs)),
    }
    found: list[Finding] = []
    for name, findings in groups.items():
        found += findings or [Finding(name=name, level=Level.OK, value=_HEALTHY[name])]
    return [*found, _dead(signs)]


def worst(findings: Iterable[Finding]) -> Level:
    order = list(Level)
    return max((finding.level for finding in findings), key=order.index, default=Level.OK)


def _workers(signs: Signs) -> Iterator[Finding]:
    workers = signs.workers()
    if not workers:
        ready = sum(queue.ready for queue in signs.queues)
        level = Level.BAD if ready else Level.NOTE
        value = f"none is alive, and {_count(ready, 'job')} could run" if ready else "none is alive"
        yield Finding(name="workers", level=level, value=value, advice="`drumbeat run module:attr` starts one")
    for instance in signs.instances:
        name = f"instance {instance.id}"
        where = f"process {instance.pid} on {instance.host}"
        if signs.silence(instance) > signs.dead_after:
            advice = "another instance calls it dead and frees its jobs; where none is alive, start one"
            value = f"{where} has been silent for {durations.text(signs.silence(instance))}"
            yield Finding(name=name, level=Level.WARN, value=value, advice=advice)
        if instance.refused:
            yield Finding(
                name=name,
                level=Level.WARN,
                value=f"{_count(instance.refused, 'late result')} of {where} refused",
                advice="it was taken for dead while it stood still, and others did its jobs: see its log; "
                "raise dead_after if machines here are suspended or swap",
            )
    versions: dict[str, set[str]] = {}
    for instance in signs.living():
        versions.setdefault(instance.app, set()).add(instance.version)
    for app, found in sorted(versions.items()):
        if len(found) > 1:
            value = f"versions {', '.join(sorted(map(repr, found)))} run side by side"
            yield Finding(name=f"app {app}", level=Level.NOTE, value=value, advice="as in a deploy; it should pass")


def _queues(signs: Signs) -> Iterator[Finding]:
    taken = {queue for worker in signs.workers() for queue in worker.queues}
    for queue in signs.queues:
        name, ready = f"queue {queue.name}", _count(queue.ready, "job")
        lag = 0 if queue.oldest_due is None else signs.now - to_us(queue.oldest_due)
        if queue.paused:
            by, why = queue.paused_by or "somebody", queue.paused_why or "no reason given"
            yield Finding(
                name=name,
                level=Level.WARN if queue.ready else Level.NOTE,
                value=f"paused by {by} ({why}); {ready} ready",
                advice=f"`drumbeat queues resume {queue.name}`",
            )
        elif queue.ready and queue.name not in taken:
            yield Finding(
                name=name,
                level=Level.BAD,
                value=f"{ready} ready, and no living worker takes it",
                advice=f"start a worker that takes it: `drumbeat run module:attr --queues {queue.name}`",
            )
        elif queue.ready and lag > LAG_US:
            yield Finding(
                name=name,
                level=Level.WARN,
                value=f"{ready} ready, the oldest for {durations.text(lag)}",
                advice="more workers, a higher --concurrency, or quicker handlers; `drumbeat explain ID` tells of one job",
            )


def _tasks(signs: Signs) -> Iterator[Finding]:
    workers = signs.workers()
    known = {task for worker in workers for task in worker.tasks}
    if not workers and any(task.pending for task in signs.tasks):
        yield Finding(name="tasks", level=Level.NOTE, value="whether they are known is not known: no worker is alive")
    for task in signs.tasks:
        if workers and task.pending and task.name not in known:
            near = get_close_matches(task.name, sorted(known), n=1)
            yield Finding(
                name=f"task {task.name}",
                level=Level.BAD,
                value=f"{_waiting(task.pending)} for it, and no living worker knows it",
                advice="import the module that registers it (`imports`), or restart workers of an older deploy"
                + (f"; the nearest name is {near[0]!r}" if near else ""),
            )
    versions = Counter(job.task for job in signs.waiting if (job.waits_for or "").startswith("version:"))
    for name, count in sorted(versions.items()):
        yield Finding(
            name=f"task {name}",
            level=Level.WARN,
            value=f"{_waiting(count)} for a worker of another version of it",
            advice="they become dead letters after wait_for_version: start such a worker, or register an upgrade",
        )


def _runs(signs: Signs) -> Iterator[Finding]:
    for task in failing_tasks(signs.rollups):
        yield Finding(
            name=f"task {task.name}",
            level=Level.BAD if task.failed == task.runs else Level.WARN,
            value=f"{task.failed:,} of {_count(task.runs, 'run')} failed in the last 10 minutes",
            advice=f"`drumbeat jobs list --task {task.name}` shows their errors; "
            "`drumbeat queues pause` keeps more from running meanwhile",
        )


def _schedules(signs: Signs) -> Iterator[Finding]:
    active = [schedule for schedule in signs.schedules if schedule.state is ScheduleState.ACTIVE]
    controllers = [each for each in signs.living() if Role.CONTROLLER in each.roles]
    if active and not controllers:
        yield Finding(
            name="controllers",
            level=Level.BAD if any(_overdue(signs, schedule) > 0 for schedule in active) else Level.WARN,
            value=f"none is alive, so nobody fires {_count(len(active), 'schedule')}",
            advice="`drumbeat run module:attr` is one, unless --role worker says otherwise",
        )
    elif controllers and signs.leader is None:
        advice = "another takes over within some seconds; fires are not lost meanwhile"
        yield Finding(name="leader", level=Level.NOTE, value="nobody leads at this moment", advice=advice)
    for schedule in active:
        if _overdue(signs, schedule) > OVERDUE_US:
            yield Finding(
                name=f"schedule {schedule.name}",
                level=Level.BAD,
                value=f"its moment passed {durations.text(_overdue(signs, schedule))} ago and was not fired",
                advice="see the log of the controllers: they say why; or start one",
            )


def _overdue(signs: Signs, schedule: Schedule) -> int:
    return 0 if schedule.next_at is None else max(0, signs.now - schedule.next_at)


def _lines(signs: Signs) -> Iterator[Finding]:
    for lock in signs.locks:
        if stands_still(lock):
            yield Finding(
                name=f"lock {lock.name}",
                level=Level.BAD,
                value=f"{_count(lock.waiting, 'ticket')} in line, and nobody living holds it",
                advice="those who wait do not look: see whether their processes stand still "
                f"(`drumbeat locks show {lock.name}`)",
            )


def _strays(signs: Signs) -> Iterator[Finding]:
    living = {instance.id for instance in signs.living()}
    strays = [job for job in signs.running if job.instance not in living]
    if strays:
        named = ", ".join(job.id for job in strays[:MOST_NAMED])
        more = " ..." if len(strays) > MOST_NAMED else ""
        yield Finding(
            name="running jobs",
            level=Level.WARN if living else Level.BAD,
            value=f"{_count(len(strays), 'job')} of processes that are gone or silent: {named}{more}",
            advice="living instances free them within some seconds" if living else "start a worker: it frees them",
        )


def _dead(signs: Signs) -> Finding:
    advice = "`drumbeat dead groups` shows what they have in common" if signs.dead else ""
    level = Level.NOTE if signs.dead else Level.OK
    return Finding(name="dead letters", level=level, value=f"{signs.dead:,}", advice=advice)


def _count(number: int, one: str) -> str:
    return f"{number:,} {one}{'' if number == 1 else 's'}"


def _waiting(number: int) -> str:
    return "1 job waits" if number == 1 else f"{number:,} jobs wait"
