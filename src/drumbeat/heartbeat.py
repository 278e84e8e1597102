"""An instance's membership in the cluster: registration, heartbeat, and declaring silent peers dead.

    thread "drumbeat-heartbeat": its own loop, its own store              the worker's loop
    Heartbeat -- direct calls -------> HeartbeatCompanion, InstanceDescription
              -- call_soon_threadsafe ----------------------------------> HeartbeatEvents
    beside it: the companion's services, lock renewal, the loop watch

It has a thread of its own so that a handler that blocks the worker's loop cannot stop it. The companion (the controller) and
lock renewal run on the same loop, for the same reason.

    registered --beat, beat, beat--> left
         \\--declared dead--> registered again, under a new id

The store counts the beats. A count that is not higher than the last one means that an older copy of the store was restored:
what was claimed since then is claimed no more, so this counts as declared dead, too.

The interval to the next beat starts at the end of the last. An instance learns that its leases are lost from the store's
answer, never from silence. After `max_failed_beats` failures in a row, `on_store_unreachable` is called, and again at each
further one: the worker decides whether it may stop. A store that cannot be opened at the start is retried by the same rule.
"""

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol, TypeVar

from drumbeat.clock import Clock
from drumbeat.core.instance import DeadInstanceReport, HeartbeatReply, NewInstance, Peer
from drumbeat.core.observer import Observer
from drumbeat.errors import StoreError, StoreUnavailable
from drumbeat.ids import InstanceId, new_instance_id
from drumbeat.outage import UnreachableRule
from drumbeat.service import ServiceThread, Wakeup, run_in_background
from drumbeat.settings import Settings
from drumbeat.store.lost_counts import recover_counts
from drumbeat.store.protocol import Store

log = logging.getLogger(__name__)

T = TypeVar("T")

LEAVE_TIMEOUT = 5.0
SHORT_LEAVE_TIMEOUT = 0.5

CallOnLoop = Callable[..., None]
"""Schedules a call on the listener's loop."""


class InstanceDescription(Protocol):
    """What is registered of this instance. Called on the heartbeat's thread."""

    def describe_instance(self, id: InstanceId, wake_address: str | None) -> NewInstance: ...

    def count_running(self) -> int:
        """The number of running jobs."""
        ...


class HeartbeatEvents(Protocol):
    """What the heartbeat learns. Called on the loop that entered `register`."""

    def on_identity(self, id: InstanceId, asked_at: float) -> None:
        """From now on this is the id to claim and write under; `asked_at`: the monotonic time before it was registered."""
        ...

    def on_heartbeat(self, reply: HeartbeatReply, asked_at: float) -> None:
        """A beat was accepted; `asked_at`: the monotonic time before it was sent."""
        ...

    def on_lease_lost(self) -> None:
        """Every claim so far is lost. `on_identity` follows."""
        ...

    def on_store_emptied(self) -> None:
        """The store has no record of this instance, neither alive nor dead."""
        ...

    def on_instance_died(self, peer: Peer, report: DeadInstanceReport) -> None: ...

    def on_store_unreachable(self, failures: int, reason: str) -> None:
        """The store has accepted no beat for too long."""
        ...


class HeartbeatCompanion(Protocol):
    """What shares the heartbeat's loop and store: the controller. Called on that loop."""

    def requested_lease_us(self) -> int | None:
        """The leader lease to request with the next beat, in microseconds; None: do not lead."""
        ...

    def on_identity(self, id: InstanceId) -> None: ...

    def on_heartbeat(self, reply: HeartbeatReply, asked_at: float) -> None:
        """A beat was answered; `asked_at`: the monotonic time before it was sent."""
        ...

    def on_missed_heartbeat(self) -> None:
        """A beat had no answer, or this instance was declared dead."""
        ...

    async def run(self, store: Store) -> None:
        """Run until cancelled."""
        ...


class Heartbeat:
    def __init__(
        self,
        open_store: Callable[[], Coroutine[Any, Any, Store]],
        listener: HeartbeatEvents,
        description: InstanceDescription,
        settings: Settings,
        clock: Clock,
        *,
        companion: HeartbeatCompanion,
        run_locks: Callable[[Store], Coroutine[Any, Any, None]],
        run_watch: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self._open_store = open_store
        self._listener = listener
        self._description = description
        self._settings = settings
        self._clock = clock
        self._companion = companion
        self._run_locks = run_locks
        self._run_watch = run_watch
        self._observer = Observer(settings.dead_after, max_gap=settings.dead_after / 2)
        self._rule = UnreachableRule(settings, clock)
        self._has_logged = False
        self._last_beat = 0
        self._id = new_instance_id()
        self._wake_address: str | None = None
        self._wakeup = Wakeup(clock)
        self._uncounted: asyncio.Queue[InstanceId] = asyncio.Queue()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.answered_at: float | None = None
        """When the store has last registered us or accepted a beat, by the monotonic clock."""
        self._leave_timeout = LEAVE_TIMEOUT
        self._thread: ServiceThread | None = None

    def shorten_leave(self) -> None:
        """The store is known to be unreachable: try to deregister, but do not wait for it."""
        self._leave_timeout = SHORT_LEAVE_TIMEOUT
        if self._thread is not None:
            self._thread.stop_timeout = 2 * SHORT_LEAVE_TIMEOUT

    def beat_now(self) -> None:
        """Beat now instead of after the interval. Thread-safe."""
        with suppress(RuntimeError):  # the loop is closed
            if self.loop is not None:
                self.loop.call_soon_threadsafe(self._wakeup.set)

    @asynccontextmanager
    async def register(self, wake_address: str | None) -> AsyncIterator["asyncio.Future[None]"]:
        """Be a member of the cluster while the body runs, and deregister at its end. The future is done once the store has
        registered us; an unreachable store is retried. `wake_address`: where this worker receives notifications."""
        self._wake_address = wake_address
        loop = asyncio.get_running_loop()
        registered: asyncio.Future[None] = loop.create_future()
        call = functools.partial(_call_on_loop, loop)
        self._thread = ServiceThread(
            "drumbeat-heartbeat",
            lambda: self._run(call, registered),
            self._clock,
            stop_timeout=self._leave_timeout + 1,
        )
        async with run_in_background(self._thread):
            yield registered

    async def _run(self, call: CallOnLoop, registered: "asyncio.Future[None]") -> None:
        self.loop = asyncio.get_running_loop()
        async with await self._retry(call, self._open_store) as store:
            await self._register(store, call)
            call(registered.set_result, None)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._beat(store, call), name="heartbeat")
                    group.create_task(self._companion.run(store), name="companion")
                    group.create_task(self._complete_counts(store), name="counts of dead instances")
                    group.create_task(self._run_locks(store), name="locks")
                    if not self._clock.inline:  # else it would watch its own loop
                        group.create_task(self._run_watch(), name="loop watch")
            finally:
                await self._leave(store, "left")

    async def _retry(self, call: CallOnLoop, step: Callable[[], Awaitable[T]]) -> T:
        """Repeat this until the store answers."""
        while True:
            try:
                return await step()
            except StoreUnavailable as error:
                self._handle_failure(call, error)
                await self._clock.sleep(self._settings.heartbeat)

    async def _beat(self, store: Store, call: CallOnLoop) -> None:
        while True:
            self._wakeup.clear()
            asked_at = self._clock.monotonic()
            try:
                async with asyncio.timeout(self._settings.dead_after / 2):
                    reply = await store.instances.heartbeat(
                        self._id, self._description.count_running(), lead=self._companion.requested_lease_us()
                    )
            except (StoreUnavailable, TimeoutError) as error:
                self._handle_failure(call, error)
            else:
                self._rule.reset()
                self._has_logged = False
                self.answered_at = self._clock.monotonic()
                await self._handle_reply(store, call, reply, asked_at)
            await self._wakeup.wait(self._settings.heartbeat)

    async def _handle_reply(self, store: Store, call: CallOnLoop, reply: HeartbeatReply, asked_at: float) -> None:
        if reply.alive and reply.beat > self._last_beat:
            self._last_beat = reply.beat
            self._companion.on_heartbeat(reply, asked_at)
            call(self._listener.on_heartbeat, reply, asked_at)
            await self._declare_dead(
                store, call, self._observer.find_dead(reply.peers, asked_at, self._clock.monotonic())
            )
        else:
            await self._reregister(store, call, reply)

    async def _reregister(self, store: Store, call: CallOnLoop, reply: HeartbeatReply) -> None:
        call(self._listener.on_lease_lost)
        self._companion.on_missed_heartbeat()
        self._observer.reset()
        if reply.alive:
            facts = {"instance": self._id, "beat": reply.beat, "remembered": self._last_beat}
            log.error("an older copy of the store was restored", extra=facts)
            # Frees at once what we hold according to the restored copy.
            await self._leave(store, "an older copy of the store was restored")
        elif not await self._is_known(store):
            call(self._listener.on_store_emptied)
        self._id = new_instance_id()
        self._last_beat = 0
        await self._register(store, call)

    async def _is_known(self, store: Store) -> bool:
        """Whether the store has a record of this instance, which it keeps for a day after its end."""
        try:
            return any(each.id == self._id for each in await store.inspect.list_instances(all=True))
        except StoreUnavailable:
            return True  # unknown: report nothing

    async def _register(self, store: Store, call: CallOnLoop) -> None:
        """Retried: a store that has lost us may be unreachable as well."""
        description = self._description.describe_instance(self._id, self._wake_address)

        async def register() -> float:
            asked_at = self._clock.monotonic()
            await store.instances.register(description)
            return asked_at

        asked_at = await self._retry(call, register)
        self.answered_at = self._clock.monotonic()
        self._companion.on_identity(self._id)
        call(self._listener.on_identity, self._id, asked_at)

    async def _leave(self, store: Store, reason: str) -> None:
        try:
            async with asyncio.timeout(self._leave_timeout):
                await store.instances.deregister(self._id, reason)
        except (StoreError, TimeoutError) as error:
            log.warning("could not deregister from the store", extra={"instance": self._id, "reason": str(error)})

    def _handle_failure(self, call: CallOnLoop, error: Exception) -> None:
        self._companion.on_missed_heartbeat()
        self._observer.reset()
        if not self._rule.record_failure():
            return
        reason = str(error) or f"no answer in {self._settings.dead_after / 2:g} s"
        if not self._has_logged:
            self._has_logged = True
            facts = {"instance": self._id, "failures": self._rule.failures, "reason": reason}
            log.error("the store has accepted no heartbeat for long", extra=facts)
        call(self._listener.on_store_unreachable, self._rule.failures, reason)

    async def _declare_dead(self, store: Store, call: CallOnLoop, dead: list[Peer]) -> None:
        for peer in dead:
            reason = f"no heartbeat for {self._settings.dead_after:g} s"
            try:
                report = await store.instances.declare_dead(peer.id, beat=peer.beat, started=None, reason=reason)
            except StoreUnavailable:
                return  # the next beat tries again
            if report.declared:
                self._wakeup.set()  # it may have been the leader: request the lease now, not in a second
                call(self._listener.on_instance_died, peer, report)
                self._uncounted.put_nowait(peer.id)

    async def _complete_counts(self, store: Store) -> None:
        """In a task of its own: it may take long."""
        while True:
            await recover_counts(store, await self._uncounted.get())


def _call_on_loop(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *args: object) -> None:
    """Schedule this call on another loop."""
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(call, *args)
