"""Jobs, fires and previews as pieces of a lane or a strip: when, how it went, what is said of it. Pure, free of HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from statistics import median

import msgspec

from drumbeat.durations import to_us
from drumbeat.model.job import JobState
from drumbeat.model.schedule import FireOutcome
from drumbeat.nouns import FireInfo
from drumbeat.web.api.records import JobRecord

from .lanes import Piece
from .showing import exact, first_line, span

KINDS = {
    JobState.SUCCEEDED: "succeeded",
    JobState.DEAD: "dead",
    JobState.CANCELLED: "cancelled",
    JobState.RUNNING: "running",
    JobState.PENDING: "waiting",
}


class Lateness(msgspec.Struct, frozen=True, kw_only=True):
    """How long after their moment runs began, in seconds; of those that were not tried before."""

    count: int
    usual: float | None
    worst: float | None


def of_job(job: JobRecord, now: datetime, href: str) -> Piece:
    """A job as one piece: from the start of its last run to its end, or to now."""
    first = job.started_at or job.run_at
    last = job.finished_at or (now if job.state is JobState.RUNNING else first)
    lines = [exact(first), _story(job, first, last)]
    if (late := late_by(job)) is not None and late >= 0.001:
        lines.append(f"{span(late)} after its moment")
    if job.error is not None:
        lines.append(first_line(f"{job.error.type}: {job.error.message}", 80))
    return Piece(
        first=to_us(first), last=max(to_us(first), to_us(last)), kind=kind_of(job), title="\n".join(lines), href=href
    )


def kind_of(job: JobRecord) -> str:
    """The class of its bar: a pending job that failed before is failed, not waiting."""
    return "failed" if job.view == "retrying" else KINDS[job.state]


def _story(job: JobRecord, first: datetime, last: datetime) -> str:
    took = span((last - first).total_seconds())
    if job.state is JobState.RUNNING:
        return f"running for {took}, attempt {job.attempt}"
    if job.started_at is None or job.finished_at is None:
        return job.view
    tried = f", attempt {job.attempt}" if job.attempt > 1 else ""
    return f"{job.view} in {took}{tried}"


def of_fire(fire: FireInfo, now: datetime, job_href: str, href: str) -> Piece:
    """A moment and what became of its job; `href` is the schedule's, for a moment without one."""
    if fire.outcome is FireOutcome.SKIPPED:
        return _missed(fire, href)
    first = fire.started_at or fire.at
    last = fire.finished_at or (now if fire.state is JobState.RUNNING else first)
    took = span((last - first).total_seconds())
    kind = "unknown" if fire.state is None else KINDS[fire.state]
    word = {"unknown": "its job is no longer on record", "waiting": "pending"}.get(kind, kind)
    if fire.state is JobState.PENDING and fire.error is not None:
        kind, word = "failed", f"failed, attempt {fire.attempt} is next"
    elif fire.state is JobState.RUNNING:
        word = f"running for {took}, attempt {fire.attempt}"
    elif fire.started_at is not None and fire.finished_at is not None:
        word = f"{kind} in {took}" + (f", attempt {fire.attempt}" if (fire.attempt or 1) > 1 else "")
    lines = [exact(first), word]
    if (late := late_of(fire)) is not None and late >= 0.001:
        lines.append(f"{span(late)} after its moment")
    if fire.error is not None:
        lines.append(first_line(f"{fire.error.type}: {fire.error.message}", 80))
    start = to_us(first)
    return Piece(first=start, last=max(start, to_us(last)), kind=kind, title="\n".join(lines), href=job_href or href)


def late_of(fire: FireInfo) -> float | None:
    """Seconds from the moment to the start of its first run; None: it has not begun, or was tried before."""
    if fire.started_at is None or fire.attempt != 1:
        return None
    return max(0.0, (fire.started_at - fire.at).total_seconds())


def _missed(fire: FireInfo, href: str) -> Piece:
    """A moment, or a stretch of them, that was not fired."""
    if fire.count == 1:
        text = f"{exact(fire.at)}\nmissed: {fire.reason}"
    else:
        text = f"{exact(fire.at)}\nto {exact(fire.last)}\n{fire.count:,} moments missed: {fire.reason}"
    return Piece(first=to_us(fire.at), last=to_us(fire.last), kind="missed", title=text, href=href, count=fire.count)


def of_moment(at: datetime, note: str, href: str) -> Piece:
    """A moment to come."""
    text = f"{exact(at)}\nto come" + (f"\n{note}" if note else "")
    return Piece(first=to_us(at), last=to_us(at), kind="future", title=text, href=href)


def unseen(first: int, until: int, href: str) -> Piece:
    """The part of a lane that would hold more runs than are drawn."""
    return Piece(
        first=first,
        last=until,
        kind="unseen",
        title="Runs before this are not drawn: choose a shorter range",
        href=href,
    )


def late_by(job: JobRecord) -> float | None:
    """Seconds from the moment it was meant for to its start; None: it has not begun, or was tried before."""
    if job.started_at is None or job.failures or job.crashes:
        return None
    return max(0.0, (job.started_at - job.due_at).total_seconds())


def lateness(fires: Iterable[FireInfo]) -> Lateness:
    found = [late for fire in fires if (late := late_of(fire)) is not None]
    return Lateness(count=len(found), usual=median(found) if found else None, worst=max(found, default=None))


def tally(pieces: Sequence[Piece]) -> str:
    """A strip in words, for whoever cannot see it."""
    if not pieces:
        return "no runs yet"
    numbers: dict[str, int] = {}
    for piece in pieces:
        numbers[piece.kind] = numbers.get(piece.kind, 0) + piece.count
    return ", ".join(f"{number:,} {kind}" for kind, number in numbers.items())
