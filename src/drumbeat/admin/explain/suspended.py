"""What a job that sleeps, or waits for a signal, waits for. Pure."""

from __future__ import annotations

from drumbeat.core.job import Job
from drumbeat.core.suspension import FOREVER_US, awaited_signal
from drumbeat.durations import to_us


def describe_suspended(job: Job, when: str) -> tuple[str, dict[str, str | None]]:
    """A sentence, and its facts; `when`: its run_at in words."""
    signal = awaited_signal(job.suspended)
    if signal is None:
        return f"it is asleep until {when}: `drumbeat jobs run-now {job.id}` wakes it", {}
    facts: dict[str, str | None] = {"signal": signal}
    until = f" until {when}"
    if to_us(job.run_at) >= FOREVER_US:
        facts["until"], until = None, ""
    return f"it waits for the signal {signal!r}{until}: `drumbeat signal {job.id} {signal}` sends it", facts
