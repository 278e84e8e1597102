"""Runs, fires and previews as items of a lane or a strip: time, style and title. Pure, free of HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from statistics import median

import msgspec

from drumbeat.admin import FireInfo, Run
from drumbeat.admin.views import new_run
from drumbeat.core.job import JobState
from drumbeat.core.schedule import FireOutcome
from drumbeat.durations import to_us
from drumbeat.web.api.records import JobRecord

from .formatting import exact, first_line, span
from .timeline_layout import TimelineItem

RUN_STYLES = {
    "succeeded": ("succeeded", "succeeded"),
    "retry": ("failed", "failed"),
    "dead": ("dead", "failed, no retries left"),
    "crashed": ("failed", "crashed"),
    "cancelled": ("cancelled", "cancelled"),
    "expired": ("cancelled", "expired"),
    "snoozed": ("cancelled", "snoozed"),
    "suspended": ("cancelled", "suspended"),
    "released": ("cancelled", "released"),
    "blocked": ("cancelled", "blocked"),
    "running": ("running", "running"),
}
"""By outcome: the CSS class of its bar, and its words."""
LATE_REASON = "late"
SKIP_REASONS = {
    LATE_REASON: "not fired in time (catch_up, max_late)",
    "overlap": "the previous run was still live (overlap)",
    "paused": "the schedule was paused",
    "caught up": "only the latest fire ran (catch_up)",
    "limit": "more fires than catch_up_limit",
}
"""Why a fire was skipped. Only late ones are missed; the others follow the schedule's policies."""
STATE_STYLES = {
    JobState.SUCCEEDED: "succeeded",
    JobState.DEAD: "dead",
    JobState.CANCELLED: "cancelled",
    JobState.EXPIRED: "cancelled",
    JobState.RUNNING: "running",
    JobState.PENDING: "waiting",
}


class Lateness(msgspec.Struct, frozen=True, kw_only=True):
    """Start delay of first attempts, in seconds."""

    count: int
    usual: float | None
    worst: float | None


def last_run(job: JobRecord) -> list[Run]:
    """The last or current run, from the job's record."""
    if job.started_at is None or job.state is JobState.PENDING:
        return []
    ended = None if job.state is JobState.RUNNING else job.finished_at
    return [new_run(job, job.attempt, str(job.state), job.started_at, ended, job.instance, job.error)]


def run_item(run: Run, now: datetime, href: str) -> TimelineItem:
    """One run, from its start to its end, or to now."""
    first = run.started_at or run.finished_at or run.due_at
    last = run.finished_at or now
    took = span((last - first).total_seconds())
    kind, word = RUN_STYLES.get(run.outcome, ("unknown", run.outcome))
    story = f"{word} for {took}" if kind == "running" else f"{word} in {took}" if run.started_at else word
    lines = [exact(first), story if run.number == 1 else f"{story}, run {run.number}"]
    if run.number == 1 and run.late is not None and run.late >= 0.001:
        lines.append(f"started {span(run.late)} late")
    if run.error is not None:
        lines.append(first_line(f"{run.error.type}: {run.error.message}", 80))
    return TimelineItem(
        first=to_us(first), last=max(to_us(first), to_us(last)), kind=kind, title="\n".join(lines), href=href
    )


def pending_item(job: JobRecord, href: str) -> TimelineItem:
    """A pending job, at its due time."""
    first = to_us(job.run_at)
    return TimelineItem(first=first, last=first, kind="waiting", title=f"{exact(job.run_at)}\n{job.view}", href=href)


def fire_item(fire: FireInfo, now: datetime, job_href: str, href: str) -> TimelineItem:
    """A fire and its job; `href` is the schedule's, for a fire without a job."""
    if fire.outcome is FireOutcome.SKIPPED:
        return _skipped_item(fire, href)
    first = fire.started_at or fire.at
    last = fire.finished_at or (now if fire.state is JobState.RUNNING else first)
    took = span((last - first).total_seconds())
    kind = "unknown" if fire.state is None else STATE_STYLES[fire.state]
    word = {"unknown": "its job has been pruned", "waiting": "pending"}.get(kind, kind)
    if fire.state is JobState.PENDING and fire.error is not None:
        kind, word = "failed", f"failed, attempt {fire.attempt} is next"
    elif fire.state is JobState.EXPIRED:
        word = "expired: it did not start in time"
    elif fire.state is JobState.RUNNING:
        word = f"running for {took}, attempt {fire.attempt}"
    elif fire.started_at is not None and fire.finished_at is not None:
        word = f"{kind} in {took}" + (f", attempt {fire.attempt}" if (fire.attempt or 1) > 1 else "")
    lines = [exact(first), word]
    if (late := start_delay(fire)) is not None and late >= 0.001:
        lines.append(f"started {span(late)} late")
    if fire.error is not None:
        lines.append(first_line(f"{fire.error.type}: {fire.error.message}", 80))
    start = to_us(first)
    return TimelineItem(
        first=start, last=max(start, to_us(last)), kind=kind, title="\n".join(lines), href=job_href or href
    )


def start_delay(fire: FireInfo) -> float | None:
    """Seconds from the fire time to the start of the first run; None: not started, or a later attempt."""
    if fire.started_at is None or fire.attempt != 1:
        return None
    return max(0.0, (fire.started_at - fire.at).total_seconds())


def _skipped_item(fire: FireInfo, href: str) -> TimelineItem:
    """A fire, or an interval of fires, that was skipped."""
    kind = "missed" if fire.reason == LATE_REASON else "skipped"
    reason = SKIP_REASONS.get(fire.reason, fire.reason)
    if fire.count == 1:
        text = f"{exact(fire.at)}\n{kind}: {reason}"
    else:
        text = f"{exact(fire.at)}\nto {exact(fire.last)}\n{fire.count:,} fires {kind}: {reason}"
    return TimelineItem(first=to_us(fire.at), last=to_us(fire.last), kind=kind, title=text, href=href, count=fire.count)


def upcoming_item(at: datetime, note: str, href: str) -> TimelineItem:
    """A future fire."""
    text = f"{exact(at)}\nupcoming" + (f"\n{note}" if note else "")
    return TimelineItem(first=to_us(at), last=to_us(at), kind="upcoming", title=text, href=href)


def unread_item(first: int, until: int, href: str) -> TimelineItem:
    """The part of a lane whose runs are not loaded."""
    return TimelineItem(
        first=first,
        last=until,
        kind="unread",
        title="Earlier runs are not loaded: choose a shorter range",
        href=href,
    )


def summarize_lateness(fires: Iterable[FireInfo]) -> Lateness:
    found = [late for fire in fires if (late := start_delay(fire)) is not None]
    return Lateness(count=len(found), usual=median(found) if found else None, worst=max(found, default=None))


def describe_items(pieces: Sequence[TimelineItem]) -> str:
    """A strip in words, for screen readers."""
    if not pieces:
        return "no runs yet"
    numbers: dict[str, int] = {}
    for piece in pieces:
        numbers[piece.kind] = numbers.get(piece.kind, 0) + piece.count
    return ", ".join(f"{number:,} {kind}" for kind, number in numbers.items())
