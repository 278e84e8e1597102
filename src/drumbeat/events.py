"""What happened, as typed records, and the hub that tells whoever wants to know.

Parts emit; log lines, metrics, error trackers, the dashboard and tests subscribe. An event is built only when somebody
listens (`if events.wanted(JobStarted): events.emit(JobStarted(...))`), and no subscriber can harm what it is told of.
This module decides nothing and stores nothing.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import msgspec

from .core.claim import ClaimedJob
from .core.instance import DeadInstanceReport
from .core.job import Failure, JobState
from .ids import InstanceId, JobId

log = logging.getLogger(__name__)


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """The root of all events; whoever subscribes to it hears everything."""

    instance: InstanceId
    """The instance that tells."""


class JobStarted(Event, frozen=True, kw_only=True):
    """A handler is about to be called with this job."""

    job: ClaimedJob


class JobFinished(Event, frozen=True, kw_only=True):
    """A job reached its end, and the store has it."""

    job: ClaimedJob
    state: JobState
    """succeeded, dead or cancelled."""
    took: float
    """Seconds that the last attempt ran."""


class AttemptFailed(Event, frozen=True, kw_only=True):
    """An attempt failed and was charged."""

    job: ClaimedJob
    attempt: int
    """Which one it was; the first is 1."""
    error: Failure
    dead: bool
    """No retry is left: the job is a dead letter now."""
    retry_in: float | None = None
    """Seconds until the next attempt; None when there is none."""


class JobsDone(Event, frozen=True, kw_only=True):
    """How much was done in the last stretch: told about once a second while there is work, never when idle."""

    succeeded: int
    failed: int
    """Failed attempts, whether they will be retried or not."""
    dead: int
    cancelled: int
    seconds: float
    """How long the stretch was."""


class ResultRefused(Event, frozen=True, kw_only=True):
    """The store refused what this instance said of a job: its claim was no longer current."""

    id: JobId
    token: int
    task: str


class LeaseLost(Event, frozen=True, kw_only=True):
    """This instance was declared dead by others; its running handlers are aborted."""

    running: int


class StoreDown(Event, frozen=True, kw_only=True):
    """The store stopped answering. Told once for each outage."""

    url: str
    reason: str


class StoreUp(Event, frozen=True, kw_only=True):
    """The store answers again."""

    url: str
    after: float
    """Seconds without it."""


class StoreEmptied(Event, frozen=True, kw_only=True):
    """The store has no trace of this instance any more: it was emptied or replaced while this instance ran.

    Everything in it is gone: jobs, schedules that people made, pauses, locks, history. What code declares is put again."""

    url: str


class StoreOutOfSpace(Event, frozen=True, kw_only=True):
    """The store answers, but has no space for what was to be written. Told once, until it has."""

    url: str
    reason: str


class StoreHasSpace(Event, frozen=True, kw_only=True):
    """The store takes again what it had no space for."""

    url: str
    after: float
    """Seconds since it was full."""


class LoopBlocked(Event, frozen=True, kw_only=True):
    """Something kept the event loop from turning."""

    seconds: float
    tasks: tuple[str, ...]
    """The tasks whose handlers were on the loop at that time."""
    where: str = ""
    """The line that it stood at, where that is known."""


class ThreadAbandoned(Event, frozen=True, kw_only=True):
    """A `def` handler would not end in time. Its thread was replaced, and goes on by itself until it ends."""

    id: JobId
    task: str
    abandoned: int
    """How many threads of this process have been abandoned so far."""


class RoomFailed(Event, frozen=True, kw_only=True):
    """A handler of a room failed, timed out, or could not be called. Nobody tries it again."""

    room: str
    message: str
    """The id of the message."""
    error: Failure
    failed: int
    """How many calls of this room have failed in this process so far."""
    exception: BaseException | None = None
    """What the handler raised, for log records and error trackers; it is kept nowhere."""


class InstanceDied(Event, frozen=True, kw_only=True):
    """This instance found another one dead, and its jobs were freed."""

    dead: InstanceId
    jobs: DeadInstanceReport


class LeaderChanged(Event, frozen=True, kw_only=True):
    """Another instance leads the controllers now, or this one does. Told by every controller that hears of it."""

    leader: InstanceId
    term: int
    """Grows by one with each change."""


class ScheduleFired(Event, frozen=True, kw_only=True):
    """A moment of a schedule has come, and its job is in the store."""

    schedule: str
    at: int
    """The moment, in microseconds since 1970 UTC."""
    job: JobId
    late: float
    """Seconds from the moment (with its jitter) to the look that found it due."""


class ScheduleSkipped(Event, frozen=True, kw_only=True):
    """Moments of a schedule passed without a job; the store has it on record."""

    schedule: str
    first: int
    last: int
    """Moments, in microseconds since 1970 UTC."""
    count: int
    reason: str


class ScheduleRestored(Event, frozen=True, kw_only=True):
    """A schedule that this program declares had vanished from the store, and was put there again."""

    schedule: str


E = TypeVar("E", bound=Event)
Subscriber = Callable[[E], object]
"""Called with the event; if it is `async def`, the worker runs what it returns beside the jobs."""
Spawn = Callable[[Coroutine[Any, Any, object]], None]
"""Starts a coroutine in the worker's own group. It may be called from any thread."""


class Events:
    """Who wants to hear of what. Subscribing is for the time before a worker starts; emitting is for any thread."""

    def __init__(self) -> None:
        self._subscribers: dict[type[Event], list[Subscriber[Any]]] = {}
        self._spawn: Spawn | None = None
        self._restore: Callable[[], None] = lambda: None

    def subscribe(self, kind: type[E], subscriber: Subscriber[E]) -> None:
        """Call `subscriber` with every event of this kind, and of the kinds derived from it."""
        for each in _walk_subclasses(kind):
            self._subscribers.setdefault(each, []).append(subscriber)

    def unsubscribe(self, kind: type[E], subscriber: Subscriber[E]) -> None:
        """Undo one `subscribe`."""
        for each in _walk_subclasses(kind):
            rest = self._subscribers[each]
            rest.remove(subscriber)
            if not rest:
                del self._subscribers[each]

    def has_subscribers(self, kind: type[Event]) -> bool:
        """Whether anybody listens: ask before building an event on a hot path."""
        return kind in self._subscribers

    def emit(self, event: Event) -> None:
        """Tell all subscribers, in the order of their subscription."""
        for subscriber in tuple(self._subscribers.get(type(event), ())):
            # A subscriber is the user's code: whatever it raises, the job that it was told of must not notice.
            try:
                answer = subscriber(event)
            except BaseException as error:
                _log_failure(subscriber, event, error)
            else:
                if inspect.iscoroutine(answer):
                    self._spawn_subscriber(subscriber, event, answer)
            self._restore()

    @contextmanager
    def spawn_with(self, spawn: Spawn, restore: Callable[[], None] = lambda: None) -> Iterator[None]:
        """For so long, async subscribers run by this means; `mend` is called after each, to put back what it has changed."""
        before = self._spawn, self._restore
        self._spawn, self._restore = spawn, restore
        try:
            yield
        finally:
            self._spawn, self._restore = before

    def _spawn_subscriber(self, subscriber: Subscriber[Any], event: Event, answer: Coroutine[Any, Any, object]) -> None:
        if self._spawn is None:
            answer.close()
            log.warning(
                "async subscriber not called: no worker runs here",
                extra={"subscriber": _subscriber_name(subscriber), "event": type(event).__name__},
            )
            return
        self._spawn(_run_guarded(subscriber, event, answer, self._restore))


async def _run_guarded(
    subscriber: Subscriber[Any], event: Event, answer: Coroutine[Any, Any, object], restore: Callable[[], None]
) -> None:
    try:
        await answer
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise  # the worker ends
        _log_failure(subscriber, event, error)
    except BaseException as error:  # the user's code, as in `emit`
        _log_failure(subscriber, event, error)
    finally:
        restore()


def _log_failure(subscriber: Subscriber[Any], event: Event, error: BaseException) -> None:
    with suppress(BaseException):  # the error's own text, and what the program does with log records, are its code too
        facts = {"subscriber": _subscriber_name(subscriber), "event": type(event).__name__}
        log.error("subscriber failed", exc_info=error, extra=facts)


def _subscriber_name(subscriber: Subscriber[Any]) -> str:
    return getattr(subscriber, "__qualname__", None) or repr(subscriber)


def _walk_subclasses(kind: type[Event]) -> Iterator[type[Event]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _walk_subclasses(child)
