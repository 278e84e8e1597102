"""Tasks whose jobs are sent instead of run: each becomes a CloudEvent, and is finished once its broker has acknowledged it.

A batch task beneath, so claims, keys, cancels, delays, schedules and retries are those of any task. It knows no
broker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Generic, Literal, TypedDict, TypeVar, cast
from weakref import WeakKeyDictionary

import msgspec

from drumbeat.clock import Clock
from drumbeat.codec import MAX_PAYLOAD, Signature
from drumbeat.durations import Duration
from drumbeat.errors import ConfigError
from drumbeat.names import check_name, short_repr
from drumbeat.protocols import Enqueuer
from drumbeat.retry import Backoff, Snooze
from drumbeat.sinks.circuit_breaker import CircuitBreaker
from drumbeat.sinks.sink import Message, Outlet, Sink, SinkUnavailable
from drumbeat.tasks import Call, Task, TaskOptions
from drumbeat.tasks.options import parse_task_options

log = logging.getLogger(__name__)

T = TypeVar("T")


class ForwardOptions(TypedDict, total=False):
    """What `app.forward(...)` takes of a task's options."""

    queue: str
    retries: int
    backoff: Backoff
    timeout: Duration | None
    priority: int
    on_crash: Literal["retry", "dead"]


class CloudEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent, as CloudEvents 1.0 has it."""

    specversion: Literal["1.0"] = "1.0"
    id: str
    source: str
    type: str
    time: datetime
    subject: str | msgspec.UnsetType = msgspec.UNSET
    datacontenttype: Literal["application/json"] = "application/json"
    data: msgspec.Raw


class _StoredValue(msgspec.Struct, frozen=True):
    value: msgspec.Raw


_encoder = msgspec.json.Encoder()
_stored_decoder = msgspec.json.Decoder(_StoredValue)


class EventSignature:
    """One value, checked by its type at enqueue and again before it is sent, but sent as it was stored."""

    returns: Any = None

    def __init__(self, name: str, value_type: Any) -> None:
        self._signature = Signature.of_value(name, value_type)

    @property
    def hash(self) -> str:
        return self._signature.hash

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, limit: int = MAX_PAYLOAD) -> str:
        return self._signature.encode(args, kwargs, limit=limit)

    def decode(self, raw: str | bytes, *, limit: int = MAX_PAYLOAD) -> tuple[tuple[Any, ...], dict[str, Any]]:
        self._signature.decode(raw, limit=limit)
        return (_stored_decoder.decode(raw).value,), {}


class ForwardTask(Task[[T], None], Generic[T]):
    """A task whose jobs are sent. It cannot be called: there is no function of yours in it."""

    runs_own_code = False


class _LoopConnection:
    """What one loop has of a sink."""

    def __init__(self, outlet: Outlet, breaker: CircuitBreaker) -> None:
        self.outlet = outlet
        self.breaker = breaker
        self.users = 0


class Forwarder:
    """Sends the jobs of one task to one sink."""

    def __init__(self, task: str, sink: Sink, source: Callable[[], str], clock: Clock) -> None:
        self._task = task
        self._sink = sink
        self._source = source
        self._clock = clock
        self._connections: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopConnection] = WeakKeyDictionary()

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """What is opened on this loop is closed when its last worker leaves."""
        line = self._current_connection()
        line.users += 1
        try:
            yield
        finally:
            line.users -= 1
            if not line.users:
                del self._connections[asyncio.get_running_loop()]
                await line.outlet.close()

    def is_paused(self) -> bool:
        """Whether there is no use in claiming jobs: they would only be put back."""
        line = self._connections.get(asyncio.get_running_loop())
        return line is not None and line.breaker.is_tripped

    async def send(self, calls: list[Call[msgspec.Raw]]) -> list[Exception | None]:
        line = self._current_connection()
        patience = line.breaker
        if not patience.try_begin():
            return [Snooze(patience.retry_delay()) for _ in calls]
        try:
            answers: Sequence[Exception | None] = await line.outlet.send(self._messages(calls))
        except SinkUnavailable as away:
            answers = [away] * len(calls)
        finally:
            patience.end()
        return self._to_results(patience, answers)

    def _to_results(self, breaker: CircuitBreaker, results: Sequence[Exception | None]) -> list[Exception | None]:
        """Whoever is told to wait is not charged. That a part went through says that the broker is there."""
        away = [answer for answer in results if isinstance(answer, SinkUnavailable)]
        told = [answer.delay for answer in away if answer.delay is not None]
        if told or len(away) == len(results):
            if breaker.record_failure(max(told) if told else None):
                log.warning("a sink is away: its jobs wait", extra={"task": self._task, "reason": str(away[0])})
        elif breaker.record_success():
            log.info("a sink is back", extra={"task": self._task})
        return [Snooze(breaker.retry_delay()) if isinstance(answer, SinkUnavailable) else answer for answer in results]

    def _messages(self, calls: list[Call[msgspec.Raw]]) -> list[Message]:
        source = self._source()
        return [
            Message(
                id=call.id,
                key=call.key,
                body=_encoder.encode(
                    CloudEvent(
                        id=call.id,
                        source=source,
                        type=self._task,
                        time=call.scheduled_for,
                        subject=msgspec.UNSET if call.key is None else call.key,
                        data=call.value,
                    )
                ),
            )
            for call in calls
        ]

    def _current_connection(self) -> _LoopConnection:
        loop = asyncio.get_running_loop()
        line = self._connections.get(loop)
        if line is None:
            line = self._connections[loop] = _LoopConnection(
                self._sink.connect(self._clock), CircuitBreaker(self._clock.monotonic)
            )
        return line


def forward_task(
    enqueuer: Enqueuer, forwarder: Forwarder, name: str, value_type: Any, batch: int, options: ForwardOptions
) -> ForwardTask[Any]:
    """The task of a forwarder.

    Raises:
        ConfigError: an option is not acceptable.
    """
    if unknown := set(options) - set(ForwardOptions.__annotations__):
        raise ConfigError(f"app.forward has no option {min(unknown)!r}", min(unknown))
    read = parse_task_options(cast("TaskOptions", options), batch=batch, is_async=True)
    task: ForwardTask[Any] = ForwardTask(enqueuer, forwarder.send, name, read, EventSignature(name, value_type))
    task.is_claiming_paused = forwarder.is_paused
    return task


def check_sink(sink: object) -> Sink:
    if isinstance(sink, type) or not callable(getattr(sink, "connect", None)) or not hasattr(sink, "batch"):
        raise ConfigError(f"to= must be a sink, such as RedisStreamSink(...), not {short_repr(sink)}", "to")
    return cast("Sink", sink)


def build_forwarder(
    enqueuer: Enqueuer, name: str, sink: Sink, value_type: Any, batch: int | None, options: ForwardOptions, clock: Clock
) -> tuple[ForwardTask[Any], Forwarder]:
    """What `app.forward` registers: the task, and what lives as long as a worker."""
    checked = check_sink(sink)
    forwarder = Forwarder(check_name("task", name, ConfigError), checked, lambda: enqueuer.settings.name, clock)
    size = checked.batch if batch is None else batch
    return forward_task(enqueuer, forwarder, name, value_type, size, options), forwarder
