"""Why is it not running? A pure answer from what is known around a job; `circumstances.py` beside it finds that out.

Every reason that holds is told, the one that counts first. A reason has a kind for programs, a sentence for people, and the
facts in it. Sentences have names from the store in them: whoever shows them escapes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from enum import StrEnum

import msgspec

from drumbeat import durations
from drumbeat.admin.explain.context import MAX_AHEAD, ExplainContext
from drumbeat.core.instance import Instance
from drumbeat.core.job import Failure, JobState
from drumbeat.core.lock import LockInfo, TicketInfo, describe_job, parse_job
from drumbeat.durations import from_us, to_us
from drumbeat.ids import JobId

SECOND_US = 1_000_000
PROMPT_START_US = 5_000_000
"""What nothing stands in the way of starts sooner than this."""

Fact = str | int | float | bool | None


class ReasonKind(StrEnum):
    NOT_DUE = "not_due"
    RETRYING = "retrying"
    QUEUE_PAUSED = "queue_paused"
    NO_WORKER = "no_worker"
    NO_WORKER_FOR_QUEUE = "no_worker_for_queue"
    NO_WORKER_FOR_TASK = "no_worker_for_task"
    OTHER_VERSION = "other_version"
    BEHIND_JOB = "behind_job"  # its schedule lets it run after the one before
    SLOTS_FULL = "slots_full"
    JOBS_BEFORE = "jobs_before"  # slots are free, but others come first
    NEXT = "next"  # nothing is in its way
    LOCK = "lock"  # runs, and waits for its turn
    RATE = "rate"  # runs, and waits for a rate window
    CANCELLING = "cancelling"  # runs, and was asked to stop
    WORKER_SILENT = "worker_silent"  # ran on a process that is not heard of any more
    RUNNING = "running"
    ENDED = "ended"


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    kind: ReasonKind
    text: str
    """One sentence for people."""
    facts: dict[str, Fact]
    """What it says, for programs; moments are RFC 3339 texts."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job does not run, or that it does."""

    job: JobId
    view: str
    """The word people see for its state: ready, scheduled, running ..."""
    at: datetime
    """When this was so, by the store's clock."""
    reasons: list[Reason]
    """At least one; the first is what it waits for now."""


def explain(context: ExplainContext) -> Explanation:
    """The answer."""
    job = context.job
    if job.state is JobState.PENDING:
        reasons = list(_explain_pending(context))
    elif job.state is JobState.RUNNING:
        reasons = list(_explain_running(context))
    else:
        reasons = [_explain_ended(context)]
    now = from_us(context.now)
    return Explanation(job=job.id, view=str(job.view(now)), at=now, reasons=reasons)


def _explain_pending(context: ExplainContext) -> Iterator[Reason]:
    found = [
        reason
        for reason in (_not_due(context), _behind_job(context), _queue_paused(context), _no_capable_worker(context))
        if reason is not None
    ]
    yield from found or [_queue_position(context)]


def _not_due(context: ExplainContext) -> Reason | None:
    job = context.job
    if to_us(job.run_at) <= context.now:
        return None
    facts: dict[str, Fact] = {"until": _to_iso(job.run_at)}
    when = _format_future(to_us(job.run_at), context.now)
    if job.failures or job.crashes:
        return _next_attempt(context, when, facts)
    if job.token:  # it was claimed before, and nothing was charged
        text = f"it was put off until {when}: by Snooze, or because what it needs is away"
        return Reason(kind=ReasonKind.NOT_DUE, text=text, facts=facts | {"put_off": True})
    return Reason(kind=ReasonKind.NOT_DUE, text=f"it is not due before {when}", facts=facts | {"put_off": False})


def _next_attempt(context: ExplainContext, when: str, facts: dict[str, Fact]) -> Reason:
    job, error = context.job, context.error
    of = None if context.retries is None else context.retries + 1
    count = f"attempt {job.attempt}" if of is None else f"attempt {job.attempt} of {of}"
    crashed = f", after {_format_count(job.crashes, 'crash', 'crashes')} of its worker" if job.crashes else ""
    last = "" if error is None else f"; the last run ended with {_format_error(error)}"
    facts |= {
        "attempt": job.attempt,
        "of": of,
        "crashes": job.crashes,
        "error": None if error is None else _format_error(error),
    }
    return Reason(kind=ReasonKind.RETRYING, text=f"{count} comes at {when}{crashed}{last}", facts=facts)


def _behind_job(context: ExplainContext) -> Reason | None:
    schedule = context.schedule
    if schedule is None:
        return None
    name, before = schedule.name, schedule.current
    facts: dict[str, Fact] = {"schedule": name, "behind": before, "overlap": str(schedule.definition.overlap)}
    if before is None:
        text = (
            f"it waits for schedule {name!r}, whose job before it has ended: a controller sets it going in some seconds"
        )
    else:
        text = f"it waits for schedule {name!r} behind job {before}, which has not ended"
    return Reason(kind=ReasonKind.BEHIND_JOB, text=text, facts=facts)


def _queue_paused(context: ExplainContext) -> Reason | None:
    queue = context.queue
    if queue is None or not queue.paused:
        return None
    by = f" by {queue.paused_by}" if queue.paused_by else ""
    since = "" if queue.paused_at is None else f" {_format_ago(to_us(queue.paused_at), context.now)}"
    reason = f" ({queue.paused_reason})" if queue.paused_reason else ""
    return Reason(
        kind=ReasonKind.QUEUE_PAUSED,
        text=f"queue {queue.name!r} was paused{by}{since}{reason}: `drumbeat queues resume {queue.name}` lets it go on",
        facts={
            "queue": queue.name,
            "by": queue.paused_by,
            "reason": queue.paused_reason,
            "since": None if queue.paused_at is None else _to_iso(queue.paused_at),
        },
    )


def _no_capable_worker(context: ExplainContext) -> Reason | None:
    """No worker that could run it."""
    workers, takers = context.workers(), context.queue_workers()
    if not workers:
        return _no_worker(context)
    if not takers:
        queues = sorted({queue for worker in workers for queue in worker.queues})
        have = (
            f"{_format_count(len(workers), 'worker')} {_choose_verb(len(workers), 'takes', 'take')} {', '.join(queues)}"
        )
        text = f"no living worker takes queue {context.job.queue!r}: {have}"
        return Reason(
            kind=ReasonKind.NO_WORKER_FOR_QUEUE,
            text=text,
            facts={"queue": context.job.queue, "workers": len(workers), "taken": ", ".join(queues)},
        )
    if context.capable_workers():
        return None
    if any(context.job.task in taker.tasks for taker in takers):
        return _other_version(context, takers)
    return _unknown_task(context, takers)


def _no_worker(context: ExplainContext) -> Reason:
    silent = [each for each in context.instances if each not in context.living_instances()]
    text = "no worker is alive: `drumbeat run module:attr` starts one"
    if context.living_instances():
        text = "only controllers are alive, and no worker: `drumbeat run module:attr --role worker` starts one"
    if silent:
        longest = min(context.silence_us(each) for each in silent)
        text += f"; {_format_count(len(silent), 'process', 'processes')} fell silent, the last one {_format_whole_seconds(longest)} ago"
    facts: dict[str, Fact] = {"instances": len(context.living_instances()), "silent": len(silent)}
    return Reason(kind=ReasonKind.NO_WORKER, text=text, facts=facts)


def _unknown_task(context: ExplainContext, takers: Sequence[Instance]) -> Reason:
    job = context.job
    near = get_close_matches(job.task, sorted({task for taker in takers for task in taker.tasks}), n=1)
    elsewhere = sorted({queue for each in context.workers() if job.task in each.tasks for queue in each.queues})
    text = f"no living worker of queue {job.queue!r} knows task {job.task!r}: there {_choose_verb(len(takers), 'is', 'are')} "
    text += _format_count(len(takers), "worker")
    if elsewhere:
        text += f"; those that know it take only {', '.join(elsewhere)}"
    elif near:
        text += f"; the nearest that they know is {near[0]!r}"
    facts: dict[str, Fact] = {
        "task": job.task,
        "workers": len(takers),
        "nearest": near[0] if near else None,
        "known_on": ", ".join(elsewhere) or None,
    }
    return Reason(kind=ReasonKind.NO_WORKER_FOR_TASK, text=text, facts=facts)


def _other_version(context: ExplainContext, takers: Sequence[Instance]) -> Reason:
    job = context.job
    have = sorted({taker.tasks[job.task] for taker in takers if job.task in taker.tasks})
    return Reason(
        kind=ReasonKind.OTHER_VERSION,
        text=f"its arguments are those of another version of task {job.task!r} ({job.signature}); "
        f"the living workers have only {', '.join(have)}: start one of that version, or register an upgrade",
        facts={"task": job.task, "signature": job.signature, "have": ", ".join(have), "workers": len(takers)},
    )


def _queue_position(context: ExplainContext) -> Reason:
    """Somebody could run it: how many come before it, and is there room?"""
    job, able, ahead = context.job, context.capable_workers(), context.jobs_ahead or 0
    slots, taken = sum(each.concurrency for each in able), sum(each.running for each in able)
    facts: dict[str, Fact] = {"queue": job.queue, "before": ahead, "slots": slots, "taken": taken, "workers": len(able)}
    some = (
        f"{'at least ' if ahead >= MAX_AHEAD else ''}{_format_count(ahead, 'job')} {_choose_verb(ahead, 'is', 'are')}"
    )
    room = f"{_format_count(slots, 'slot')} of {_format_count(len(able), 'worker')}"
    if taken >= slots:
        place = f"{some} before it" if ahead else "it is the next"
        text = f"all {room} are taken, and {place} in queue {job.queue!r}"
        return Reason(kind=ReasonKind.SLOTS_FULL, text=text, facts=facts)
    if ahead:
        text = f"{some} before it in queue {job.queue!r}; {taken:,} of {room} are taken"
        return Reason(kind=ReasonKind.JOBS_BEFORE, text=text, facts=facts)
    ready = context.now - to_us(job.run_at)
    text = "nothing is in its way: it is the next to be started"
    if ready > PROMPT_START_US:
        text += f", though it has been ready for {_format_whole_seconds(ready)}: see the log of its workers"
    return Reason(kind=ReasonKind.NEXT, text=text, facts=facts | {"ready_for": ready / 1_000_000})


def _explain_running(context: ExplainContext) -> Iterator[Reason]:
    job = context.job
    silent = _worker_silent(context)
    if silent is not None:
        yield silent
    for lock in context.locks:
        yield _waits_for_lock(context, lock)
    if job.cancel_requested:
        yield Reason(kind=ReasonKind.CANCELLING, text="it was asked to stop, and has not stopped yet", facts={})
    since = "" if job.started_at is None else f" since {_format_past(to_us(job.started_at), context.now)}"
    facts: dict[str, Fact] = {
        "since": None if job.started_at is None else _to_iso(job.started_at),
        "instance": job.instance,
        "attempt": job.attempt,
    }
    if silent is None:
        text = f"it has been running{since} on instance {job.instance}, attempt {job.attempt}"
        yield Reason(kind=ReasonKind.RUNNING, text=text, facts=facts)


def _worker_silent(context: ExplainContext) -> Reason | None:
    """Its process may be dead, and nobody has said so yet."""
    job = context.job
    owner = next((each for each in context.instances if each.id == job.instance), None)
    if owner is not None and context.silence_us(owner) <= context.dead_after:
        return None
    how = "is gone" if owner is None else f"has been silent for {_format_whole_seconds(context.silence_us(owner))}"
    others = [each for each in context.living_instances() if each.id != job.instance]
    then = "another will free it in some seconds" if others else "nobody is alive to free it: start a worker"
    return Reason(
        kind=ReasonKind.WORKER_SILENT,
        text=f"its worker, instance {job.instance}, {how}: {then}",
        facts={
            "instance": job.instance,
            "silent_for": None if owner is None else context.silence_us(owner) / 1_000_000,
        },
    )


def _waits_for_lock(context: ExplainContext, lock: LockInfo) -> Reason:
    whats = [ticket.what for ticket in lock.waiters]
    place = whats.index(describe_job(context.job.id)) + 1
    facts: dict[str, Fact] = {"lock": lock.name, "place": place, "limit": lock.limit, "per": lock.per}
    head = f"it runs, and waits for lock {lock.name!r} at place {place}"
    if lock.holding < lock.limit and lock.opens_at is not None and lock.per is not None:
        window = f"{lock.limit} per {durations.format_duration(round(lock.per * 1_000_000))}"
        opens = _format_future(to_us(lock.opens_at), context.now)
        text = f"{head}: its rate window ({window}) is full, and opens at {opens}"
        return Reason(kind=ReasonKind.RATE, text=text, facts=facts | {"opens_at": _to_iso(lock.opens_at)})
    before = lock.waiters[place - 2] if place > 1 else None
    holder = lock.holders[0] if lock.holders else None
    ahead = before or holder
    text = head if ahead is None else f"{head} behind {_ticket_holder(ahead)}"
    if holder is not None and holder.granted_at is not None:
        held = f"held it since {_format_past(to_us(holder.granted_at), context.now)}"
        text += f"; {_ticket_holder(holder)} has {held}" if before else f", which has {held}"
    facts |= {
        "behind": None if ahead is None else parse_job(ahead.what),
        "holder": None if holder is None else parse_job(holder.what),
        "owner": None if holder is None else holder.owner,
    }
    return Reason(kind=ReasonKind.LOCK, text=text, facts=facts)


def _ticket_holder(ticket: TicketInfo) -> str:
    return ticket.what or ticket.owner


def _explain_ended(context: ExplainContext) -> Reason:
    job = context.job
    at = job.finished_at
    when = "" if at is None else f" {_format_past(to_us(at), context.now)}"
    error = "" if job.error is None else f" of {_format_error(job.error)}"
    texts = {
        JobState.SUCCEEDED: f"it has ended: it succeeded{when}",
        JobState.CANCELLED: f"it has ended: it was cancelled{when}",
        JobState.DEAD: f"it has ended: it died{error}{when}; `drumbeat dead show {job.id}` tells more",
    }
    return Reason(
        kind=ReasonKind.ENDED,
        text=texts[job.state],
        facts={
            "state": str(job.state),
            "at": None if at is None else _to_iso(at),
            "error": None if job.error is None else _format_error(job.error),
        },
    )


def _to_iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _format_utc(us: int) -> str:
    return f"{from_us(us).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _format_future(us: int, now: int) -> str:
    return f"{_format_utc(us)} (in {durations.format_duration(max(0, us - now))})"


def _format_past(us: int, now: int) -> str:
    return f"{_format_utc(us)} ({_format_ago(us, now)})"


def _format_ago(us: int, now: int) -> str:
    return f"{_format_whole_seconds(max(0, now - us))} ago"


def _format_whole_seconds(us: int) -> str:
    """Whole seconds are enough for how long ago something was."""
    return durations.format_duration(us if us < SECOND_US else us // SECOND_US * SECOND_US)


def _format_error(error: Failure) -> str:
    kind = error.type.rpartition(".")[2]
    return (f"{kind}: {error.message}" if error.message else kind)[:200]


def _format_count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _choose_verb(number: int, one: str, many: str) -> str:
    return one if number == 1 else many
