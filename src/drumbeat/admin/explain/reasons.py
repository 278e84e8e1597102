"""Why is a job not running? A pure function of what `context.py` read from the store.

It gives every reason that holds, the decisive one first. A reason has a kind for programs, a sentence for people, and the facts
of that sentence. Errors in it are redacted. Sentences contain names from the store: escape them before display.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from difflib import get_close_matches

from drumbeat.admin.explain.context import MAX_AHEAD, ExplainContext
from drumbeat.admin.explain.limited import explain_limits, name_group
from drumbeat.admin.explain.parents import cancelled_because, explain_cancelled_workflow, explain_parents
from drumbeat.admin.explain.reason import Explanation, Fact, Reason, ReasonKind
from drumbeat.admin.explain.suspended import describe_suspended
from drumbeat.core.dependencies import failed_parent
from drumbeat.core.instance import Instance
from drumbeat.core.job import JobState
from drumbeat.core.lock import LockInfo, TicketInfo, describe_job, parse_job
from drumbeat.durations import SECOND_US, format_ago, format_length, format_utc, from_us, to_iso, to_us
from drumbeat.plural import format_count
from drumbeat.redaction import format_error

PROMPT_START_US = 5_000_000
"""A job that nothing blocks starts sooner than this."""


def explain(context: ExplainContext) -> Explanation:
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
        for reason in (
            *explain_parents(context.job, context.parents),
            explain_cancelled_workflow(context.workflow, context.now),
            _not_due(context),
            _behind_job(context),
            _queue_paused(context),
            _no_capable_worker(context),
            *explain_limits(context.job, context.limits, context.jobs_ahead or 0, context.now),
        )
        if reason is not None
    ]
    yield from found or [_queue_position(context)]


def _not_due(context: ExplainContext) -> Reason | None:
    job = context.job
    if to_us(job.run_at) <= context.now:
        return None
    facts: dict[str, Fact] = {"until": to_iso(job.run_at)}
    when = _format_when(job.run_at, context.now)
    if job.suspended is not None:
        text, more = describe_suspended(job, when)
        kind = ReasonKind.SIGNAL if "signal" in more else ReasonKind.ASLEEP
        return Reason(kind=kind, text=text, facts={**facts, **more})
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
    crashed = f", after {format_count(job.crashes, 'crash', 'crashes')} of its worker" if job.crashes else ""
    last = "" if error is None else f"; the last run ended with {format_error(error)}"
    facts |= {
        "attempt": job.attempt,
        "of": of,
        "crashes": job.crashes,
        "error": None if error is None else format_error(error),
    }
    return Reason(kind=ReasonKind.RETRYING, text=f"{count} comes at {when}{crashed}{last}", facts=facts)


def _behind_job(context: ExplainContext) -> Reason | None:
    schedule = context.schedule
    if schedule is None:
        return None
    name, before = schedule.name, schedule.current
    facts: dict[str, Fact] = {"schedule": name, "behind": before, "overlap": str(schedule.definition.overlap)}
    if before is None:
        text = f"it waits for schedule {name!r}, whose job before it has ended: a controller starts it within seconds"
    else:
        text = f"it waits for schedule {name!r} behind job {before}, which has not ended"
    return Reason(kind=ReasonKind.BEHIND_JOB, text=text, facts=facts)


def _queue_paused(context: ExplainContext) -> Reason | None:
    queue = context.queue
    if queue is None or not queue.paused:
        return None
    by = f" by {queue.paused_by}" if queue.paused_by else ""
    since = "" if queue.paused_at is None else f" {format_ago(queue.paused_at, context.now)}"
    reason = f" ({queue.paused_reason})" if queue.paused_reason else ""
    return Reason(
        kind=ReasonKind.QUEUE_PAUSED,
        text=f"queue {queue.name!r} was paused{by}{since}{reason}: `drumbeat queues resume {queue.name}` lets it go on",
        facts={
            "queue": queue.name,
            "by": queue.paused_by,
            "reason": queue.paused_reason,
            "since": None if queue.paused_at is None else to_iso(queue.paused_at),
        },
    )


def _no_capable_worker(context: ExplainContext) -> Reason | None:
    workers, takers = context.workers(), context.queue_workers()
    if not workers:
        return _no_worker(context)
    if not takers:
        queues = sorted({queue for worker in workers for queue in worker.queues})
        have = (
            f"{format_count(len(workers), 'worker')} {_choose_verb(len(workers), 'takes', 'take')} {', '.join(queues)}"
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
        last = format_ago(max(each.beat_at for each in silent), context.now)
        text += f"; {format_count(len(silent), 'process', 'processes')} fell silent, the last one {last}"
    facts: dict[str, Fact] = {"instances": len(context.living_instances()), "silent": len(silent)}
    return Reason(kind=ReasonKind.NO_WORKER, text=text, facts=facts)


def _unknown_task(context: ExplainContext, takers: Sequence[Instance]) -> Reason:
    job = context.job
    near = get_close_matches(job.task, sorted({task for taker in takers for task in taker.tasks}), n=1)
    elsewhere = sorted({queue for each in context.workers() if job.task in each.tasks for queue in each.queues})
    text = f"no living worker of queue {job.queue!r} knows task {job.task!r}: there {_choose_verb(len(takers), 'is', 'are')} "
    text += format_count(len(takers), "worker")
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
    """A worker could run it: how many jobs are ahead, and are slots free?"""
    job, able, ahead = context.job, context.capable_workers(), context.jobs_ahead or 0
    slots, taken = sum(each.concurrency for each in able), sum(each.running for each in able)
    facts: dict[str, Fact] = {"queue": job.queue, "before": ahead, "slots": slots, "taken": taken, "workers": len(able)}
    some = f"{'at least ' if ahead >= MAX_AHEAD else ''}{format_count(ahead, 'job')} {_choose_verb(ahead, 'is', 'are')}"
    room = f"{format_count(slots, 'slot')} of {format_count(len(able), 'worker')}"
    where = f"queue {job.queue!r}"
    if job.lane:  # those before it are of its group
        where = name_group(job)
        facts["group"] = job.group
    if taken >= slots:
        place = f"{some} before it" if ahead else "it is the next"
        text = f"all {room} are taken, and {place} in {where}"
        return Reason(kind=ReasonKind.SLOTS_FULL, text=text, facts=facts)
    if ahead:
        text = f"{some} before it in {where}; {taken:,} of {room} are taken"
        return Reason(kind=ReasonKind.JOBS_BEFORE, text=text, facts=facts)
    ready = context.now - to_us(job.run_at)
    text = "nothing blocks it: it is the next to start"
    if ready > PROMPT_START_US:
        text += f", though it has been ready for {format_length(ready // SECOND_US * SECOND_US)}: see the log of its workers"
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
    if (cancelled := explain_cancelled_workflow(context.workflow, context.now)) is not None:
        yield cancelled
    since = "" if job.started_at is None else f" since {_format_when(job.started_at, context.now)}"
    facts: dict[str, Fact] = {
        "since": None if job.started_at is None else to_iso(job.started_at),
        "instance": job.instance,
        "attempt": job.attempt,
    }
    if silent is None:
        text = f"it has been running{since} on instance {job.instance}, attempt {job.attempt}"
        yield Reason(kind=ReasonKind.RUNNING, text=text, facts=facts)


def _worker_silent(context: ExplainContext) -> Reason | None:
    """Its process may have died without being declared dead yet."""
    job = context.job
    owner = next((each for each in context.instances if each.id == job.instance), None)
    if owner is not None and context.silence_us(owner) <= context.dead_after:
        return None
    how = "is gone" if owner is None else f"has been silent for {format_length(context.silence_us(owner))}"
    others = [each for each in context.living_instances() if each.id != job.instance]
    then = (
        "another instance will free the job within seconds" if others else "nobody is alive to free it: start a worker"
    )
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
        window = f"{lock.limit} per {format_length(round(lock.per * 1_000_000))}"
        opens = _format_when(lock.opens_at, context.now)
        text = f"{head}: its rate window ({window}) is full, and opens at {opens}"
        return Reason(kind=ReasonKind.RATE, text=text, facts=facts | {"opens_at": to_iso(lock.opens_at)})
    before = lock.waiters[place - 2] if place > 1 else None
    holder = lock.holders[0] if lock.holders else None
    ahead = before or holder
    text = head if ahead is None else f"{head} behind {_ticket_holder(ahead)}"
    if holder is not None and holder.granted_at is not None:
        held = f"held it since {_format_when(holder.granted_at, context.now)}"
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
    when = "" if at is None else f" {_format_when(at, context.now)}"
    error = "" if job.error is None else f" of {format_error(job.error)}"
    texts = {
        JobState.SUCCEEDED: f"it has ended: it succeeded{when}",
        JobState.CANCELLED: f"it has ended: it was cancelled{when}{cancelled_because(job, context.workflow)}",
        JobState.EXPIRED: f"it has expired{when}: it had to start before {_format_expiry(job.expires_at)}, and did not",
        JobState.DEAD: f"it has ended: it died{error}{when}; `drumbeat dead show {job.id}` tells more",
    }
    facts: dict[str, Fact] = {
        "state": str(job.state),
        "at": None if at is None else to_iso(at),
        "error": None if job.error is None else format_error(job.error),
    }
    if (parent := failed_parent(job.error)) is not None:
        facts["parent"] = parent
    if context.workflow is not None:
        facts["workflow"] = context.workflow.id
    return Reason(kind=ReasonKind.ENDED, text=texts[job.state], facts=facts)


def _format_expiry(at: datetime | None) -> str:
    return "its time" if at is None else format_utc(at)


def _format_when(at: datetime, now: int) -> str:
    return f"{format_utc(at)} ({format_ago(at, now)})"


def _choose_verb(number: int, one: str, many: str) -> str:
    return one if number == 1 else many
