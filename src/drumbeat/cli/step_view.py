"""Steps, sleeps, waits and signals of a job as rows, for `jobs show`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from drumbeat.cli import formatting, output
from drumbeat.cli.output import Column
from drumbeat.core.signals import SignalRecord
from drumbeat.core.step import StepKind, StepRecord

STEPS: output.TextTable[StepRecord] = output.TextTable(
    Column("step", lambda step, _: formatting.format_value(step.name, 60), elastic=True),
    Column("kind", lambda step, _: str(step.kind)),
    Column("state", lambda step, now: _format_state(step, now), elastic=True),
    Column("began at (UTC)", lambda step, now: formatting.format_timestamp(step.started_at, now), drop=2),
    Column("took", lambda step, _: formatting.format_elapsed(step.started_at, step.finished_at), drop=3),
    Column("result", lambda step, _: formatting.format_arguments(step.result or ""), elastic=True, drop=1),
)
SIGNALS: output.TextTable[SignalRecord] = output.TextTable(
    Column("signal", lambda signal, _: formatting.format_value(signal.name, 60), elastic=True),
    Column("read by", lambda signal, _: formatting.format_value(signal.read_by, 60), elastic=True),
    Column("sent at (UTC)", lambda signal, now: formatting.format_timestamp(signal.sent_at, now), drop=2),
    Column("payload", lambda signal, _: formatting.format_arguments(signal.payload), elastic=True, drop=1),
)


def show_steps(steps: Sequence[StepRecord], signals: Sequence[SignalRecord], now: datetime) -> None:
    if steps:
        output.print_line("")
        STEPS.show(steps, now)
    if signals:
        output.print_line("")
        SIGNALS.show(signals, now)


def _format_state(step: StepRecord, now: datetime) -> str:
    if step.kind is StepKind.STEP:
        return "done"
    if step.kind is StepKind.SLEEP:
        is_over = step.until is not None and step.until <= now
        return "over" if is_over else f"until {formatting.format_timestamp(step.until, now)}"
    if step.finished_at is None:
        return f"waits for {formatting.format_value(step.signal, 40)}"
    return "timed out" if step.result is None else f"got {formatting.format_value(step.signal, 40)}"
