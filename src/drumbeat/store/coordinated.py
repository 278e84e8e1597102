"""Jobs in one store; hints, locks and rooms in another: `Drumbeat("postgresql://...", coordination="redis://...")`.

    jobs, limits, instances, schedules, audit, stats, inspect, transactional --> the first store, always
    hints, locks, messages of rooms --> the second; hints go by the first while the second is away

What is lost with the second store is speed, held locks and messages, never a job, and never an instance's lease, which
is where the jobs are. So the second store may be away when a program starts, fail and come back: it is opened when it
answers.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Self, cast

import msgspec

from drumbeat.clock import Clock, jitter
from drumbeat.errors import DrumbeatError, StoreUnavailable
from drumbeat.service import run_in_background
from drumbeat.store.protocol import LockStore, RoomStore, Store, Wake
from drumbeat.store.protocol.wake import Forward, Subscriber

RETRY_DELAY_S = 1.0
BURST_INTERVAL_S = 0.002


class SecondStore:
    """The second store, opened when it answers; and the hints that go through it."""

    name = "hints by the second store"

    def __init__(self, open: Callable[[], Awaitable[Store]], clock: Clock) -> None:
        self._open = open
        self._clock = clock
        self._store: Store | None = None
        self._open_lock = asyncio.Lock()
        self._is_up = False
        self._pending_due: int | None = None
        self._has_pending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def store(self) -> Store:
        """Raises:
        StoreUnavailable: it is away.
        """
        async with self._open_lock:
            if self._store is None:
                self._store = await self._open()
                self._is_up = True
            return self._store

    async def try_open(self) -> None:
        with contextlib.suppress(StoreUnavailable):
            await self.store()

    def notify(self, due: int) -> bool:
        """Send this hint to all subscribers. False: the store is away, send it another way."""
        if self._task is None:
            # Not in a task group: it lives as long as the store. `close` ends it.
            self._task = asyncio.get_running_loop().create_task(self._send(), name=self.name)
        self._remember(due)
        return self._is_up

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=1)
        if self._store is not None:
            await self._store.close()

    def _remember(self, due: int) -> None:
        self._pending_due = due if self._pending_due is None else min(due, self._pending_due)
        self._has_pending.set()

    async def _send(self) -> None:
        while True:
            await self._has_pending.wait()
            self._has_pending.clear()
            due, self._pending_due = self._pending_due, None
            assert due is not None
            try:
                await (await self.store()).wake.notify(due)
            except DrumbeatError:
                # Away, or not usable now: hints go by the first store until this one has taken the hint that failed.
                self._is_up = False
                await self._clock.sleep(jitter(RETRY_DELAY_S))
                self._remember(due)
            else:
                self._is_up = True
                await self._clock.sleep(BURST_INTERVAL_S)


class CoordinatedWake:
    def __init__(self, first: Wake, second: SecondStore, clock: Clock) -> None:
        self._first = first
        self._second = second
        self._clock = clock

    @contextlib.asynccontextmanager
    async def listen(self, subscriber: Subscriber) -> AsyncIterator[str | None]:
        """Job hints come from both stores: the first sends those of callers' own transactions, and all of them while the
        second is away. Ticket and room hints come from the second only, hand-offs from the first only."""
        async with contextlib.AsyncExitStack() as stack:
            address = None
            if subscriber.on_job is not None:
                own = Subscriber(on_job=subscriber.on_job, on_handoff=subscriber.on_handoff)
                address = await stack.enter_async_context(self._first.listen(own))
            others = msgspec.structs.replace(subscriber, on_handoff=None)
            subscription = SecondStoreSubscription(self._second, self._clock, others)
            await stack.enter_async_context(run_in_background(subscription))
            await subscription.attempted.wait()
            yield address

    async def notify(self, run_at: int) -> None:
        if not self._second.notify(run_at):
            await self._first.notify(run_at)


class SecondStoreSubscription:
    """Listens to the second store once it can be opened; from then on that store keeps the connection."""

    name = "subscription to the second store"

    def __init__(self, second: SecondStore, clock: Clock, subscriber: Subscriber) -> None:
        self._second = second
        self._clock = clock
        self._subscriber = subscriber
        self.attempted = asyncio.Event()

    async def run(self) -> None:
        while True:
            try:
                store = await self._second.store()
                async with store.wake.listen(self._subscriber):
                    self.attempted.set()
                    await asyncio.Event().wait()
            except StoreUnavailable:
                self.attempted.set()
                await self._clock.sleep(jitter(RETRY_DELAY_S))


class SecondStorePart:
    """`locks` or `rooms` of the second store. It does not know the instances, and need not: messages are for names."""

    def __init__(self, second: SecondStore, part: str) -> None:
        self._second = second
        self._part = part

    def __getattr__(self, operation: str) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any, **options: Any) -> Any:
            part = getattr(await self._second.store(), self._part)
            return await getattr(part, operation)(*args, **options)

        return call


class CoordinatedStore(Store):
    def __init__(self, first: Store, second: SecondStore, clock: Clock) -> None:
        """Use `open`."""
        self._first = first
        self._second = second
        self.url = first.url
        self.jobs = first.jobs
        self.instances = first.instances
        self.stats = first.stats
        self.inspect = first.inspect
        self.steps = first.steps
        self.dependencies = first.dependencies
        self.workflows = first.workflows
        self.transactional = first.transactional
        self.schedules = first.schedules
        self.audit = first.audit
        self.limits = first.limits
        self.locks = cast(LockStore, SecondStorePart(second, "locks"))
        self.rooms = cast(RoomStore, SecondStorePart(second, "rooms"))
        self.wake = CoordinatedWake(first.wake, second, clock)

    @classmethod
    async def open(
        cls,
        open_first: Callable[[Forward], Awaitable[Store]],
        open_second: Callable[[], Awaitable[Store]],
        clock: Clock,
    ) -> Self:
        """Raises:
        ConfigError: one of the stores cannot be used at all. That the second is away is no error.
        StoreUnavailable: the first is away.
        """
        second = SecondStore(open_second, clock)
        store = cls(await open_first(second.notify), second, clock)
        return await store._open_by(second.try_open())

    async def close(self) -> None:
        await self._second.close()
        await self._first.close()
