"""What a job that sleeps, or waits for a signal, waits for. Pure."""

from __future__ import annotations

from datetime import datetime

from drumbeat.core.job import Job
from drumbeat.core.suspension import FOREVER_US, awaited_signal
from drumbeat.durations import to_us


def describe_suspension(suspended: str) -> str:
    """A few words; `suspended` as in a job."""
    signal = awaited_signal(suspended)
    return "asleep" if signal is None else f"waits for the signal {signal!r}"


def never_ends(run_at: datetime) -> bool:
    """Whether a job that is due then waits without a time-out: its moment says nothing to people."""
    return to_us(run_at) >= FOREVER_US


def describe_suspended(job: Job, when: str) -> tuple[str, dict[str, str | None]]:
    """A sentence, and its facts; `when`: its run_at in words."""
    signal = awaited_signal(job.suspended)
    if signal is None:
        return f"it is asleep until {when}: `drumbeat jobs run-now {job.id}` wakes it", {}
    facts: dict[str, str | None] = {"signal": signal}
    until = f" until {when}"
    if never_ends(job.run_at):
        facts["until"], until = None, ""
    return f"it waits for the signal {signal!r}{until}: `drumbeat signal {job.id} {signal}` sends it", facts
