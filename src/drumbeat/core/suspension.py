"""How a run ends by a sleep or a wait, to be continued by a later run of the same job."""

from enum import StrEnum

import msgspec

FOREVER_US = 221_845_392_000_000_000
"""When a wait without a time-out ends: in the year 9000."""


class StepKind(StrEnum):
    STEP = "step"  # a function that has returned
    SLEEP = "sleep"  # until a moment
    WAIT = "wait"  # for a signal


class Suspension(msgspec.Struct, frozen=True, kw_only=True):
    """What the run that ends goes on record with: a sleep, or a wait for a signal."""

    kind: StepKind
    name: str
    signal: str | None = None
    """The name of the signal that is waited for."""
    until: int | None = None
    """When the job is due again at the latest (µs); None: `Outcome.delay` after the store's now."""

    @property
    def label(self) -> str:
        """`Job.suspended` of a job that is suspended by this."""
        return StepKind.SLEEP.value if self.signal is None else suspended_on(self.signal)


def awaited_signal(suspended: str | None) -> str | None:
    """The name of the signal that a job with this `suspended` waits for; None: it waits for none."""
    return suspended.removeprefix("signal:") if suspended is not None and suspended.startswith("signal:") else None


def suspended_on(signal: str) -> str:
    """`Job.suspended` of a job that waits for this signal."""
    return f"signal:{signal}"
