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
from drumbeat.names import check_name, shown
from drumbeat.retry import Backoff, Snooze
from drumbeat.sinks.patience import Patience
from drumbeat.sinks.sink import Away, Message, Outlet, Sink
from drumbeat.tasks import Call, Home, Task, TaskOptions
from drumbeat.tasks.options import read_options

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


class _Stored(msgspec.Struct, frozen=True):
    value: msgspec.Raw


_encoder = msgspec.json.Encoder()
_stored = msgspec.json.Decoder(_Stored)


class EventSignature:
    """One value, checked by its type at enqueue and again before it is sent, but sent as it was stored."""

    returns: Any = None

    def __init__(self, name: str, value_type: Any) -> None:
        self._checked = Signature.of_value(name, value_type)

    @property
    def hash(self) -> str:
        return self._checked.hash

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, limit: int = MAX_PAYLOAD) -> str:
        return self._checked.encode(args, kwargs, limit=limit)

    def decode(self, raw: str | bytes, *, limit: int = MAX_PAYLOAD) -> tuple[tuple[Any, ...], dict[str, Any]]:
        self._checked.decode(raw, limit=limit)
        return (_stored.decode(raw).value,), {}


class ForwardTask(Task[[T], None], Generic[T]):
    """A task whose jobs are sent. It cannot be called: there is no function of yours in it."""

    runs_own_code = False


class _Line:
    """What one loop has of a sink."""

    def __init__(self, outlet: Outlet, patience: Patience) -> None:
        self.outlet = outlet
        self.patience = patience
        self.users = 0


class Forwarder:
    """Sends the jobs of one task to one sink."""

    def __init__(self, task: str, sink: Sink, source: Callable[[], str], clock: Clock) -> None:
        self._task = task
        self._sink = sink
        self._source = source
        self._clock = clock
        self._lines: WeakKeyDictionary[asyncio.AbstractEventLoop, _Line] = WeakKeyDictionary()

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """What is opened on this loop is closed when its last worker leaves."""
        line = self._line()
        line.users += 1
        try:
            yield
        finally:
            line.users -= 1
            if not line.users:
                del self._lines[asyncio.get_running_loop()]
                await line.outlet.close()

    def rests(self) -> bool:
        """Whether there is no use in claiming jobs: they would only be put back."""
        line = self._lines.get(asyncio.get_running_loop())
        return line is not None and line.patience.rests

    async def send(self, calls: list[Call[msgspec.Raw]]) -> list[Exception | None]:
        line = self._line()
        patience = line.patience
        if not patience.enter():
            return [Snooze(patience.pause()) for _ in calls]
        try:
            answers: Sequence[Exception | None] = await line.outlet.send(self._messages(calls))
        except Away as away:
            answers = [away] * len(calls)
        finally:
            patience.leave()
        return self._judged(patience, answers)

    def _judged(self, patience: Patience, answers: Sequence[Exception | None]) -> list[Exception | None]:
        """Whoever is told to wait is not charged. That a part went through says that the broker is there."""
        away = [answer for answer in answers if isinstance(answer, Away)]
        told = [answer.delay for answer in away if answer.delay is not None]
        if told or len(away) == len(answers):
            if patience.failed(max(told) if told else None):
                log.warning("a sink is away: its jobs wait", extra={"task": self._task, "reason": str(away[0])})
        elif patience.succeeded():
            log.info("a sink is back", extra={"task": self._task})
        return [Snooze(patience.pause()) if isinstance(answer, Away) else answer for answer in answers]

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

    def _line(self) -> _Line:
        loop = asyncio.get_running_loop()
        line = self._lines.get(loop)
        if line is None:
            line = self._lines[loop] = _Line(self._sink.connect(self._clock), Patience(self._clock.monotonic))
        return line


def forward_task(
    home: Home, forwarder: Forwarder, name: str, value_type: Any, batch: int, options: ForwardOptions
) -> ForwardTask[Any]:
    """The task of a forwarder.

    Raises:
        ConfigError: an option is not acceptable.
    """
    if unknown := set(options) - set(ForwardOptions.__annotations__):
        raise ConfigError(f"app.forward has no option {min(unknown)!r}", min(unknown))
    read = read_options(cast("TaskOptions", options), batch=batch, is_async=True)
    task: ForwardTask[Any] = ForwardTask(home, forwarder.send, name, read, EventSignature(name, value_type))
    task.rests = forwarder.rests
    return task


def check_sink(sink: object) -> Sink:
    if isinstance(sink, type) or not callable(getattr(sink, "connect", None)) or not hasattr(sink, "batch"):
        raise ConfigError(f"to= must be a sink, such as RedisStreamSink(...), not {shown(sink)}", "to")
    return cast("Sink", sink)


def declared(
    home: Home, name: str, sink: Sink, value_type: Any, batch: int | None, options: ForwardOptions, clock: Clock
) -> tuple[ForwardTask[Any], Forwarder]:
    """What `app.forward` registers: the task, and what lives as long as a worker."""
    checked = check_sink(sink)
    forwarder = Forwarder(check_name("task", name, ConfigError), checked, lambda: home.settings.name, clock)
    size = checked.batch if batch is None else batch
    return forward_task(home, forwarder, name, value_type, size, options), forwarder
