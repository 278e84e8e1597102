"""The keeper: renews all tickets of a process in one call, and finds out whose turn has come.

    task --enter, leave--> its loop's store
      |  place                                         keeper's thread, with its own loop and store
      +-------------------> Books <--- renew all, every 5 s: the answer says waiting, granted or lost
                                  <--- look at one: it was called, or a lease ahead of it has ended
                                  <--- leave: for those who were cancelled and cannot wait for it

It lives in a thread of its own, so that a task which blocks its loop loses no lock. That a lease is over is decided by the
local clock, counted from before the last question that was answered: silence of the store is enough. The thread starts with
the first lock and ends some seconds after the last.
"""

import asyncio
import contextlib
import logging
import math
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any

from drumbeat.clock import Clock
from drumbeat.errors import StoreFull, StoreUnavailable
from drumbeat.locks.books import Books
from drumbeat.locks.place import Place, Stage
from drumbeat.model.lock import Seen
from drumbeat.service import Patience, Wakeup, background
from drumbeat.settings import Settings
from drumbeat.store.protocol import Store

log = logging.getLogger(__name__)

IDLE_S = 5.0
GOODBYE_S = 3.0
OpenStore = Callable[[], Coroutine[Any, Any, Store]]


class Keeper:
    """What tasks and threads see of it. One for each app of a process."""

    def __init__(self, open_store: OpenStore, settings: Callable[[], Settings], clock: Clock) -> None:
        self._open_store = open_store
        self._clock = clock
        self._run: _Run | None = None
        self.books = Books(clock, lambda: settings().lock_renew)
        _all.add(self)

    async def ready(self) -> str | None:
        """Start the thread if it does not run; gives the address at which tickets are called.

        Raises what opening a store raises.
        """
        with self.books.mutex:
            if self._run is None:
                self._run = _Run(self.books, self._open_store, self._clock, self._is_over)
                self._run.start()
            run = self._run
        return run.address if run.is_ready else await asyncio.wrap_future(run.ready)

    def entered(self, place: Place, seen: Seen, asked_at: float) -> None:
        """The store has answered its enter."""
        awake_at = self.books.entered(place, seen, asked_at)
        if (run := self._run) is not None:
            run.expect(awake_at, place.trusted_until)

    def give_up(self, place: Place) -> None:
        """Remove it and leave the line for it, at once, without anybody waiting for that. Harmless twice."""
        sure = place.stage is not Stage.ENTERING
        if self.books.remove(place) and place.ticket is not None:
            self.leave(place, sure=sure)

    def leave(self, place: Place, *, sure: bool = True) -> None:
        """Have the thread tell the store that this ticket has left."""
        self.books.leave(place, sure=sure)
        if (run := self._run) is not None:
            run.leave_now()

    def when_free(self, call: Callable[[], object]) -> None:
        """Have this called when this process holds no lock, by whichever thread leaves last; now, if that is so."""
        self.books.when_free(call)

    async def close(self) -> None:
        """End the thread, unless something is held or wanted."""
        run = self._run
        if run is None or not self.books.is_empty:
            return
        run.stop()
        await asyncio.wait([asyncio.wrap_future(run.ended)], timeout=GOODBYE_S)

    def forget(self) -> None:
        """In a forked child: neither the thread nor what it keeps is here."""
        self._run = None
        self.books.begin_anew()

    def _is_over(self, run: "_Run", error: Exception | None) -> bool:
        """Whether this run may end, because nothing is left to keep or it has failed; the next lock starts another."""
        with self.books.mutex:
            if error is not None:
                self.books.fail(error)
            elif not self.books.is_empty:
                return False
            if self._run is run:
                self._run = None
            return True


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


class _Run:
    """One life of the keeper's thread."""

    def __init__(
        self, books: Books, open_store: OpenStore, clock: Clock, is_over: Callable[["_Run", Exception | None], bool]
    ) -> None:
        self._books = books
        self._open_store = open_store
        self._clock = clock
        self._is_over = is_over
        self.address: str | None = None
        self.is_ready = False
        self.ready: Future[str | None] = Future()
        self.ended: Future[None] = Future()

    def start(self) -> None:
        self.ready.set_running_or_notify_cancel()  # nobody can cancel it for the others
        # Daemon: a program may end without a word; its leases end by themselves.
        threading.Thread(target=self._work, name="drumbeat locks", daemon=True).start()

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
            asyncio.run(self._main())
        except Exception as caught:  # carried to whoever waits
            error = _cause(caught)
            self._is_over(self, error)
            if not self.is_ready:
                self.ready.set_exception(error)
            else:
                log.error("locks are no longer renewed", extra={"reason": str(error)})
        finally:
            self.ended.set_result(None)

    async def _main(self) -> None:
        self._looks, self._losses, self._leaves, self._rest = [_Alarm(self._clock) for _ in range(4)]
        async with await self._open_store() as store, store.wake.listen_tickets(self._called) as self.address:
            self.is_ready = True
            self.ready.set_result(self.address)
            looks, leaves = partial(self._look, store), partial(self._leave, store)
            async with background(_Part("looks", looks), _Part("losses", self._lose), _Part("leaves", leaves)):
                while not self._is_over(self, None):
                    self._rest.clear()
                    await self._rest.sleep(self._clock.monotonic() + IDLE_S)
            await self._leave_last(store)

    def _called(self, ticket: str, after_us: int) -> None:
        self._looks.expect(self._books.called(ticket, after_us))

    async def _look(self, store: Store) -> None:
        patience = Patience(self._clock, down=_down, up=_up)
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
            except (StoreUnavailable, StoreFull) as error:
                self._books.unanswered(tickets)
                await patience.suffer(StoreUnavailable(error.reason))
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
        patience = Patience(self._clock, down=_down, up=_up)
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
        with contextlib.suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout(GOODBYE_S / 2):
                await store.locks.leave(tickets)
                self._books.has_left(tickets, math.inf)


_all: "weakref.WeakSet[Keeper]" = weakref.WeakSet()


def _cause(error: Exception) -> Exception:
    """What has gone wrong, without the groups that it came in."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _down(error: StoreUnavailable) -> None:
    log.warning("locks cannot be renewed: the store is away", extra={"reason": str(error)})


def _up() -> None:
    log.info("locks are renewed again")


def _forget_all() -> None:
    for keeper in list(_all):
        keeper.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
