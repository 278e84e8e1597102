"""The timeline of a job's steps, sleeps, waits and signals."""

from __future__ import annotations

from datetime import datetime

import msgspec

from drumbeat.core.signals import SignalRecord
from drumbeat.core.step import StepKind, StepRecord
from drumbeat.web.api.job_steps import StepsRecord

from .formatting import between


class RecordView(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the timeline."""

    state: str
    """CSS class and icon."""
    text: str
    at: datetime
    took: str = ""
    until: datetime | None = None
    """Of what has not ended."""
    value: str | None = None
    """JSON text."""


def record_views(recorded: StepsRecord, now: datetime) -> list[RecordView]:
    """Everything in the order in which it began."""
    views = [_step_view(step, now) for step in recorded.steps] + [_signal_view(signal) for signal in recorded.signals]
    return sorted(views, key=lambda view: view.at)


def _step_view(step: StepRecord, now: datetime) -> RecordView:
    if step.kind is StepKind.STEP:
        took = between(step.started_at, step.finished_at) if step.finished_at else ""
        return RecordView(
            state="succeeded", text=f"step {step.name!r}", at=step.started_at, took=took, value=step.result
        )
    if step.kind is StepKind.SLEEP and step.until is not None and step.until <= now:
        took = between(step.started_at, step.until)
        return RecordView(state="succeeded", text=f"sleep {step.name!r}", at=step.started_at, took=took)
    if step.kind is StepKind.SLEEP:
        return RecordView(state="suspended", text=f"sleep {step.name!r}", at=step.started_at, until=step.until)
    text, took = f"wait {step.name!r} for the signal {step.signal!r}", ""
    if step.finished_at is not None:
        took = between(step.started_at, step.finished_at)
        text += " timed out" if step.result is None else ""
    is_late = step.finished_at is not None and step.result is None
    until = step.until if step.finished_at is None else None
    state = "failed" if is_late else "suspended" if step.finished_at is None else "succeeded"
    return RecordView(state=state, text=text, at=step.started_at, took=took, until=until, value=step.result)


def _signal_view(signal: SignalRecord) -> RecordView:
    read = "not read yet" if signal.read_by is None else f"read by the wait {signal.read_by!r}"
    return RecordView(
        state="ready", text=f"signal {signal.name!r} received, {read}", at=signal.sent_at, value=signal.payload
    )
