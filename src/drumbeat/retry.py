"""The delays of retries, and the signals by which task code controls its own job.

A signal ends the attempt in a chosen way and is not an error. The delay before the n-th retry is random between 0 and
min(cap, base * 2**n). `worker/result.py` turns signals into outcomes.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from drumbeat.durations import Duration, format_length, microseconds
from drumbeat.errors import ConfigError


class Signal(Exception):
    """The base of the signals; only the runner catches them."""

    message: str = ""

    def __str__(self) -> str:
        return self.message


class SkipRetry(Signal):
    """Make the job a dead letter at once, whatever retries are left."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message


class RetryLater(Signal):
    """This attempt failed and is charged; if a retry is left, run it after this delay instead of the backoff's."""

    def __init__(self, delay: Duration, message: str = "") -> None:
        super().__init__(delay, message)
        self.delay_us = microseconds(delay, name="RetryLater.delay")
        self.message = message or f"retry in {format_length(self.delay_us)}"


class Snooze(Signal):
    """Not yet: run the job again after this delay, without charge, any number of times."""

    def __init__(self, delay: Duration) -> None:
        super().__init__(delay)
        self.delay_us = microseconds(delay, name="Snooze.delay")
        self.message = f"snoozed for {format_length(self.delay_us)}"


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """The delays between retries: doubled each time, with full jitter."""

    base: Duration = 1
    """The first delay.

    Default: 1 second.
    """

    cap: Duration = 30
    """The maximum delay.

    Default: 30 seconds.
    """

    def __post_init__(self) -> None:
        base_us = microseconds(self.base, name="Backoff.base")
        cap_us = microseconds(self.cap, name="Backoff.cap")
        if cap_us < base_us:
            raise ConfigError(
                "Backoff.cap must not be less than Backoff.base, "
                f"but {format_length(cap_us)} is less than {format_length(base_us)}",
                "Backoff.cap",
            )
        # Kept as seconds, so that Backoff(base="1s") equals Backoff(base=1).
        msgspec.structs.force_setattr(self, "base", base_us / 1_000_000)
        msgspec.structs.force_setattr(self, "cap", cap_us / 1_000_000)

    def delay_us(self, n: int, random: Callable[[], float] = random.random) -> int:
        """The delay before the n-th retry; `random` returns numbers in [0, 1)."""
        if n < 0:
            raise ValueError(f"there is no retry number {n}")
        base_us = microseconds(self.base, name="Backoff.base")
        cap_us = microseconds(self.cap, name="Backoff.cap")
        # 63 doublings of a microsecond exceed any cap: more would only make big numbers.
        longest_us = min(cap_us, base_us << min(n, 63))
        return min(longest_us, int(random() * (longest_us + 1)))
