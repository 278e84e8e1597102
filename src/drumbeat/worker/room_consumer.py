"""Take messages of rooms, on notification or every few seconds, and call their handlers, independently of jobs.

    notification, or POLL_INTERVAL --> take --> handler, on the loop or in a thread --> done, or RoomFailed

A message is removed from the store before its handler is called: it is delivered at most once. At most MAX_CALLS handlers run
at once; further messages wait in the store. A draining worker leaves its rooms first, so that no more are sent to it, and
handles what was sent before. Handlers can see that it drains (`abort_signal()`); after some seconds `async def` handlers are
cancelled, those in threads have the drain timeout.
"""

import asyncio
import functools
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from drumbeat.clock import jitter
from drumbeat.codec import Undecodable
from drumbeat.context import CURRENT_SIGNAL, AbortReason, AbortSignal
from drumbeat.core.job import Failure
from drumbeat.core.room import RoomMessage
from drumbeat.errors import StoreUnavailable
from drumbeat.events import RoomFailed
from drumbeat.service import Wakeup
from drumbeat.settings import MAX_PAYLOAD_LIMIT
from drumbeat.store.protocol import Store
from drumbeat.store.protocol.wake import Subscriber
from drumbeat.user_code import call_with_timeout
from drumbeat.worker.core import WorkerCore
from drumbeat.worker.event_loop import guest_context
from drumbeat.worker.result import describe_failure
from drumbeat.worker.thread_pool import ThreadPool

MAX_CALLS = 100
POLL_INTERVAL = 3.0
CANCEL_DELAY = 5.0
"""How long an async handler may run on after the drain has begun."""


class RoomCall(NamedTuple):
    """A running handler."""

    signal: AbortSignal
    is_async: bool


class RoomConsumer:
    """The rooms that a worker is in."""

    def __init__(self, core: WorkerCore, threads: ThreadPool) -> None:
        self._rooms = dict(core.app.rooms)
        self._core = core
        self._threads = threads
        self._wakeup = Wakeup(core.clock)
        self._calls: dict[asyncio.Task[None], RoomCall] = {}
        self._failed: Counter[str] = Counter()
        self._poll_task: asyncio.Task[None] | None = None
        self._may_have_more = False
        self._is_stopping = False
        self._is_closed = False
        self._is_cancelled = False

    @property
    def signatures(self) -> dict[str, str]:
        """What senders must know, by room; empty once we stop."""
        return {} if self._is_stopping else {name: room.signature.hash for name, room in self._rooms.items()}

    @property
    def functions(self) -> dict[str, Callable[..., Any]]:
        return {name: room.function for name, room in self._rooms.items()}

    @property
    def running(self) -> int:
        """The number of running handlers."""
        return len(self._calls)

    def stop(self) -> None:
        """Leave the rooms, signal running handlers, and finish what was sent before."""
        self._is_stopping = True
        for call in self._calls.values():
            call.signal.set(AbortReason.DRAINING)
        if self._rooms:
            self._core.clock.call_later(CANCEL_DELAY, self._cancel_async)
        self._wakeup.set()

    def interrupt(self) -> None:
        """Cancel running handlers, and do not wait for the store any more."""
        self._is_closed = True
        self._wakeup.set()
        if self._poll_task is not None:
            self._poll_task.cancel()
        for call in tuple(self._calls):
            call.cancel()

    def _cancel_async(self) -> None:
        """Cancel async handlers, which leave nothing behind, and take no more messages."""
        self._is_closed = True
        self._wakeup.set()
        for task, call in tuple(self._calls.items()):
            if call.is_async:
                task.cancel()

    async def run(self, store: Store) -> None:
        """Run until stopped and the last handler has ended."""
        if not self._rooms:
            return
        async with store.wake.listen(Subscriber(on_room=self._on_notification)), asyncio.TaskGroup() as group:
            self._poll_task = group.create_task(self._poll(store, group), name="messages of rooms")
            try:
                await asyncio.wait([self._poll_task])
            except BaseException:
                self._is_cancelled = True  # before the calls are cancelled
                raise

    async def _poll(self, store: Store, group: asyncio.TaskGroup) -> None:
        while not self._is_stopping:
            self._wakeup.clear()
            try:
                await self._take_messages(store, group)
            except StoreUnavailable:
                pass  # the worker's own calls report it; the next poll tries again
            if not self._is_stopping:
                await self._wakeup.wait(jitter(POLL_INTERVAL))
        await self._leave(store, group)

    def _on_notification(self, instance: str) -> None:
        if instance in ("", self._core.identity()):
            self._wakeup.set()

    async def _take_messages(self, store: Store, group: asyncio.TaskGroup) -> None:
        """Take as many as can be handled now. If there may be more, the end of a handler wakes us."""
        free = MAX_CALLS - len(self._calls)
        if not free:
            return
        messages = await store.rooms.take(self._core.identity(), free)
        self._may_have_more = len(messages) == free
        for message in messages:
            signal, room = AbortSignal(), self._rooms.get(message.room)
            if self._is_stopping:
                signal.set(AbortReason.DRAINING)
            name = f"room {message.room}"
            call = group.create_task(self._call(message, signal), name=name, context=guest_context())
            self._calls[call] = RoomCall(signal, room is None or room.is_async)
            call.add_done_callback(self._on_call_done)

    async def _leave(self, store: Store, group: asyncio.TaskGroup) -> None:
        """Leave the rooms, and take what was sent before."""
        try:
            await store.instances.leave_rooms(self._core.identity())
            while not self._is_closed:
                self._wakeup.clear()
                await self._take_messages(store, group)
                if not self._may_have_more:
                    return
                await self._wakeup.wait(None)
        except StoreUnavailable:
            pass  # messages that we have not taken are lost, as when a worker dies

    def _on_call_done(self, call: "asyncio.Task[None]") -> None:
        self._calls.pop(call, None)
        if self._may_have_more:
            self._wakeup.set()

    async def _call(self, message: RoomMessage, signal: AbortSignal) -> None:
        CURRENT_SIGNAL.set(signal)  # in the context of this task
        room = self._rooms.get(message.room)
        if room is None or message.signature != room.signature.hash:
            self._emit_failed(
                message, Failure("OtherVersion", "this worker has no such room, or one with other arguments")
            )
            return
        try:
            args, kwargs = room.signature.decode(message.args, limit=MAX_PAYLOAD_LIMIT)
        except Undecodable as error:
            self._emit_failed(message, Failure("Undecodable", f"the arguments cannot be read: {error.reason}"))
            return
        try:
            call = functools.partial(room.function, *args, **kwargs)
            in_place = call if room.is_async else functools.partial(self._threads.run, call)
            await call_with_timeout(in_place, room.timeout_us, signal)
        except asyncio.CancelledError as error:
            if self._is_closed or self._is_cancelled:
                self._emit_failed(message, Failure("Interrupted", "the worker ended before the handler did"))
                raise
            self._emit_failed(message, describe_failure(error), error)  # its own
        except BaseException as error:  # the user's own code, whatever it raises
            self._emit_failed(message, describe_failure(error), error)
        finally:
            self._core.guard.restore_loop()

    def _emit_failed(self, message: RoomMessage, error: Failure, exception: BaseException | None = None) -> None:
        self._failed[message.room] += 1
        self._core.events.emit(
            RoomFailed(
                instance=self._core.identity(),
                room=message.room,
                message=message.id,
                error=error,
                failed=self._failed[message.room],
                exception=exception,
            )
        )
