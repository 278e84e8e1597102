"""The delays of retries, which exceptions are retried, and the signals by which task code controls its own job.

A signal ends the attempt in a chosen way and is not an error. The delay before the n-th retry is random between 0 and
min(cap, base * 2**n), or the n-th of a list. `worker/result.py` turns signals into outcomes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from drumbeat.durations import format_length, microseconds
from drumbeat.errors import ConfigError
from drumbeat.names import short_repr

if TYPE_CHECKING:
    from drumbeat.durations import Duration

    Delays = list[Duration] | tuple[Duration, ...]
else:
    # What a Backoff holds once it is made: settings with one travel between processes as JSON.
    Duration = float
    Delays = tuple[float, ...]
MAX_DELAYS = 1_000
ExceptionTypes = type[BaseException] | tuple[type[BaseException], ...]
MAX_GROUP_SIZE = 1_000
"""How many exceptions of a group are looked at: a group is task code, and may be of any size and shape."""


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
    """The delays between retries: doubled each time, with full jitter, or those of a list."""

    base: Duration = 1
    """The first delay.

    Default: 1 second.
    """

    cap: Duration = 30
    """The maximum delay.

    Default: 30 seconds.
    """

    delays: Delays = ()
    """Instead of base and cap: exactly these, without jitter; the last one repeats. `backoff=[1, 5, 30]` is short for it.

    Default: none.
    """

    def __post_init__(self) -> None:
        if self.delays != ():
            self._check_delays()
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
        if self.delays:
            return microseconds(self.delays[min(max(n, 1), len(self.delays)) - 1], name="Backoff.delays")
        base_us = microseconds(self.base, name="Backoff.base")
        cap_us = microseconds(self.cap, name="Backoff.cap")
        # 63 doublings of a microsecond exceed any cap: more would only make big numbers.
        longest_us = min(cap_us, base_us << min(n, 63))
        return min(longest_us, int(random() * (longest_us + 1)))

    def _check_delays(self) -> None:
        name = "Backoff.delays"
        given: object = self.delays
        if not isinstance(given, list | tuple) or not 1 <= len(given) <= MAX_DELAYS:
            raise ConfigError(
                f"{name} must be a list of 1 to {MAX_DELAYS:,} delays such as [1, 5, 30], not {short_repr(given)}", name
            )
        if (self.base, self.cap) != (1, 30):
            raise ConfigError(f"{name} and base or cap exclude each other: give one of them", name)
        lengths = tuple(microseconds(delay, name=name) / 1_000_000 for delay in self.delays)
        msgspec.structs.force_setattr(self, "delays", lengths)

    def __str__(self) -> str:
        if self.delays:
            return ", ".join(_format_delay(delay) for delay in self.delays)
        first_us = min(2 * microseconds(self.base, name="Backoff.base"), microseconds(self.cap, name="Backoff.cap"))
        return f"random up to {format_length(first_us)}, doubled each time up to {_format_delay(self.cap)}"


def parse_backoff(value: object) -> Backoff:
    """The option `backoff` of a task.

    Raises:
        ConfigError: neither a Backoff nor a list of delays.
    """
    match value:
        case Backoff():
            return value
        case list() | tuple():
            try:
                return Backoff(delays=value)
            except ConfigError as error:
                raise ConfigError(str(error).replace("Backoff.delays", "backoff", 1), "backoff") from error
        case _:
            raise ConfigError(
                f"backoff must be a Backoff or a list of delays such as [1, 5, 30], not {short_repr(value)}", "backoff"
            )


def _format_delay(delay: Duration) -> str:
    return format_length(microseconds(delay, name="delay"))


class RetryFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which exceptions of a handler are retried, by class; subclasses count. What is not retried is a dead letter at once.

    Judged where the exception was raised, also in a child process: only there is its class. Signals decide for themselves.
    """

    retry_on: tuple[type[BaseException], ...] | None = None
    """Only these; None: all."""

    no_retry_on: tuple[type[BaseException], ...] = ()
    """Not these, whatever `retry_on` says."""

    def accepts(self, error: BaseException) -> bool:
        """Whether to retry. Of a group no exception may be in `no_retry_on`, and all must be in `retry_on`."""
        if self is RETRY_ALL:
            return True
        kinds = [type(each) for each in _flatten(error)]
        if any(map(self._is_excluded, [type(error), *kinds])):
            return False
        return self._is_included(type(error)) or all(map(self._is_included, kinds))

    def accepts_timeout(self) -> bool:
        """Whether a run that exceeded its timeout is retried: it counts as a TimeoutError."""
        return self._is_included(TimeoutError) and not self._is_excluded(TimeoutError)

    def _is_included(self, kind: type[BaseException]) -> bool:
        return self.retry_on is None or issubclass(kind, self.retry_on)

    def _is_excluded(self, kind: type[BaseException]) -> bool:
        return issubclass(kind, self.no_retry_on)


RETRY_ALL = RetryFilter()


def parse_retry_filter(retry_on: object, no_retry_on: object) -> RetryFilter:
    """The filter of these options of a task; None: not given.

    Raises:
        ConfigError: not a class of exceptions, nor a tuple of them.
    """
    if retry_on is None and no_retry_on is None:
        return RETRY_ALL
    return RetryFilter(
        retry_on=None if retry_on is None else _parse_exception_types("retry_on", retry_on),
        no_retry_on=() if no_retry_on is None else _parse_exception_types("no_retry_on", no_retry_on),
    )


def _parse_exception_types(name: str, value: object) -> tuple[type[BaseException], ...]:
    kinds = tuple(value) if isinstance(value, tuple | list) else (value,)
    if not kinds or not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
        raise ConfigError(
            f"{name} must be a class of exceptions or a tuple of them, such as (OSError, KeyError), not {short_repr(value)}",
            name,
        )
    if signals := [kind.__name__ for kind in kinds if issubclass(kind, Signal)]:
        raise ConfigError(f"{name} must not name {signals[0]}: a signal says itself what becomes of its job", name)
    return kinds


def _flatten(error: BaseException) -> Iterator[BaseException]:
    """The exceptions in a group and the groups in it; an exception itself, if it is no group."""
    left, seen = [error], 0
    while left and seen < MAX_GROUP_SIZE:
        each = left.pop()
        seen += 1
        if isinstance(each, BaseExceptionGroup):
            left.extend(each.exceptions)
        else:
            yield each
