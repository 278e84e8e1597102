"""The keeper: renews all tickets of a process in one call, and finds out whose turn has come.

    task --enter, leave--> its loop's store
      |  place                                         keeper's thread, with its own loop and store; or the heart's
      +-------------------> Books <--- renew all, every 5 s: the answer says waiting, granted or lost
                                  <--- look at one: it was called, or a lease ahead of it has ended
                                  <--- leave: for those who were cancelled and cannot wait for it

It does not live on the loop of the tasks, so that a task which blocks its loop loses no lock. That a lease is over is decided
by the local clock, counted from before the last question that was answered: silence of the store is enough. A run (`run.py`)
starts with the first lock and ends some seconds after the last: where a worker's heart beats, on its loop and with its store,
which saves a connection; else in a thread of its own.
"""

import asyncio
import os
import weakref
from collections import deque
from collections.abc import Callable

from drumbeat.clock import Clock
from drumbeat.locks.books import Books
from drumbeat.locks.place import Place, Stage
from drumbeat.locks.run import GOODBYE_S, OpenStore, Run
from drumbeat.model.lock import Seen
from drumbeat.settings import Settings
from drumbeat.store.protocol import Store


class Keeper:
    """What tasks and threads see of it. One for each app of a process."""

    def __init__(self, open_store: OpenStore, settings: Callable[[], Settings], clock: Clock) -> None:
        self._open_store = open_store
        self._clock = clock
        self._run: Run | None = None
        self._lodging: _Lodging | None = None
        self.books = Books(clock, lambda: settings().lock_renew)
        _all.add(self)

    async def ready(self) -> str | None:
        """Begin a run if there is none; gives the address at which tickets are called.

        Raises what opening a store raises.
        """
        with self.books.mutex:
            if self._run is None:
                self._run = Run(self.books, self._open_store, self._clock, self._is_over)
                if self._lodging is None or not self._lodging.take_in(self._run):
                    self._run.start()
            run = self._run
        return run.address if run.is_ready else await asyncio.wrap_future(run.ready)

    async def lodge(self, store: Store) -> None:
        """Until cancelled, runs are on this loop and with this store, which must not be those of tasks. What is held or wanted
        at the end goes on in a thread."""
        lodging = _Lodging()
        with self.books.mutex:
            self._lodging = lodging
        try:
            while True:
                await (await lodging.wanted()).lodge(store)
                lodging.over()
        finally:
            with self.books.mutex:
                if self._lodging is lodging:
                    self._lodging = None
            for run in lodging.runs:
                if self.books.is_done and self._is_over(run, None):
                    run.ended.set_result(None)
                else:
                    run.move()

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
        self._lodging = None
        self.books.begin_anew()

    def _is_over(self, run: Run, error: Exception | None) -> bool:
        """Whether this run may end, because nothing is left to keep or it has failed; the next lock begins another."""
        with self.books.mutex:
            if error is not None:
                self.books.fail(error)
            elif not self.books.is_empty:
                return False
            if self._run is run:
                self._run = None
            return True


class _Lodging:
    """Room for runs beside somebody who lives on."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._called = asyncio.Event()
        self.runs: deque[Run] = deque()
        """The one that is here, and behind it those that come when it has ended."""

    def take_in(self, run: Run) -> bool:
        """Called by any thread, with the mutex held. False: that loop is closed."""
        self.runs.append(run)
        try:
            self._loop.call_soon_threadsafe(self._called.set)
        except RuntimeError:
            self.runs.remove(run)
            return False
        return True

    async def wanted(self) -> Run:
        while not self.runs:
            await self._called.wait()
            self._called.clear()
        return self.runs[0]

    def over(self) -> None:
        self.runs.popleft()


_all: "weakref.WeakSet[Keeper]" = weakref.WeakSet()


def _forget_all() -> None:
    for keeper in list(_all):
        keeper.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
