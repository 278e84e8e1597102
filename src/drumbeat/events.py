"""Events as typed records, and the hub that delivers them to subscribers.

The parts of a worker emit; logging, metrics, error trackers and tests subscribe. On hot paths an event is built only if it has
subscribers (`if events.has_subscribers(JobStarted): events.emit(JobStarted(...))`). A failing subscriber does not affect the
emitter.
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
    """The base of all events; a subscriber of it gets all of them."""

    instance: InstanceId
    """The instance that emits it."""


class JobStarted(Event, frozen=True, kw_only=True):
    """A handler is about to be called with this job."""

    job: ClaimedJob


class JobFinished(Event, frozen=True, kw_only=True):
    """A job has ended, and the store has recorded it."""

    job: ClaimedJob
    state: JobState
    """succeeded, dead, cancelled or expired."""
    took: float
    """Seconds that the last attempt ran."""


class AttemptFailed(Event, frozen=True, kw_only=True):
    """An attempt failed and was charged."""

    job: ClaimedJob
    attempt: int
    """The number of the attempt, from 1."""
    error: Failure
    dead: bool
    """No retry is left: the job is a dead letter now."""
    retry_in: float | None = None
    """Seconds until the next attempt; None when there is none."""


class JobsDone(Event, frozen=True, kw_only=True):
    """Counts of the last interval: emitted about once a second while there is work, never when idle."""

    succeeded: int
    failed: int
    """Failed attempts, whether they will be retried or not."""
    dead: int
    cancelled: int
    seconds: float
    """The length of the interval."""


class ResultRefused(Event, frozen=True, kw_only=True):
    """The store refused the outcome that this instance reported for a job: its claim was no longer current."""

    id: JobId
    token: int
    task: str


class LeaseLost(Event, frozen=True, kw_only=True):
    """Another instance declared this one dead; its running handlers are aborted."""

    running: int


class StoreDown(Event, frozen=True, kw_only=True):
    """The store stopped answering. Emitted once for each outage."""

    url: str
    reason: str


class StoreUp(Event, frozen=True, kw_only=True):
    """The store answers again."""

    url: str
    after: float
    """The length of the outage in seconds."""


class StoreEmptied(Event, frozen=True, kw_only=True):
    """The store no longer has this instance: it was emptied or replaced while the instance ran.

    Everything in it is gone: jobs, schedules of operators, pauses, locks, history. Schedules declared in code are restored."""

    url: str


class StoreOutOfSpace(Event, frozen=True, kw_only=True):
    """The store answers, but has no space left. Emitted once, until it has space again."""

    url: str
    reason: str


class StoreHasSpace(Event, frozen=True, kw_only=True):
    """The store has space again."""

    url: str
    after: float
    """Seconds since it was full."""


class LoopBlocked(Event, frozen=True, kw_only=True):
    """The event loop was blocked."""

    seconds: float
    tasks: tuple[str, ...]
    """The tasks whose handlers were running on the loop."""
    where: str = ""
    """The line of code that blocked it, if known."""


class ThreadAbandoned(Event, frozen=True, kw_only=True):
    """A `def` handler did not end in time. Its thread was replaced, and goes on until it ends."""

    id: JobId
    task: str
    abandoned: int
    """How many threads of this process have been abandoned so far."""


class RoomFailed(Event, frozen=True, kw_only=True):
    """A handler of a room failed, timed out, or could not be called. It is not retried."""

    room: str
    message: str
    """The id of the message."""
    error: Failure
    failed: int
    """How many calls of this room have failed in this process so far."""
    exception: BaseException | None = None
    """What the handler raised, for log records and error trackers; it is not stored."""


class InstanceDied(Event, frozen=True, kw_only=True):
    """This instance declared another one dead, and released its jobs."""

    dead: InstanceId
    jobs: DeadInstanceReport


class LeaderChanged(Event, frozen=True, kw_only=True):
    """The leader has changed. Emitted by every controller that notices it."""

    leader: InstanceId
    term: int
    """Grows by one with each change."""


class ScheduleFired(Event, frozen=True, kw_only=True):
    """A schedule fired, and its job is in the store."""

    schedule: str
    at: int
    """The fire time, in microseconds since 1970 UTC."""
    job: JobId
    late: float
    """Seconds from the fire time (with its jitter) to the check that found it due."""


class ScheduleSkipped(Event, frozen=True, kw_only=True):
    """Fire times of a schedule were skipped; the store has recorded it."""

    schedule: str
    first: int
    last: int
    """Fire times, in microseconds since 1970 UTC."""
    count: int
    reason: str


class ScheduleRestored(Event, frozen=True, kw_only=True):
    """A schedule that this program declares was missing from the store, and was restored."""

    schedule: str


E = TypeVar("E", bound=Event)
Subscriber = Callable[[E], object]
"""Called with the event; if it is `async def`, the worker runs its coroutine beside the jobs."""
Spawn = Callable[[Coroutine[Any, Any, object]], None]
"""Starts a coroutine in the worker's task group. It may be called in any thread."""


class Events:
    """The subscribers of each event class. Subscribe before a worker starts; emit in any thread."""

    def __init__(self) -> None:
        self._subscribers: dict[type[Event], list[Subscriber[Any]]] = {}
        self._spawn: Spawn | None = None
        self._restore: Callable[[], None] = lambda: None

    def subscribe(self, kind: type[E], subscriber: Subscriber[E]) -> None:
        """Call `subscriber` with every event of this class and its subclasses."""
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
        """Check this before building an event on a hot path."""
        return kind in self._subscribers

    def emit(self, event: Event) -> None:
        """Call all subscribers, in the order of their subscription."""
        for subscriber in tuple(self._subscribers.get(type(event), ())):
            # A subscriber is user code: whatever it raises must not affect the emitter.
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
        """In the body, start async subscribers by `spawn`; call `restore` after each subscriber, to undo its changes."""
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
    except BaseException as error:  # user code, as in `emit`
        _log_failure(subscriber, event, error)
    finally:
        restore()


def _log_failure(subscriber: Subscriber[Any], event: Event, error: BaseException) -> None:
    with suppress(BaseException):  # the error's text and log handlers are user code as well
        facts = {"subscriber": _subscriber_name(subscriber), "event": type(event).__name__}
        log.error("subscriber failed", exc_info=error, extra=facts)


def _subscriber_name(subscriber: Subscriber[Any]) -> str:
    return getattr(subscriber, "__qualname__", None) or repr(subscriber)


def _walk_subclasses(kind: type[Event]) -> Iterator[type[Event]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _walk_subclasses(child)
