"""Hints across processes: NOTIFY with the smallest due moment, heard by every worker that listens.

    add --commit--> Announcer --NOTIFY "run_at sender"--> Link of each worker --> hear(run_at)

A NOTIFY takes a lock that all of them share, so it is no part of a transaction that stores jobs, but for a single job of a
lone caller, or after a silence, when nobody else is at it: there it saves a round trip. Bursts are joined: the first is sent
at once, what follows within some milliseconds goes out together at their end, so that none is lost and a flood of enqueues is
not a flood of hints. Whoever listens in the same store is told without the detour, and does not hear it twice.

A loop may run no longer than the call that it was started for (`run_until_complete` for each enqueue). So the last call under
way does not return before its hint is sent: `settle`.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from functools import partial

from drumbeat.clock import Clock, jittered
from drumbeat.errors import StoreError, StoreUnavailable
from drumbeat.model.room import hinted
from drumbeat.service import Wakeup, background
from drumbeat.store.postgres.connections import Link, Plans, Session
from drumbeat.store.postgres.statements import SchemaSql
from drumbeat.store.protocol.wake import Given

BURST_S = 0.002
SETTLE_TIMEOUT = 1.0
CHECK_S = 20.0
"""A connection that only listens would never notice that its other end is gone."""
RETRY_S = 0.5
UNHEARD_S = 0.5
"""Where nothing can be heard, a hint comes so often without cause."""
Hear = Callable[[int], None]
HearTicket = Callable[[str, int], None]
HearRoom = Callable[[str], None]


class Announcer:
    """Tells workers; lives as long as its store."""

    def __init__(self, link: Link, sql: SchemaSql, channel: str, clock: Clock) -> None:
        self._link = link
        self._sql = sql
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._due: int | None = None
        self._told_at = float("-inf")
        self._hurry = Wakeup(clock)
        self._closed = False
        self.channel = channel
        self._sender = os.urandom(6).hex()
        self.listeners: list[Hear] = []
        self.inner: list[Hear] = []
        """Parts of this store that want to know as well."""
        self.outward: Callable[[int], bool] | None = None
        """Another way to all who listen, taken while it works."""

    def voice(self, *, alone: bool) -> str | None:
        """Whose hint a statement that stores a job may send with its commit; None: it shall not, or is not `alone` and in the
        middle of a burst."""
        if self._closed or self._task is not None or self.outward is not None:
            return None
        return self._sender if alone or self._pause() <= 0 else None

    def tell(self, due: int, *, told: bool = False) -> None:
        """Jobs with this due moment are stored and visible; `told`: by `voice`, all others have heard of it."""
        self._hear(due)
        if told:
            self._told_at = self._clock.monotonic()
            return
        if self.outward is not None and self.outward(due):
            return
        self._due = due if self._due is None else min(due, self._due)
        if self._task is None and not self._closed:
            # Not in a task group: several calls share it, none of which may take it down. `settle` and `close` end it.
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._send(), name="drumbeat announcer")

    async def settle(self) -> None:
        """Return when no hint waits to be sent; not much later than that if the server does not take it."""
        if (task := self._task) is not None:
            self._hurry.set()
            await asyncio.wait([task], timeout=SETTLE_TIMEOUT)

    def heard(self, payload: str) -> None:
        """A NOTIFY has come. Anybody may send one: what is no number means "look"."""
        due, _, sender = payload.partition(" ")
        if sender != self._sender:
            self._hear(int(due) if due.isdigit() else 0)

    async def close(self) -> None:
        """Send what is waiting, if the server is there."""
        self._closed = True
        self._hurry.set()
        if (task := self._task) is not None:
            await asyncio.wait([task], timeout=SETTLE_TIMEOUT)
            task.cancel()

    def _hear(self, due: int) -> None:
        for hear in [*self.inner, *self.listeners]:
            hear(due)

    async def _send(self) -> None:
        try:
            while self._due is not None:
                if (pause := self._pause()) > 0:
                    await self._hurry.wait(pause)
                payload, self._due = f"{self._due} {self._sender}", None
                # Lost with the server: whoever would have heard it polls.
                with contextlib.suppress(StoreError):
                    await self._link.call(partial(self._notify, payload), plans=Plans.EITHER)
                self._told_at = self._clock.monotonic()
        finally:
            self._task = None
            self._hurry.clear()

    def _pause(self) -> float:
        """Seconds until the end of the burst; not above 0: there is none."""
        return self._told_at + BURST_S - self._clock.monotonic()

    async def _notify(self, payload: str, session: Session) -> None:
        await session.execute(self._sql.notify, self.channel, payload)


class PostgresWake:
    """The listening end."""

    def __init__(self, link: Link, announcer: Announcer, clock: Clock, *, namespace: str) -> None:
        self._link = link
        self._announcer = announcer
        self._clock = clock
        self._tickets = f"{namespace}.locks"
        self._ticket_listeners: list[HearTicket] = []
        self._rooms = f"{namespace}.rooms"
        self._room_listeners: list[HearRoom] = []

    async def tell(self, run_at: int) -> None:
        self._announcer.tell(run_at)

    def forward(self, tell: Callable[[int], bool]) -> None:
        self._announcer.outward = tell

    @contextlib.asynccontextmanager
    async def listen(self, hear: Hear, given: Given | None = None) -> AsyncIterator[str | None]:
        """Call `hear(run_at)` for every hint. Behind a pooler of transactions there are only this store's own, and the
        clock's: a worker that hears nothing from others has to look more often."""
        self._announcer.listeners.append(hear)
        try:
            async with self._listening(self._announcer.channel, self._announcer.heard, hear):
                yield None
        finally:
            self._announcer.listeners.remove(hear)
            if not self._announcer.listeners:
                self._link.forget(self._announcer.channel)

    @contextlib.asynccontextmanager
    async def listen_tickets(self, hear: HearTicket) -> AsyncIterator[str | None]:
        """Call `hear(ticket, after)` for every hint, of whichever process; what cannot be heard is looked for from time to
        time, as with `listen`."""
        self._ticket_listeners.append(hear)
        try:
            async with self._listening(self._tickets, self._heard_ticket, lambda _due: hear("", 0)):
                yield None
        finally:
            self._ticket_listeners.remove(hear)
            if not self._ticket_listeners:
                self._link.forget(self._tickets)

    def _heard_ticket(self, payload: str) -> None:
        ticket, _, after = payload.partition(" ")
        for hear in list(self._ticket_listeners):
            hear(ticket, int(after) if after.isdigit() else 0)

    @contextlib.asynccontextmanager
    async def listen_rooms(self, hear: HearRoom) -> AsyncIterator[None]:
        """Call `hear(instance)` for every hint; what cannot be heard is looked for from time to time, as with `listen`."""
        self._room_listeners.append(hear)
        try:
            async with self._listening(self._rooms, self._heard_room, lambda _due: hear("")):
                yield
        finally:
            self._room_listeners.remove(hear)
            if not self._room_listeners:
                self._link.forget(self._rooms)

    def _heard_room(self, payload: str) -> None:
        for hear in list(self._room_listeners):
            for instance in hinted(payload):
                hear(instance)

    @contextlib.asynccontextmanager
    async def _listening(self, channel: str, heard: Callable[[str], None], look: Hear) -> AsyncIterator[None]:
        """`heard` is called with every NOTIFY, `look(0)` when some may have been missed."""
        if not self._link.pooled:
            try:
                await self._link.listen(channel, heard)
            except StoreUnavailable:
                self._link.lost.set()
        async with background(_Deaf(self._clock, look) if self._link.pooled else _Ear(self._link, self._clock, look)):
            yield


class _Ear:
    """Keeps the connection that listens: opened anew when it is lost, and looked after when it is silent."""

    name = "drumbeat ear"

    def __init__(self, link: Link, clock: Clock, hear: Hear) -> None:
        self._link = link
        self._clock = clock
        self._hear = hear

    async def run(self) -> None:
        while True:
            was_lost = await self._silence()
            self._link.lost.clear()
            try:
                await self._link.check()
            except StoreUnavailable:
                self._link.lost.set()
                await self._clock.sleep(jittered(RETRY_S))
                continue
            if was_lost:
                self._hear(0)  # what was said meanwhile was not heard

    async def _silence(self) -> bool:
        """Until the connection is lost, or for a while: whether it was lost. Its other ears clear the same flag."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CHECK_S):
                await self._link.lost.wait()
                return True
        return False


class _Deaf:
    """Stands in for an ear where LISTEN cannot be used: says "look" from time to time."""

    name = "drumbeat deaf ear"

    def __init__(self, clock: Clock, hear: Hear) -> None:
        self._clock = clock
        self._hear = hear

    async def run(self) -> None:
        while True:
            await self._clock.sleep(jittered(UNHEARD_S))
            self._hear(0)
