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
from drumbeat.durations import from_us, to_us
from drumbeat.ids import JobId
from drumbeat.model.instance import Instance
from drumbeat.model.job import Failure, JobState
from drumbeat.model.lock import LockInfo, TicketInfo, for_job, job_of

from .circumstances import MOST_AHEAD, Circumstances

SECOND_US = 1_000_000
AT_ONCE_US = 5_000_000
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


def explain(around: Circumstances) -> Explanation:
    """The answer."""
    job = around.job
    if job.state is JobState.PENDING:
        reasons = list(_pending(around))
    elif job.state is JobState.RUNNING:
        reasons = list(_running(around))
    else:
        reasons = [_ended(around)]
    now = from_us(around.now)
    return Explanation(job=job.id, view=str(job.view(now)), at=now, reasons=reasons)


def _pending(around: Circumstances) -> Iterator[Reason]:
    found = [
        reason for reason in (_in_time(around), _behind(around), _paused(around), _nobody(around)) if reason is not None
    ]
    yield from found or [_in_line(around)]


def _in_time(around: Circumstances) -> Reason | None:
    job = around.job
    if to_us(job.run_at) <= around.now:
        return None
    facts: dict[str, Fact] = {"until": _iso(job.run_at)}
    when = _when(to_us(job.run_at), around.now)
    if job.failures or job.crashes:
        return _retrying(around, when, facts)
    if job.token:  # it was claimed before, and nothing was charged
        text = f"it was put off until {when}: by Snooze, or because what it needs is away"
        return Reason(kind=ReasonKind.NOT_DUE, text=text, facts=facts | {"put_off": True})
    return Reason(kind=ReasonKind.NOT_DUE, text=f"it is not due before {when}", facts=facts | {"put_off": False})


def _retrying(around: Circumstances, when: str, facts: dict[str, Fact]) -> Reason:
    job, error = around.job, around.error
    of = None if around.retries is None else around.retries + 1
    count = f"attempt {job.attempt}" if of is None else f"attempt {job.attempt} of {of}"
    crashed = f", after {_count(job.crashes, 'crash', 'crashes')} of its worker" if job.crashes else ""
    last = "" if error is None else f"; the last run ended with {_error(error)}"
    facts |= {
        "attempt": job.attempt,
        "of": of,
        "crashes": job.crashes,
        "error": None if error is None else _error(error),
    }
    return Reason(kind=ReasonKind.RETRYING, text=f"{count} comes at {when}{crashed}{last}", facts=facts)


def _behind(around: Circumstances) -> Reason | None:
    schedule = around.schedule
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


def _paused(around: Circumstances) -> Reason | None:
    queue = around.queue
    if queue is None or not queue.paused:
        return None
    by = f" by {queue.paused_by}" if queue.paused_by else ""
    since = "" if queue.paused_at is None else f" {_ago(to_us(queue.paused_at), around.now)}"
    why = f" ({queue.paused_why})" if queue.paused_why else ""
    return Reason(
        kind=ReasonKind.QUEUE_PAUSED,
        text=f"queue {queue.name!r} was paused{by}{since}{why}: `drumbeat queues resume {queue.name}` lets it go on",
        facts={
            "queue": queue.name,
            "by": queue.paused_by,
            "why": queue.paused_why,
            "since": None if queue.paused_at is None else _iso(queue.paused_at),
        },
    )


def _nobody(around: Circumstances) -> Reason | None:
    """No worker that could run it."""
    workers, takers = around.workers(), around.takers()
    if not workers:
        return _no_worker(around)
    if not takers:
        queues = sorted({queue for worker in workers for queue in worker.queues})
        have = f"{_count(len(workers), 'worker')} {_verb(len(workers), 'takes', 'take')} {', '.join(queues)}"
        text = f"no living worker takes queue {around.job.queue!r}: {have}"
        return Reason(
            kind=ReasonKind.NO_WORKER_FOR_QUEUE,
            text=text,
            facts={"queue": around.job.queue, "workers": len(workers), "taken": ", ".join(queues)},
        )
    if around.able():
        return None
    if any(around.job.task in taker.tasks for taker in takers):
        return _other_version(around, takers)
    return _unknown_task(around, takers)


def _no_worker(around: Circumstances) -> Reason:
    silent = [each for each in around.instances if each not in around.living()]
    text = "no worker is alive: `drumbeat run module:attr` starts one"
    if around.living():
        text = "only controllers are alive, and no worker: `drumbeat run module:attr --role worker` starts one"
    if silent:
        longest = min(around.silence(each) for each in silent)
        text += f"; {_count(len(silent), 'process', 'processes')} fell silent, the last one {_coarse(longest)} ago"
    facts: dict[str, Fact] = {"instances": len(around.living()), "silent": len(silent)}
    return Reason(kind=ReasonKind.NO_WORKER, text=text, facts=facts)


def _unknown_task(around: Circumstances, takers: Sequence[Instance]) -> Reason:
    job = around.job
    near = get_close_matches(job.task, sorted({task for taker in takers for task in taker.tasks}), n=1)
    elsewhere = sorted({queue for each in around.workers() if job.task in each.tasks for queue in each.queues})
    text = f"no living worker of queue {job.queue!r} knows task {job.task!r}: there {_verb(len(takers), 'is', 'are')} "
    text += _count(len(takers), "worker")
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


def _other_version(around: Circumstances, takers: Sequence[Instance]) -> Reason:
    job = around.job
    have = sorted({taker.tasks[job.task] for taker in takers if job.task in taker.tasks})
    return Reason(
        kind=ReasonKind.OTHER_VERSION,
        text=f"its arguments are those of another version of task {job.task!r} ({job.signature}); "
        f"the living workers have only {', '.join(have)}: start one of that version, or register an upgrade",
        facts={"task": job.task, "signature": job.signature, "have": ", ".join(have), "workers": len(takers)},
    )


def _in_line(around: Circumstances) -> Reason:
    """Somebody could run it: how many come before it, and is there room?"""
    job, able, ahead = around.job, around.able(), around.ahead or 0
    slots, taken = sum(each.concurrency for each in able), sum(each.running for each in able)
    facts: dict[str, Fact] = {"queue": job.queue, "before": ahead, "slots": slots, "taken": taken, "workers": len(able)}
    some = f"{'at least ' if ahead >= MOST_AHEAD else ''}{_count(ahead, 'job')} {_verb(ahead, 'is', 'are')}"
    room = f"{_count(slots, 'slot')} of {_count(len(able), 'worker')}"
    if taken >= slots:
        place = f"{some} before it" if ahead else "it is the next"
        text = f"all {room} are taken, and {place} in queue {job.queue!r}"
        return Reason(kind=ReasonKind.SLOTS_FULL, text=text, facts=facts)
    if ahead:
        text = f"{some} before it in queue {job.queue!r}; {taken:,} of {room} are taken"
        return Reason(kind=ReasonKind.JOBS_BEFORE, text=text, facts=facts)
    ready = around.now - to_us(job.run_at)
    text = "nothing is in its way: it is the next to be started"
    if ready > AT_ONCE_US:
        text += f", though it has been ready for {_coarse(ready)}: see the log of its workers"
    return Reason(kind=ReasonKind.NEXT, text=text, facts=facts | {"ready_for": ready / 1_000_000})


def _running(around: Circumstances) -> Iterator[Reason]:
    job = around.job
    silent = _silent(around)
    if silent is not None:
        yield silent
    for lock in around.locks:
        yield _waiting(around, lock)
    if job.cancel_requested:
        yield Reason(kind=ReasonKind.CANCELLING, text="it was asked to stop, and has not stopped yet", facts={})
    since = "" if job.started_at is None else f" since {_since(to_us(job.started_at), around.now)}"
    facts: dict[str, Fact] = {
        "since": None if job.started_at is None else _iso(job.started_at),
        "instance": job.instance,
        "attempt": job.attempt,
    }
    if silent is None:
        text = f"it has been running{since} on instance {job.instance}, attempt {job.attempt}"
        yield Reason(kind=ReasonKind.RUNNING, text=text, facts=facts)


def _silent(around: Circumstances) -> Reason | None:
    """Its process may be dead, and nobody has said so yet."""
    job = around.job
    owner = next((each for each in around.instances if each.id == job.instance), None)
    if owner is not None and around.silence(owner) <= around.dead_after:
        return None
    how = "is gone" if owner is None else f"has been silent for {_coarse(around.silence(owner))}"
    others = [each for each in around.living() if each.id != job.instance]
    then = "another will free it in some seconds" if others else "nobody is alive to free it: start a worker"
    return Reason(
        kind=ReasonKind.WORKER_SILENT,
        text=f"its worker, instance {job.instance}, {how}: {then}",
        facts={"instance": job.instance, "silent_for": None if owner is None else around.silence(owner) / 1_000_000},
    )


def _waiting(around: Circumstances, lock: LockInfo) -> Reason:
    whats = [ticket.what for ticket in lock.waiters]
    place = whats.index(for_job(around.job.id)) + 1
    facts: dict[str, Fact] = {"lock": lock.name, "place": place, "limit": lock.limit, "per": lock.per}
    head = f"it runs, and waits for lock {lock.name!r} at place {place}"
    if lock.holding < lock.limit and lock.opens_at is not None and lock.per is not None:
        window = f"{lock.limit} per {durations.text(round(lock.per * 1_000_000))}"
        opens = _when(to_us(lock.opens_at), around.now)
        text = f"{head}: its rate window ({window}) is full, and opens at {opens}"
        return Reason(kind=ReasonKind.RATE, text=text, facts=facts | {"opens_at": _iso(lock.opens_at)})
    before = lock.waiters[place - 2] if place > 1 else None
    holder = lock.holders[0] if lock.holders else None
    ahead = before or holder
    text = head if ahead is None else f"{head} behind {_who(ahead)}"
    if holder is not None and holder.granted_at is not None:
        held = f"held it since {_since(to_us(holder.granted_at), around.now)}"
        text += f"; {_who(holder)} has {held}" if before else f", which has {held}"
    facts |= {
        "behind": None if ahead is None else job_of(ahead.what),
        "holder": None if holder is None else job_of(holder.what),
        "owner": None if holder is None else holder.owner,
    }
    return Reason(kind=ReasonKind.LOCK, text=text, facts=facts)


def _who(ticket: TicketInfo) -> str:
    return ticket.what or ticket.owner


def _ended(around: Circumstances) -> Reason:
    job = around.job
    at = job.finished_at
    when = "" if at is None else f" {_since(to_us(at), around.now)}"
    error = "" if job.error is None else f" of {_error(job.error)}"
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
            "at": None if at is None else _iso(at),
            "error": None if job.error is None else _error(job.error),
        },
    )


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _clock(us: int) -> str:
    return f"{from_us(us).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _when(us: int, now: int) -> str:
    return f"{_clock(us)} (in {durations.text(max(0, us - now))})"


def _since(us: int, now: int) -> str:
    return f"{_clock(us)} ({_ago(us, now)})"


def _ago(us: int, now: int) -> str:
    return f"{_coarse(max(0, now - us))} ago"


def _coarse(us: int) -> str:
    """Whole seconds are enough for how long ago something was."""
    return durations.text(us if us < SECOND_US else us // SECOND_US * SECOND_US)


def _error(error: Failure) -> str:
    kind = error.type.rpartition(".")[2]
    return (f"{kind}: {error.message}" if error.message else kind)[:200]


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _verb(number: int, one: str, many: str) -> str:
    return one if number == 1 else many
