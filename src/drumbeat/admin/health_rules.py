"""What "healthy" means: a pure function of a snapshot gives a level, a sentence, and the reasons, each with its page.

It judges the work and not only the processes: a task whose runs all fail is not healthy, however regular the heartbeats are.
`health.py` takes the snapshot. When a task fails too often is decided by `core/failure_rate.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated
from urllib.parse import quote, urlencode

import msgspec

from drumbeat.core.failure_rate import RECENT_WINDOW_US, FailingTask, find_failing_tasks
from drumbeat.core.field_doc import doc
from drumbeat.core.health import HealthLevel
from drumbeat.core.instance import Instance, LeaderInfo, Role, is_healthy
from drumbeat.core.job import JobState, PendingView
from drumbeat.core.job_query import QueueStats, TaskStats
from drumbeat.core.schedule import Fire, FireOutcome, Schedule
from drumbeat.core.stats import Rollup
from drumbeat.durations import format_length, to_us
from drumbeat.plural import format_count

MAX_LAG_US = 60_000_000
"""A queue whose oldest ready job is older is behind: it has too few slots, or none. Ten times as old, it is bad."""
MAX_OVERDUE_US = 5_000_000
"""A schedule that has not fired this long after its fire time is late: the death of a leader costs about 2 s."""
MAX_STORE_MS = 500.0
MISSED_WINDOW_US = 3_600_000_000
"""Fires that were missed in the last hour count."""
MISSED_REASONS = ("late", "limit")
"""Why a fire is skipped that nothing makes up for; an overlap, a pause and a catch-up are intended."""
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
    page: Annotated[str, doc("The page of the dashboard that shows it: a path below its prefix, with the filter.")] = ""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the cluster does its work, and why not."""

    level: Annotated[HealthLevel, doc("ok, warn or bad: of the worst reason.")]
    text: Annotated[str, doc('"Healthy", or the worst reason.')]
    reasons: Annotated[tuple[HealthReason, ...], doc("The worst first.")] = ()


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
    minutes: Sequence[Rollup] = ()
    """Roll-ups of the last 10 minutes, for each queue and task."""
    hours: Sequence[Rollup] = ()
    """Of the last 8 days."""
    tasks: Sequence[TaskStats] = ()
    missed: Sequence[Fire] = ()
    """Fires that were missed in the last hour."""
    store_ms: float = 0.0
    heartbeat: float = 1.0
    """Seconds between two heartbeats, by this program's settings."""


def judge_health(snapshot: HealthSnapshot) -> Health:
    found = [
        *_judge_workers(snapshot),
        *_judge_tasks(snapshot),
        *_judge_handlers(snapshot),
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


def is_missed(fire: Fire, now: int) -> bool:
    """Whether this record tells of fire times that were missed in the last hour."""
    is_recent = now - fire.recorded_at <= MISSED_WINDOW_US
    return is_recent and fire.outcome is FireOutcome.SKIPPED and fire.reason in MISSED_REASONS


def describe_failures(task: FailingTask) -> str:
    """ "6 of 10 runs failed in the last 10 min; 0.4 % in the week before"."""
    counts = task.counts
    number = f"all {counts.runs:,}" if task.is_total else f"{counts.failed:,} of {counts.runs:,}"
    window = "10 min" if task.window_us == RECENT_WINDOW_US else "24 h"
    before = "" if task.past is None else f"; {_format_share(task.past.share)} in the week before"
    return f"{number} runs failed in the last {window}{before}"


def _format_share(share: float) -> str:
    return "none" if not share else "less than 0.1 %" if share < 0.001 else f"{share * 100:.1f} %"


def unknown_tasks(tasks: Iterable[TaskStats], workers: Iterable[Instance]) -> list[TaskStats]:
    """Tasks with pending jobs that none of these workers has registered; none if there is no worker at all."""
    everybody = list(workers)
    known = {name for worker in everybody for name in worker.tasks}
    return [task for task in tasks if everybody and task.pending and task.name not in known]


def _judge_workers(snapshot: HealthSnapshot) -> Iterator[HealthReason]:
    workers = _workers(snapshot)
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
    for task in find_failing_tasks(snapshot.now, snapshot.minutes, snapshot.hours):
        # A window of a day may have ended hours ago for this task: it is no emergency.
        level = HealthLevel.BAD if task.is_total and task.window_us == RECENT_WINDOW_US else HealthLevel.WARN
        problem = "fails more often than before" if task.is_rise else "fails"
        page = _jobs_page(task=task.name, state=JobState.DEAD if task.counts.dead else PendingView.RETRYING)
        yield _named_reason(level, "task", task.name, problem, describe_failures(task), page)


def _judge_handlers(snapshot: HealthSnapshot) -> Iterator[HealthReason]:
    for task in unknown_tasks(snapshot.tasks, _workers(snapshot)):
        detail = f"{format_count(task.pending, 'job')} pending, and no live worker has registered it"
        page = _jobs_page(task=task.name, state=JobState.PENDING)
        yield _named_reason(HealthLevel.BAD, "task", task.name, "has no handler", detail, page)


def _judge_queues(snapshot: HealthSnapshot) -> Iterator[HealthReason]:
    workers = _workers(snapshot)
    taken = {queue for worker in workers for queue in worker.queues}
    for queue in snapshot.queues:
        lag = queue_lag_us(queue, snapshot.now)
        if not queue.ready or queue.paused:
            continue
        page = _jobs_page(queue=queue.name, state=PendingView.READY)
        if workers and queue.name not in taken:
            detail = f"{format_count(queue.ready, 'job')} ready, and no live worker takes this queue"
            yield _named_reason(HealthLevel.BAD, "queue", queue.name, "has no worker", detail, page)
        elif lag > MAX_LAG_US:
            level = HealthLevel.BAD if lag > 10 * MAX_LAG_US else HealthLevel.WARN
            detail = f"{queue.ready:,} ready, the oldest for {format_length(lag)}"
            yield _named_reason(level, "queue", queue.name, "is behind", detail, page)


def _judge_schedules(snapshot: HealthSnapshot) -> Iterator[HealthReason]:
    for schedule in snapshot.due:
        late = 0 if schedule.next_at is None else snapshot.now - schedule.next_at
        if late > MAX_OVERDUE_US:
            detail = f"its fire time was {format_length(late)} ago, and it has not fired"
            page = _page_of("schedules", schedule.name)
            yield _named_reason(HealthLevel.BAD, "schedule", schedule.name, "is late", detail, page)
    missed: dict[str, int] = {}
    for fire in snapshot.missed:
        missed[fire.schedule] = missed.get(fire.schedule, 0) + fire.count
    for name, number in sorted(missed.items()):
        detail = f"{format_count(number, 'fire')} in the last hour: nobody fired in time (catch_up, max_late)"
        yield _named_reason(HealthLevel.WARN, "schedule", name, "missed", detail, _page_of("schedules", name))


def _judge_deaths(snapshot: HealthSnapshot) -> Iterator[HealthReason]:
    if len(snapshot.died) == 1:
        [one] = snapshot.died
        detail = f"process {one.pid} on {one.host}: {one.ended_reason or 'no reason recorded'}"
        yield HealthReason(
            level=HealthLevel.WARN,
            kind="instance",
            name=one.id,
            text="1 instance died",
            detail=detail,
            page=_page_of("instances", one.id),
        )
    elif snapshot.died:
        last = max(snapshot.died, key=lambda each: each.ended_at or each.beat_at)
        detail = f"in the last 10 min; the last: process {last.pid} on {last.host}"
        yield _instances_reason(HealthLevel.WARN, f"{len(snapshot.died)} instances died", detail)


def _judge_store_and_leader(snapshot: HealthSnapshot) -> Iterator[HealthReason]:
    if snapshot.store_ms > MAX_STORE_MS:
        detail = f"{snapshot.store_ms:,.0f} ms for a small query"
        yield HealthReason(
            level=HealthLevel.WARN, kind="store", name="", text="The store is slow", detail=detail, page="/system"
        )
    if snapshot.leader is None and snapshot.instances:
        yield _instances_reason(HealthLevel.WARN, "No leader", "no schedule fires until a controller leads")


def _workers(snapshot: HealthSnapshot) -> list[Instance]:
    return [each for each in snapshot.instances if Role.WORKER in each.roles]


def _named_reason(level: HealthLevel, kind: str, name: str, problem: str, detail: str, page: str) -> HealthReason:
    text = f"{kind.title()} {name} {problem}"
    return HealthReason(level=level, kind=kind, name=name, text=text, detail=detail, page=page)


def _instances_reason(level: HealthLevel, text: str, detail: str) -> HealthReason:
    return HealthReason(level=level, kind="instances", name="", text=text, detail=detail, page="/instances")


def _jobs_page(**filter: str) -> str:
    return f"/jobs?{urlencode(filter)}"


def _page_of(noun: str, name: str) -> str:
    return f"/{noun}/{quote(name, safe='')}"
