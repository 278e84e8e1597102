"""Messages of rooms: taken when a hint says so, or every few seconds, and handled beside the jobs.

    hint, or POLL --> take --> a call of the handler, on the loop or in a thread --> ended, or RoomFailed

A message is out of the store before its handler is called: whatever happens, nobody gets it again. At most MOST are handled
at once; the rest waits in the store. A worker that drains leaves its rooms first, so that nobody sends it more, and handles
what was sent before. Jobs know nothing of this.
"""

import asyncio
import functools
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from drumbeat.clock import Clock, jittered
from drumbeat.codec import Undecodable
from drumbeat.durations import text
from drumbeat.errors import StoreUnavailable
from drumbeat.events import Events, RoomFailed
from drumbeat.ids import InstanceId
from drumbeat.model.job import Failure
from drumbeat.model.room import RoomMessage
from drumbeat.service import Wakeup
from drumbeat.settings import MOST_PAYLOAD
from drumbeat.store.protocol import Store
from drumbeat.tasks.room import Room
from drumbeat.worker.ending import failure
from drumbeat.worker.loops import guest_context
from drumbeat.worker.threads import Threads

MOST = 100
POLL = 3.0


class Rooms:
    """The rooms that a worker is in."""

    def __init__(
        self,
        rooms: Iterable[Room[..., Any]],
        clock: Clock,
        events: Events,
        threads: Threads,
        identity: Callable[[], InstanceId],
        mend: Callable[[], None] = lambda: None,
    ) -> None:
        """`mend` is called when a handler has ended, to put back what it has changed of the process."""
        self._mend = mend
        self._rooms = {room.name: room for room in rooms}
        self._clock = clock
        self._events = events
        self._threads = threads
        self._identity = identity
        self._wakeup = Wakeup(clock)
        self._calls: set[asyncio.Task[None]] = set()
        self._failed: Counter[str] = Counter()
        self._may_have_more = False
        self._is_stopping = False
        self._is_over = False
        self._is_cancelled = False

    @property
    def signatures(self) -> dict[str, str]:
        """What others must know to send us messages: none, once we stop."""
        return {} if self._is_stopping else {name: room.signature.hash for name, room in self._rooms.items()}

    @property
    def functions(self) -> dict[str, Callable[..., Any]]:
        return {name: room.function for name, room in self._rooms.items()}

    @property
    def running(self) -> int:
        """How many messages are being handled."""
        return len(self._calls)

    def stop(self) -> None:
        """Leave the rooms, and end with what was sent before."""
        self._is_stopping = True
        self._wakeup.set()

    def interrupt(self) -> None:
        """The end of patience: end what runs."""
        self._is_over = True
        self._wakeup.set()
        for call in tuple(self._calls):
            call.cancel()

    async def run(self, store: Store) -> None:
        """Until stopped, and the last call has ended."""
        if not self._rooms:
            return
        async with asyncio.TaskGroup() as group, store.wake.listen_rooms(self._hear):
            try:
                await self._work(store, group)
                await self._leave(store, group)
            except BaseException:
                self._is_cancelled = True  # before the calls hear of it
                raise

    async def _work(self, store: Store, group: asyncio.TaskGroup) -> None:
        while not self._is_stopping:
            self._wakeup.clear()
            try:
                await self._serve(store, group)
            except StoreUnavailable:
                pass  # the worker's own calls tell of it; we look again
            if not self._is_stopping:
                await self._wakeup.wait(jittered(POLL))

    def _hear(self, instance: str) -> None:
        if instance in ("", self._identity()):
            self._wakeup.set()

    async def _serve(self, store: Store, group: asyncio.TaskGroup) -> None:
        """Take as many as can be handled now. If there may be more, the end of a call wakes us."""
        free = MOST - len(self._calls)
        if not free:
            return
        messages = await store.rooms.take(self._identity(), free)
        self._may_have_more = len(messages) == free
        for message in messages:
            call = group.create_task(self._call(message), name=f"room {message.room}", context=guest_context())
            self._calls.add(call)
            call.add_done_callback(self._ended)

    async def _leave(self, store: Store, group: asyncio.TaskGroup) -> None:
        """Nobody is to send us more. What was sent before is still ours."""
        try:
            await store.instances.leave_rooms(self._identity())
            while not self._is_over:
                self._wakeup.clear()
                await self._serve(store, group)
                if not self._may_have_more:
                    return
                await self._wakeup.wait(None)
        except StoreUnavailable:
            pass  # what we have not taken is lost, as with a worker that dies

    def _ended(self, call: "asyncio.Task[None]") -> None:
        self._calls.discard(call)
        if self._may_have_more:
            self._wakeup.set()

    async def _call(self, message: RoomMessage) -> None:
        room = self._rooms.get(message.room)
        if room is None or message.signature != room.signature.hash:
            self._tell(message, Failure("OtherVersion", "this worker has no such room, or one with other arguments"))
            return
        try:
            args, kwargs = room.signature.decode(message.args, limit=MOST_PAYLOAD)
        except Undecodable as error:
            self._tell(message, Failure("Undecodable", f"the arguments cannot be read: {error.reason}"))
            return
        try:
            await self._attempt(room, functools.partial(room.function, *args, **kwargs))
        except asyncio.CancelledError as error:
            if self._is_over or self._is_cancelled:
                self._tell(message, Failure("Interrupted", "the worker ended before the handler did"))
                raise
            self._tell(message, failure(error), error)  # its own
        except BaseException as error:  # the user's own code, whatever it raises
            self._tell(message, failure(error), error)
        finally:
            self._mend()

    async def _attempt(self, room: Room[..., Any], call: Callable[[], Any]) -> None:
        limit = None if room.timeout_us is None else room.timeout_us / 1e6
        try:
            async with asyncio.timeout(limit) as patience:
                if room.is_async:
                    await call()
                else:
                    await self._threads.run(call)
        except TimeoutError:
            if not patience.expired():
                raise
            raise TimeoutError(f"timed out after {text(room.timeout_us or 0)}") from None

    def _tell(self, message: RoomMessage, error: Failure, exception: BaseException | None = None) -> None:
        self._failed[message.room] += 1
        self._events.emit(
            RoomFailed(
                instance=self._identity(),
                room=message.room,
                message=message.id,
                error=error,
                failed=self._failed[message.room],
                exception=exception,
            )
        )
