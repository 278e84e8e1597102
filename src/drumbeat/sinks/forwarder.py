"""Tasks whose jobs are sent instead of run: each becomes a CloudEvent, and succeeds once its broker has acknowledged it.

They are batch tasks, with the claims, keys, cancels, delays, schedules and retries of any task. This module depends on no
broker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Generic, Literal, TypedDict, TypeVar, cast
from weakref import WeakKeyDictionary

import msgspec

from drumbeat.clock import Clock
from drumbeat.codec import MAX_PAYLOAD, Signature
from drumbeat.durations import Duration
from drumbeat.errors import ConfigError
from drumbeat.names import check_name, check_option_names, short_repr
from drumbeat.protocols import Enqueuer
from drumbeat.retry import Backoff, Delays, Snooze
from drumbeat.sinks.circuit_breaker import CircuitBreaker
from drumbeat.sinks.sink import Message, Outlet, Sink, SinkUnavailable
from drumbeat.tasks import Call, Limit, Task, TaskOptions
from drumbeat.tasks.limits import Group
from drumbeat.tasks.options import parse_task_options

log = logging.getLogger(__name__)

T = TypeVar("T")


class ForwardOptions(TypedDict, total=False):
    """The options of a task that `app.forward(...)` takes."""

    queue: str
    retries: int
    backoff: Backoff | Delays
    timeout: Duration | None
    expires: Duration | None
    priority: int
    on_crash: Literal["retry", "dead"]
    limits: Iterable[Limit]
    group: Group


class CloudEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The message body, in the format of CloudEvents 1.0."""

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


class EventSignature(Signature):
    """One value, type-checked when enqueued and again before it is sent, but sent as it was stored."""

    @property
    def returns(self) -> None:
        return None

    def decode(self, raw: str | bytes, *, limit: int = MAX_PAYLOAD) -> tuple[tuple[Any, ...], dict[str, Any]]:
        super().decode(raw, limit=limit)
        return (_stored_decoder.decode(raw).value,), {}


class ForwardTask(Task[[T], None], Generic[T]):
    """A task whose jobs are sent. It cannot be called: it has no function."""

    runs_user_code = False


class _LoopConnection:
    """The outlet and circuit breaker of one loop."""

    def __init__(self, outlet: Outlet, breaker: CircuitBreaker) -> None:
        self.outlet = outlet
        self.breaker = breaker
        self.users = 0


class Forwarder:
    """Sends the jobs of one task to one sink."""

    def __init__(self, task: str, sink: Sink, source: Callable[[], str], clock: Callable[[], Clock]) -> None:
        self._task = task
        self._sink = sink
        self._source = source
        self._clock = clock
        self._connections: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopConnection] = WeakKeyDictionary()

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Closes the outlet of this loop when its last worker ends."""
        connection = self._current_connection()
        connection.users += 1
        try:
            yield
        finally:
            connection.users -= 1
            if not connection.users:
                del self._connections[asyncio.get_running_loop()]
                await connection.outlet.close()

    def is_paused(self) -> bool:
        """Whether claiming jobs is pointless: they would only be snoozed."""
        connection = self._connections.get(asyncio.get_running_loop())
        return connection is not None and connection.breaker.is_tripped

    async def send(self, calls: list[Call[msgspec.Raw]]) -> list[Exception | None]:
        connection = self._current_connection()
        breaker = connection.breaker
        if not breaker.try_begin():
            return [Snooze(breaker.retry_delay()) for _ in calls]
        try:
            results: Sequence[Exception | None] = await connection.outlet.send(self._messages(calls))
        except SinkUnavailable as error:
            results = [error] * len(calls)
        finally:
            breaker.end()
        return self._to_results(breaker, results)

    def _to_results(self, breaker: CircuitBreaker, results: Sequence[Exception | None]) -> list[Exception | None]:
        """Snoozed jobs are not charged. If only some messages failed, the broker is available."""
        unavailable = [result for result in results if isinstance(result, SinkUnavailable)]
        delays = [result.delay for result in unavailable if result.delay is not None]
        if delays or len(unavailable) == len(results):
            if breaker.record_failure(max(delays) if delays else None):
                log.warning(
                    "sink unavailable; its jobs wait", extra={"task": self._task, "reason": str(unavailable[0])}
                )
        elif breaker.record_success():
            log.info("sink available again", extra={"task": self._task})
        return [Snooze(breaker.retry_delay()) if isinstance(result, SinkUnavailable) else result for result in results]

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
        connection = self._connections.get(loop)
        if connection is None:
            clock = self._clock()
            connection = self._connections[loop] = _LoopConnection(
                self._sink.connect(clock), CircuitBreaker(clock.monotonic)
            )
        return connection


def check_sink(sink: object) -> Sink:
    if isinstance(sink, type) or not callable(getattr(sink, "connect", None)) or not hasattr(sink, "batch"):
        raise ConfigError(f"to= must be a sink, such as RedisStreamSink(...), not {short_repr(sink)}", "to")
    return cast("Sink", sink)


def build_forwarder(
    enqueuer: Enqueuer,
    name: str,
    sink: Sink,
    value_type: Any,
    batch: int | None,
    options: ForwardOptions,
    clock: Callable[[], Clock],
) -> tuple[ForwardTask[Any], Forwarder]:
    """What `app.forward` registers: the task, and the forwarder that its workers run.

    Raises:
        ConfigError: an option is not acceptable.
    """
    checked = check_sink(sink)
    forwarder = Forwarder(check_name("task", name, ConfigError), checked, lambda: enqueuer.settings.name, clock)
    check_option_names("app.forward", options, ForwardOptions.__annotations__)
    size = checked.batch if batch is None else batch
    parsed = parse_task_options(cast("TaskOptions", options), batch=size, is_async=True)
    signature = EventSignature.of_value(name, value_type, enqueuer.codec)
    task: ForwardTask[Any] = ForwardTask(enqueuer, forwarder.send, name, parsed, signature)
    task.is_claiming_paused = forwarder.is_paused
    return task, forwarder
