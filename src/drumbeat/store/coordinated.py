"""Jobs in one store, wake-ups, locks and rooms in another: `Drumbeat("postgresql://...", coordination="redis://...")`.

    jobs, instances, schedules, audit, stats, inspect, inside --> the first store, always
    hints, locks, messages of rooms                           --> the second; hints go by the first while the second is away

What is lost with the second store is speed, held locks and messages, never a job, and never a lease: instances live where the
jobs live. So the second store may be away when a program starts, vanish and come back: it is opened when it can be.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self

from drumbeat.clock import Clock, jittered
from drumbeat.errors import DrumbeatError, StoreUnavailable
from drumbeat.ids import InstanceId
from drumbeat.model.lock import LockInfo, NewTicket, Seen
from drumbeat.model.room import RoomMessage
from drumbeat.service import background
from drumbeat.store.protocol import Audit, Inside, Inspect, Instances, Jobs, Locks, Rooms, Schedules, Stats, Store, Wake
from drumbeat.store.protocol.wake import Given

AGAIN_S = 1.0
BURST_S = 0.002


class Second:
    """The second store, opened when it can be; and the hints that go through it."""

    name = "hints by the second store"

    def __init__(self, open: Callable[[], Awaitable[Store]], clock: Clock) -> None:
        self._open = open
        self._clock = clock
        self._store: Store | None = None
        self._opening = asyncio.Lock()
        self._is_up = False
        self._due: int | None = None
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def store(self) -> Store:
        """Raises:
        StoreUnavailable: it is away.
        """
        async with self._opening:
            if self._store is None:
                self._store = await self._open()
                self._is_up = True
            return self._store

    def tell(self, due: int) -> bool:
        """Give this hint to all who listen. False: not here, the store is away."""
        if self._task is None:
            # Not in a task group: it lives as long as the store does. `close` ends it.
            self._task = asyncio.get_running_loop().create_task(self._send(), name=self.name)
        self._keep(due)
        return self._is_up

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=1)
        if self._store is not None:
            await self._store.close()

    def _keep(self, due: int) -> None:
        self._due = due if self._due is None else min(due, self._due)
        self._news.set()

    async def _send(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            due, self._due = self._due, None
            assert due is not None
            try:
                await (await self.store()).wake.tell(due)
            except DrumbeatError:
                # Away, or not to be used as it is now: hints go by the first store, until this one has taken the one that
                # it did not take.
                self._is_up = False
                await self._clock.sleep(jittered(AGAIN_S))
                self._keep(due)
            else:
                self._is_up = True
                await self._clock.sleep(BURST_S)


class CoordinatedWake:
    def __init__(self, first: Wake, second: Second, clock: Clock) -> None:
        self._first = first
        self._second = second
        self._clock = clock
        first.forward(second.tell)

    @contextlib.asynccontextmanager
    async def listen(self, hear: Callable[[int], None], given: Given | None = None) -> AsyncIterator[str | None]:
        """Both are heard: who enqueues in a transaction of its own, or while the second store is away, speaks by the first."""
        ear = _Ear(self._second, self._clock, lambda store: store.wake.listen(hear))
        async with self._first.listen(hear, given) as address, background(ear):
            await ear.tried.wait()
            yield address

    @contextlib.asynccontextmanager
    async def listen_tickets(self, hear: Callable[[str, int], None]) -> AsyncIterator[str | None]:
        ear = _Ear(self._second, self._clock, lambda store: store.wake.listen_tickets(hear))
        async with background(ear):
            await ear.tried.wait()
            yield None

    @contextlib.asynccontextmanager
    async def listen_rooms(self, hear: Callable[[str], None]) -> AsyncIterator[None]:
        ear = _Ear(self._second, self._clock, lambda store: store.wake.listen_rooms(hear))
        async with background(ear):
            await ear.tried.wait()
            yield

    async def tell(self, run_at: int) -> None:
        if not self._second.tell(run_at):
            await self._first.tell(run_at)

    def forward(self, tell: Callable[[int], bool]) -> None:
        self._first.forward(tell)


class _Ear:
    """Listens to the second store once it can be opened; from then on that store keeps the connection."""

    name = "ear at the second store"

    def __init__(
        self, second: Second, clock: Clock, listen: Callable[[Store], AbstractAsyncContextManager[object]]
    ) -> None:
        self._second = second
        self._clock = clock
        self._listen = listen
        self.tried = asyncio.Event()

    async def run(self) -> None:
        while True:
            try:
                store = await self._second.store()
                async with self._listen(store):
                    self.tried.set()
                    await asyncio.Event().wait()
            except StoreUnavailable:
                self.tried.set()
                await self._clock.sleep(jittered(AGAIN_S))


class CoordinatedLocks:
    """The second store's."""

    def __init__(self, second: Second) -> None:
        self._second = second

    async def enter(self, ticket: NewTicket) -> Seen:
        return await (await self._second.store()).locks.enter(ticket)

    async def look(self, tickets: Sequence[str], *, renew: bool) -> list[Seen]:
        return await (await self._second.store()).locks.look(tickets, renew=renew)

    async def leave(self, tickets: Sequence[str]) -> None:
        await (await self._second.store()).locks.leave(tickets)

    async def release(self, lock: str, ticket: str | None, *, by: str, why: str) -> int:
        return await (await self._second.store()).locks.release(lock, ticket, by=by, why=why)

    async def page(self, *, after: str = "", limit: int = 100, all: bool = False) -> list[LockInfo]:
        return await (await self._second.store()).locks.page(after=after, limit=limit, all=all)

    async def get(self, lock: str) -> LockInfo | None:
        return await (await self._second.store()).locks.get(lock)


class CoordinatedRooms:
    """The second store's. It does not know the instances, nor need it: messages are for names."""

    def __init__(self, second: Second) -> None:
        self._second = second

    async def send(self, messages: Sequence[RoomMessage]) -> None:
        await (await self._second.store()).rooms.send(messages)

    async def take(self, instance: InstanceId, limit: int) -> list[RoomMessage]:
        return await (await self._second.store()).rooms.take(instance, limit)

    async def waiting(self, messages: Sequence[RoomMessage]) -> list[str]:
        return await (await self._second.store()).rooms.waiting(messages)

    async def withdraw(self, messages: Sequence[RoomMessage]) -> list[str]:
        return await (await self._second.store()).rooms.withdraw(messages)

    async def prune(self, age: int, limit: int, *, but: Sequence[InstanceId] = ()) -> int:
        return await (await self._second.store()).rooms.prune(age, limit, but=but)


class CoordinatedStore:
    def __init__(self, first: Store, open_second: Callable[[], Awaitable[Store]], clock: Clock) -> None:
        self._first = first
        self._second = Second(open_second, clock)
        self.url = first.url
        self.jobs: Jobs = first.jobs
        self.instances: Instances = first.instances
        self.stats: Stats = first.stats
        self.inspect: Inspect = first.inspect
        self.inside: Inside = first.inside
        self.schedules: Schedules = first.schedules
        self.audit: Audit = first.audit
        self.locks: Locks = CoordinatedLocks(self._second)
        self.rooms: Rooms = CoordinatedRooms(self._second)
        self.wake: Wake = CoordinatedWake(first.wake, self._second, clock)

    @classmethod
    async def open(cls, first: Store, open_second: Callable[[], Awaitable[Store]], clock: Clock) -> Self:
        """Raises:
        ConfigError: the second store cannot be used at all. That it is away is no error.
        """
        store = cls(first, open_second, clock)
        try:
            with contextlib.suppress(StoreUnavailable):
                await store._second.store()
        except BaseException:
            await store.close()
            raise
        return store

    async def close(self) -> None:
        await self._second.close()
        await self._first.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
