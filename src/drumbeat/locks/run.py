"""One run of the keeper: from the first lock that this process wants to some seconds after the last.

It has four parts: one looks and renews, one tells those whose lease is over, one leaves for those who cannot wait for it, and
one sees that nothing is left to do. They live on one loop, with one store: of a thread of their own, or of somebody's who
lives on anyway. A run may move from there to a thread in the middle of its work: all it knows is in the books.
"""

import asyncio
import contextlib
import logging
import math
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any

from drumbeat.clock import Clock
from drumbeat.errors import StoreFull, StoreUnavailable
from drumbeat.locks.books import Books
from drumbeat.locks.place import Place
from drumbeat.service import Patience, Wakeup, background
from drumbeat.store.protocol import Store

log = logging.getLogger(__name__)

IDLE_S = 5.0
GOODBYE_S = 3.0
OpenStore = Callable[[], Coroutine[Any, Any, Store]]


class _Alarm:
    """A service's sleep that other threads may shorten."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wakeup = Wakeup(clock)
        self._loop = asyncio.get_running_loop()
        self._until = -math.inf

    def wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._wakeup.set)
        except RuntimeError:
            pass  # it has just ended: the next run looks at everything

    def expect(self, moment: float) -> None:
        """Be awake at this moment. Nothing is done if that is so anyway."""
        if moment < self._until:
            self.wake()

    def clear(self) -> None:
        self._wakeup.clear()
        self._until = math.inf  # whoever wants something from here on sets it, and the next sleep is none

    async def sleep(self, until: float) -> None:
        self._until = until
        await self._wakeup.wait(None if until == math.inf else until - self._clock.monotonic())


class _Part:
    """A coroutine as a service."""

    def __init__(self, name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.name = name
        self.run = run


class Run:
    def __init__(
        self, books: Books, open_store: OpenStore, clock: Clock, is_over: Callable[["Run", Exception | None], bool]
    ) -> None:
        """`is_over`: asked whether this run may end, and told why if it must."""
        self._books = books
        self._open_store = open_store
        self._clock = clock
        self._is_over = is_over
        self.address: str | None = None
        """Where tickets are called."""
        self.is_ready = False
        self.ready = _promise()
        self.ended: Future[None] = Future()

    def start(self) -> None:
        """In a thread of its own."""
        # Daemon: a program may end without a word; its leases end by themselves.
        threading.Thread(target=self._work, name="drumbeat locks", daemon=True).start()

    async def lodge(self, store: Store) -> None:
        """Here, with the store of somebody else. When this is cancelled, it is not at its end: see `move`."""
        try:
            await self._keep(store)
        except Exception as caught:  # carried to whoever waits; our host goes on
            self._failed(caught)
        self.ended.set_result(None)

    def move(self) -> None:
        """Go on in a thread, after `lodge` was cancelled. Who enters now waits until it listens there."""
        with self._books.mutex:
            self.is_ready = False
            if self.ready.done():
                self.ready = _promise()
            self._books.called("", 0)  # what was called meanwhile has not been heard
        self.start()

    def stop(self) -> None:
        if self.is_ready:
            self._rest.wake()

    def expect(self, awake_at: float, lost_at: float) -> None:
        if self.is_ready:
            self._looks.expect(awake_at)
            self._losses.expect(lost_at)

    def leave_now(self) -> None:
        if self.is_ready:
            self._leaves.wake()

    def _work(self) -> None:
        try:
            asyncio.run(self._live())
        except Exception as caught:  # carried to whoever waits
            self._failed(caught)
        finally:
            self.ended.set_result(None)

    async def _live(self) -> None:
        async with await self._open_store() as store:
            await self._keep(store)

    async def _keep(self, store: Store) -> None:
        self._looks, self._losses, self._leaves, self._rest = [_Alarm(self._clock) for _ in range(4)]
        async with store.wake.listen_tickets(self._called) as self.address:
            self.is_ready = True
            self.ready.set_result(self.address)
            looks, leaves = partial(self._look, store), partial(self._leave, store)
            async with background(_Part("looks", looks), _Part("losses", self._lose), _Part("leaves", leaves)):
                while not self._is_over(self, None):
                    self._rest.clear()
                    await self._rest.sleep(self._clock.monotonic() + IDLE_S)
            await self._leave_last(store)

    def _failed(self, caught: Exception) -> None:
        error = _cause(caught)
        self._is_over(self, error)
        if not self.is_ready:
            self.ready.set_exception(error)
        else:
            log.error("locks are no longer renewed", extra={"reason": str(error)})

    def _called(self, ticket: str, after_us: int) -> None:
        self._looks.expect(self._books.called(ticket, after_us))

    async def _look(self, store: Store) -> None:
        patience = Patience(self._clock, _Renewals())
        while True:
            self._looks.clear()
            asked_at = self._clock.monotonic()
            tickets, renew, next_at = self._books.due(asked_at)
            if not tickets:
                await self._looks.sleep(min(next_at, asked_at + self._books.nap))
                continue
            try:
                seen = await store.locks.look(tickets, renew=renew)
                for place in self._books.told(seen, asked_at, renewed=renew):
                    await self._enter_anew(store, place)
            except StoreUnavailable as error:
                self._books.unanswered(tickets)
                await patience.suffer(error)
                continue
            patience.over()
            if renew:
                for place in self._books.abandoned():
                    self._books.remove(place)
                    self._books.leave(place, sure=True)
                self._losses.wake()

    async def _enter_anew(self, store: Store, place: Place) -> None:
        """A waiter whose lease ended, in an outage or with its store, stands in line again, at the end."""
        assert place.ticket is not None
        asked_at = self._clock.monotonic()
        seen = await store.locks.enter(place.ticket)
        place.trust(asked_at)
        self._books.told([seen], asked_at, renewed=False)

    async def _lose(self) -> None:
        while True:
            self._losses.clear()
            now = self._clock.monotonic()
            await self._losses.sleep(min(self._books.expire(now), now + self._books.nap))

    async def _leave(self, store: Store) -> None:
        patience = Patience(self._clock, _Renewals())
        while True:
            self._leaves.clear()
            asked_at = self._clock.monotonic()
            tickets, next_at = self._books.to_leave(asked_at)
            if not tickets:
                await self._leaves.sleep(next_at)
                continue
            try:
                await store.locks.leave(tickets)
            except StoreUnavailable as error:
                await patience.suffer(error)
                continue
            patience.over()
            self._books.has_left(tickets, asked_at)

    async def _leave_last(self, store: Store) -> None:
        tickets, _ = self._books.to_leave(math.inf)
        if not tickets:
            return
        with contextlib.suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout(GOODBYE_S / 2):
                await store.locks.leave(tickets)
                self._books.has_left(tickets, math.inf)


def _promise() -> "Future[str | None]":
    promise: Future[str | None] = Future()
    promise.set_running_or_notify_cancel()  # nobody can cancel it for the others
    return promise


def _cause(error: Exception) -> Exception:
    """What has gone wrong, without the groups that it came in."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


class _Renewals:
    """A `service.Teller`: locks are kept in any program, and what it tells of is theirs."""

    is_away = False

    def begins(self, part: object, error: StoreUnavailable) -> None:
        is_full = isinstance(error, StoreFull)
        text = "locks cannot be renewed: the store is full" if is_full else "locks cannot be renewed: the store is away"
        log.warning(text, extra={"reason": str(error)})

    def ends(self, part: object) -> None:
        log.info("locks are renewed again")
