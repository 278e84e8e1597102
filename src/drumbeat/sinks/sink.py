"""What a sink is: the border between jobs that are to be sent and a broker. This module knows neither.

A `Sink` is a description, made at import and shared by all loops of a program. `connect` gives an `Outlet`, which belongs to
one loop, and does the sending.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from drumbeat.clock import Clock
from drumbeat.durations import Duration, seconds
from drumbeat.errors import ConfigError
from drumbeat.names import short_repr

CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One job, as a broker gets it."""

    id: str
    """The job's own: whoever sends it again sends the same id, and a receiver that knows it may drop it."""
    key: str | None
    body: bytes
    """A CloudEvent in JSON."""


class SinkUnavailable(Exception):
    """The broker cannot be asked now: the message waits, uncharged. `delay`: so many seconds, by the broker's own word."""

    def __init__(self, reason: str, delay: float | None = None) -> None:
        super().__init__(reason)
        self.delay = delay


class DeliveryFailed(Exception):
    """The broker does not take this message. It is charged, and tried again as often as its task says."""


class Outlet(Protocol):
    """A way to a broker, on one loop."""

    async def send(self, messages: Sequence[Message]) -> list[Exception | None]:
        """An answer for each message, in their order: None once the broker has acknowledged it.

        `Away` leaves its message for later without charge, `SkipRetry` gives it up, any other exception is a failure of this
        message alone. May be called while an earlier call is under way. Opens connections when they are needed.

        Raises:
            Away: nothing of all this was acknowledged.
        """

    async def close(self) -> None:
        """Close what was opened. Nothing is sent afterwards."""


class Sink(Protocol):
    """Where messages go."""

    batch: int
    """How many messages `send` is given at most, unless `forward(batch=)` says otherwise."""

    def connect(self, clock: Clock) -> Outlet:
        """An outlet of the running loop, without asking the broker anything yet.

        Raises:
            ConfigError: the driver is not installed, or refuses its options.
        """


def check_positive(value: Duration, name: str) -> float:
    """A time-out in seconds."""
    length = seconds(value, name=name)
    if not length:
        raise ConfigError(f"{name} must be more than 0", name)
    return length


def check_text(value: object, name: str) -> str:
    """Text that names something at a broker."""
    if isinstance(value, str) and value and value.isprintable():
        return value
    raise ConfigError(f"{name} must be text, not {short_repr(value)}", name)


def check_count(value: object, name: str, maximum: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= maximum:
        return value
    raise ConfigError(f"{name} must be a whole number from 1 to {maximum}, not {short_repr(value)}", name)


def missing_driver_error(sink: str, extra: str) -> ConfigError:
    return ConfigError(f"{sink} needs a driver: pip install 'drumbeat[{extra}]'")
