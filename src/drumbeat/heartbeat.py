"""An instance's place in the cluster: registration, heartbeat, and the burial of those whose heart stands still.

It lives in a thread of its own, with its own event loop and its own connection, so that a handler which blocks the worker's
loop cannot stop the heart. What it hears is carried to the worker's loop by `call_soon_threadsafe`. Beside it, on the same loop
and with the same store, lives what must not be stopped either: the `Companion`, and what renews locks.

    registered --beat, beat, beat--> left
         \\--told that it was buried--> registered anew, under a new id

The store counts the beats. A count that is not higher than the last one means that the store is an older copy of itself: what
was claimed since then is claimed no more, so that is a burial as well.

Each beat is timed from the end of the last. An instance learns that its leases are lost from the store's answer, never from
silence. After `max_failed_beats` failures in a row, `on_hopeless` is called (again at each further one): the worker decides
whether it may leave. A store that cannot be opened at the start is waited for in the same way, by the same rule.
"""

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

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

LEAVE_TIMEOUT = 5.0
SHORT_LEAVE_TIMEOUT = 0.5

CallOnLoop = Callable[..., None]
"""Has the household's loop make a call."""


class HeartbeatEvents(Protocol):
    """The worker or controller whose heart this is. Called on the loop that `registered` was entered on."""

    def describe_instance(self, id: InstanceId) -> NewInstance: ...

    def on_identity(self, id: InstanceId) -> None:
        """From now on this is the id to claim and write under."""
        ...

    def on_heartbeat(self, pulse: HeartbeatReply) -> None: ...

    def on_lease_lost(self) -> None:
        """Every claim so far belongs to others. `on_identity` follows."""
        ...

    def on_store_emptied(self) -> None:
        """The store knows nothing of this instance: not that it lived, nor that it died."""
        ...

    def on_instance_died(self, peer: Peer, buried: DeadInstanceReport) -> None: ...

    def on_store_unreachable(self, failures: int, reason: str) -> None:
        """The store has taken no beat for so long that there is no use in staying."""
        ...

    def count_running(self) -> int:
        """How many jobs run now. Called on the heart's own thread."""
        ...


class HeartbeatCompanion(Protocol):
    """What lives beside the heart. Called on the heart's loop."""

    def requested_lease_us(self) -> int | None:
        """For how many microseconds this instance wants to lead the controllers, from the next beat on; None: it does not."""
        ...

    def on_identity(self, id: InstanceId) -> None: ...

    def on_heartbeat(self, pulse: HeartbeatReply, asked_at: float) -> None:
        """The answer to a beat, and the moment of the monotonic clock from before the question."""
        ...

    def on_missed_heartbeat(self) -> None:
        """A beat had no answer, or we were buried."""
        ...

    async def run(self, store: Store) -> None:
        """Until cancelled."""
        ...


class Heartbeat:
    def __init__(
        self,
        open_store: Callable[[], Coroutine[Any, Any, Store]],
        listener: HeartbeatEvents,
        settings: Settings,
        clock: Clock,
        *,
        companion: HeartbeatCompanion,
        run_locks: Callable[[Store], Coroutine[Any, Any, None]],
        run_watch: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self._open_store = open_store
        self._listener = listener
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
        self._wakeup = Wakeup(clock)
        self._uncounted: asyncio.Queue[InstanceId] = asyncio.Queue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leave_timeout = LEAVE_TIMEOUT
        self._thread: ServiceThread | None = None

    def shorten_leave(self) -> None:
        """The store is known to be away: say goodbye, but do not wait for it."""
        self._leave_timeout = SHORT_LEAVE_TIMEOUT
        if self._thread is not None:
            self._thread.stop_timeout = 2 * SHORT_LEAVE_TIMEOUT

    def beat_now(self) -> None:
        """Beat now instead of in a while. For any thread."""
        with suppress(RuntimeError):  # that loop is closed
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._wakeup.set)

    @asynccontextmanager
    async def register(self) -> AsyncIterator["asyncio.Future[None]"]:
        """Be a member of the cluster while the body runs, and say goodbye at its end. The future is done as soon as the store
        knows us: one that is away is waited for."""
        home = asyncio.get_running_loop()
        begun: asyncio.Future[None] = home.create_future()
        tell = functools.partial(_call_on_loop, home)
        patience = self._leave_timeout + 1
        self._thread = ServiceThread("drumbeat-heart", lambda: self._run(tell, begun), stop_timeout=patience)
        async with run_in_background(self._thread):
            yield begun

    async def _run(self, tell: CallOnLoop, begun: "asyncio.Future[None]") -> None:
        self._loop = asyncio.get_running_loop()
        async with await self._open(tell) as store:
            await self._register(store, tell)
            tell(begun.set_result, None)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._beat(store, tell), name="heartbeat")
                    group.create_task(self._companion.run(store), name="beside the heart")
                    group.create_task(self._complete_counts(store), name="counts of the dead")
                    group.create_task(self._run_locks(store), name="locks")
                    group.create_task(self._run_watch(), name="watch")
            finally:
                await self._leave(store, "left")

    async def _open(self, tell: CallOnLoop) -> Store:
        while True:
            try:
                return await self._open_store()
            except StoreUnavailable as error:
                self._handle_failure(tell, error)
                await self._clock.sleep(self._settings.heartbeat)

    async def _beat(self, store: Store, tell: CallOnLoop) -> None:
        while True:
            self._wakeup.clear()
            asked_at = self._clock.monotonic()
            try:
                async with asyncio.timeout(self._settings.dead_after / 2):
                    pulse = await store.instances.heartbeat(
                        self._id, self._listener.count_running(), lead=self._companion.requested_lease_us()
                    )
            except (StoreUnavailable, TimeoutError) as error:
                self._handle_failure(tell, error)
            else:
                self._rule.reset()
                self._has_logged = False
                await self._handle_reply(store, tell, pulse, asked_at)
            await self._wakeup.wait(self._settings.heartbeat)

    async def _handle_reply(self, store: Store, tell: CallOnLoop, pulse: HeartbeatReply, asked_at: float) -> None:
        if pulse.alive and pulse.beat > self._last_beat:
            self._last_beat = pulse.beat
            self._companion.on_heartbeat(pulse, asked_at)
            tell(self._listener.on_heartbeat, pulse)
            await self._declare_dead(
                store, tell, self._observer.find_dead(pulse.peers, asked_at, self._clock.monotonic())
            )
        else:
            await self._reregister(store, tell, pulse)

    async def _reregister(self, store: Store, tell: CallOnLoop, pulse: HeartbeatReply) -> None:
        tell(self._listener.on_lease_lost)
        self._companion.on_missed_heartbeat()
        self._observer.reset()
        if pulse.alive:
            facts = {"instance": self._id, "beat": pulse.beat, "remembered": self._last_beat}
            log.error("the store has gone back in time: an older copy of it was restored", extra=facts)
            # What the copy says we hold, others may have at once.
            await self._leave(store, "the store went back in time")
        elif not await self._is_known(store):
            tell(self._listener.on_store_emptied)
        self._id = new_instance_id()
        self._last_beat = 0
        await self._register(store, tell)

    async def _is_known(self, store: Store) -> bool:
        """Whether the store remembers this instance, which it does for a day after its end."""
        try:
            return any(each.id == self._id for each in await store.inspect.list_instances(all=True))
        except StoreUnavailable:
            return True  # nothing is known, so nothing is said

    async def _register(self, store: Store, tell: CallOnLoop) -> None:
        """Patient, because a store that has lost us may be away as well."""
        while True:
            try:
                await store.instances.register(self._listener.describe_instance(self._id))
            except StoreUnavailable as error:
                self._handle_failure(tell, error)
                await self._clock.sleep(self._settings.heartbeat)
            else:
                self._companion.on_identity(self._id)
                tell(self._listener.on_identity, self._id)
                return

    async def _leave(self, store: Store, reason: str) -> None:
        try:
            async with asyncio.timeout(self._leave_timeout):
                await store.instances.deregister(self._id, reason)
        except (StoreError, TimeoutError) as error:
            log.warning("could not say goodbye to the store", extra={"instance": self._id, "reason": str(error)})

    def _handle_failure(self, tell: CallOnLoop, error: Exception) -> None:
        self._companion.on_missed_heartbeat()
        self._observer.reset()
        if not self._rule.record_failure():
            return
        reason = str(error) or f"no answer in {self._settings.dead_after / 2:g} s"
        if not self._has_logged:
            self._has_logged = True
            facts = {"instance": self._id, "failures": self._rule.failures, "reason": reason}
            log.error("the store has taken no heartbeat for long", extra=facts)
        tell(self._listener.on_store_unreachable, self._rule.failures, reason)

    async def _declare_dead(self, store: Store, tell: CallOnLoop, dead: list[Peer]) -> None:
        for peer in dead:
            reason = f"no heartbeat for {self._settings.dead_after:g} s"
            try:
                buried = await store.instances.declare_dead(peer.id, beat=peer.beat, started=None, reason=reason)
            except StoreUnavailable:
                return  # still dead at the next look
            if buried.declared:
                self._wakeup.set()  # it may have led: ask for the lead now, and not in a second
                tell(self._listener.on_instance_died, peer, buried)
                self._uncounted.put_nowait(peer.id)

    async def _complete_counts(self, store: Store) -> None:
        """Beside the beats: it may be much."""
        while True:
            await recover_counts(store, await self._uncounted.get())


def _call_on_loop(home: asyncio.AbstractEventLoop, call: Callable[..., object], *args: object) -> None:
    """Have the household's loop make this call."""
    with suppress(RuntimeError):  # that loop is closed: nobody listens
        home.call_soon_threadsafe(call, *args)
