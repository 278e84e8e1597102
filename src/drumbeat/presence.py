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
from drumbeat.errors import StoreError, StoreUnavailable
from drumbeat.ids import InstanceId, new_instance_id
from drumbeat.model.instance import Buried, NewInstance, Peer, Pulse
from drumbeat.model.observer import Observer
from drumbeat.service import LoopThread, Wakeup, background
from drumbeat.settings import Settings
from drumbeat.store.protocol import Store
from drumbeat.store.tally import complete_counts

log = logging.getLogger(__name__)

LEAVE_WITHIN = 5.0
SHORT_GOODBYE = 0.5

Tell = Callable[..., None]
"""Has the household's loop make a call."""


class Household(Protocol):
    """The worker or controller whose heart this is. Called on the loop that `registered` was entered on."""

    def describe(self, id: InstanceId) -> NewInstance: ...

    def on_identity(self, id: InstanceId) -> None:
        """From now on this is the id to claim and write under."""
        ...

    def on_pulse(self, pulse: Pulse) -> None: ...

    def on_lost(self) -> None:
        """Every claim so far belongs to others. `on_identity` follows."""
        ...

    def on_emptied(self) -> None:
        """The store knows nothing of this instance: not that it lived, nor that it died."""
        ...

    def on_buried(self, peer: Peer, buried: Buried) -> None: ...

    def on_hopeless(self, failures: int, reason: str) -> None:
        """The store has taken no beat for so long that there is no use in staying."""
        ...

    def running(self) -> int:
        """How many jobs run now. Called on the heart's own thread."""
        ...


class Companion(Protocol):
    """What lives beside the heart. Called on the heart's loop."""

    def wish(self) -> int | None:
        """For how many microseconds this instance wants to lead the controllers, from the next beat on; None: it does not."""
        ...

    def on_identity(self, id: InstanceId) -> None: ...

    def on_pulse(self, pulse: Pulse, asked_at: float) -> None:
        """The answer to a beat, and the moment of the monotonic clock from before the question."""
        ...

    def on_missed(self) -> None:
        """A beat had no answer, or we were buried."""
        ...

    async def run(self, store: Store) -> None:
        """Until cancelled."""
        ...


class ExitRule:
    """When a store has been away for too long: after `max_failed_beats` failures in a row, or after the time that so many
    heartbeats may take to fail."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._most = settings.max_failed_beats
        self._longest = settings.max_failed_beats * (settings.heartbeat + settings.dead_after / 2)
        self._clock = clock
        self._since = 0.0
        self.failures = 0

    def failed(self) -> bool:
        """One more failure. Whether it is one too many."""
        now = self._clock.monotonic()
        if not self.failures:
            self._since = now
        self.failures += 1
        return self.failures >= self._most or now - self._since >= self._longest

    def reset(self) -> None:
        self.failures = 0


class Presence:
    def __init__(
        self,
        open_store: Callable[[], Coroutine[Any, Any, Store]],
        household: Household,
        settings: Settings,
        clock: Clock,
        *,
        beside: Companion,
        locks: Callable[[Store], Coroutine[Any, Any, None]],
        watch: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self._open_store = open_store
        self._household = household
        self._settings = settings
        self._clock = clock
        self._beside = beside
        self._locks = locks
        self._watch = watch
        self._observer = Observer(settings.dead_after, longest_gap=settings.dead_after / 2)
        self._rule = ExitRule(settings, clock)
        self._has_told = False
        self._count = 0
        self._id = new_instance_id()
        self._wakeup = Wakeup(clock)
        self._uncounted: asyncio.Queue[InstanceId] = asyncio.Queue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leave_within = LEAVE_WITHIN
        self._heart: LoopThread | None = None

    def expect_no_answer(self) -> None:
        """The store is known to be away: say goodbye, but do not wait for it."""
        self._leave_within = SHORT_GOODBYE
        if self._heart is not None:
            self._heart.patience = 2 * SHORT_GOODBYE

    def hurry(self) -> None:
        """Beat now instead of in a while. For any thread."""
        with suppress(RuntimeError):  # that loop is closed
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._wakeup.set)

    @asynccontextmanager
    async def registered(self) -> AsyncIterator["asyncio.Future[None]"]:
        """Be a member of the cluster while the body runs, and say goodbye at its end. The future is done as soon as the store
        knows us: one that is away is waited for."""
        home = asyncio.get_running_loop()
        begun: asyncio.Future[None] = home.create_future()
        tell = functools.partial(_tell, home)
        patience = self._leave_within + 1
        self._heart = LoopThread("drumbeat-heart", lambda: self._live(tell, begun), patience=patience)
        async with background(self._heart):
            yield begun

    async def _live(self, tell: Tell, begun: "asyncio.Future[None]") -> None:
        self._loop = asyncio.get_running_loop()
        async with await self._opened(tell) as store:
            await self._register(store, tell)
            tell(begun.set_result, None)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._beat(store, tell), name="heartbeat")
                    group.create_task(self._beside.run(store), name="beside the heart")
                    group.create_task(self._complete_counts(store), name="counts of the dead")
                    group.create_task(self._locks(store), name="locks")
                    group.create_task(self._watch(), name="watch")
            finally:
                await self._leave(store, "left")

    async def _opened(self, tell: Tell) -> Store:
        while True:
            try:
                return await self._open_store()
            except StoreUnavailable as error:
                self._missed(tell, error)
                await self._clock.sleep(self._settings.heartbeat)

    async def _beat(self, store: Store, tell: Tell) -> None:
        while True:
            self._wakeup.clear()
            asked_at = self._clock.monotonic()
            try:
                async with asyncio.timeout(self._settings.dead_after / 2):
                    pulse = await store.instances.beat(self._id, self._household.running(), lead=self._beside.wish())
            except (StoreUnavailable, TimeoutError) as error:
                self._missed(tell, error)
            else:
                self._rule.reset()
                self._has_told = False
                await self._hear(store, tell, pulse, asked_at)
            await self._wakeup.wait(self._settings.heartbeat)

    async def _hear(self, store: Store, tell: Tell, pulse: Pulse, asked_at: float) -> None:
        if pulse.alive and pulse.beat > self._count:
            self._count = pulse.beat
            self._beside.on_pulse(pulse, asked_at)
            tell(self._household.on_pulse, pulse)
            await self._bury(store, tell, self._observer.look(pulse.peers, asked_at, self._clock.monotonic()))
        else:
            await self._lost(store, tell, pulse)

    async def _lost(self, store: Store, tell: Tell, pulse: Pulse) -> None:
        tell(self._household.on_lost)
        self._beside.on_missed()
        self._observer.missed()
        if pulse.alive:
            facts = {"instance": self._id, "beat": pulse.beat, "remembered": self._count}
            log.error("the store has gone back in time: an older copy of it was restored", extra=facts)
            # What the copy says we hold, others may have at once.
            await self._leave(store, "the store went back in time")
        elif not await self._is_known(store):
            tell(self._household.on_emptied)
        self._id = new_instance_id()
        self._count = 0
        await self._register(store, tell)

    async def _is_known(self, store: Store) -> bool:
        """Whether the store remembers this instance, which it does for a day after its end."""
        try:
            return any(each.id == self._id for each in await store.inspect.instances(all=True))
        except StoreUnavailable:
            return True  # nothing is known, so nothing is said

    async def _register(self, store: Store, tell: Tell) -> None:
        """Patient, because a store that has lost us may be away as well."""
        while True:
            try:
                await store.instances.register(self._household.describe(self._id))
            except StoreUnavailable as error:
                self._missed(tell, error)
                await self._clock.sleep(self._settings.heartbeat)
            else:
                self._beside.on_identity(self._id)
                tell(self._household.on_identity, self._id)
                return

    async def _leave(self, store: Store, why: str) -> None:
        try:
            async with asyncio.timeout(self._leave_within):
                await store.instances.leave(self._id, why)
        except (StoreError, TimeoutError) as error:
            log.warning("could not say goodbye to the store", extra={"instance": self._id, "reason": str(error)})

    def _missed(self, tell: Tell, error: Exception) -> None:
        self._beside.on_missed()
        self._observer.missed()
        if not self._rule.failed():
            return
        reason = str(error) or f"no answer in {self._settings.dead_after / 2:g} s"
        if not self._has_told:
            self._has_told = True
            facts = {"instance": self._id, "failures": self._rule.failures, "reason": reason}
            log.error("the store has taken no heartbeat for long", extra=facts)
        tell(self._household.on_hopeless, self._rule.failures, reason)

    async def _bury(self, store: Store, tell: Tell, dead: list[Peer]) -> None:
        for peer in dead:
            why = f"no heartbeat for {self._settings.dead_after:g} s"
            try:
                buried = await store.instances.bury(peer.id, beat=peer.beat, started=None, why=why)
            except StoreUnavailable:
                return  # still dead at the next look
            if buried.buried:
                self._wakeup.set()  # it may have led: ask for the lead now, and not in a second
                tell(self._household.on_buried, peer, buried)
                self._uncounted.put_nowait(peer.id)

    async def _complete_counts(self, store: Store) -> None:
        """Beside the beats: it may be much."""
        while True:
            await complete_counts(store, await self._uncounted.get())


def _tell(home: asyncio.AbstractEventLoop, call: Callable[..., object], *args: object) -> None:
    """Have the household's loop make this call."""
    with suppress(RuntimeError):  # that loop is closed: nobody listens
        home.call_soon_threadsafe(call, *args)
