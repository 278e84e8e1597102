"""The interface between forwarded jobs and a broker.

A `Sink` is a description, made at import and shared by all loops of a program. `connect` returns an `Outlet`, which belongs to
one loop and sends messages.
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
    """The job's id. A message that is sent again has the same id, so that a receiver can drop the repetition."""
    key: str | None
    body: bytes
    """A CloudEvent in JSON."""


class SinkUnavailable(Exception):
    """The broker is unavailable: the message waits, uncharged. `delay`: the number of seconds that the broker asked for."""

    def __init__(self, reason: str, delay: float | None = None) -> None:
        super().__init__(reason)
        self.delay = delay


class DeliveryFailed(Exception):
    """The broker refuses this message. The attempt is charged and retried by the rules of its task."""


class Outlet(Protocol):
    """A connection to a broker, on one loop."""

    async def send(self, messages: Sequence[Message]) -> list[Exception | None]:
        """A result for each message, in order: None once the broker has acknowledged it.

        `SinkUnavailable` delays its message without charge, `SkipRetry` makes it a dead letter, any other exception is a
        failure of this message alone. May be called while an earlier call runs. Opens connections when needed.

        Raises:
            SinkUnavailable: no message was acknowledged.
        """

    async def close(self) -> None:
        """Close all connections. Nothing is sent afterwards."""


class Sink(Protocol):
    """A destination of messages."""

    batch: int
    """The maximum number of messages in one `send`, unless `forward(batch=)` sets it."""

    def connect(self, clock: Clock) -> Outlet:
        """An outlet for the running loop. Does not contact the broker yet.

        Raises:
            ConfigError: the driver is not installed, or refuses its options.
        """


def check_positive(value: Duration, name: str) -> float:
    """A timeout in seconds."""
    length = seconds(value, name=name)
    if not length:
        raise ConfigError(f"{name} must be more than 0", name)
    return length


def check_text(value: object, name: str) -> str:
    """Text that names something at a broker."""
    if isinstance(value, str) and value and value.isprintable():
        return value
    raise ConfigError(f"{name} must be text, not {short_repr(value)}", name)


def missing_driver_error(sink: str, extra: str) -> ConfigError:
    return ConfigError(f"{sink} needs a driver: pip install 'drumbeat[{extra}]'")
