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
from drumbeat.core.lock import TicketStatus
from drumbeat.locks.lease_renewer import LEAVE_TIMEOUT, LeaseRenewer, OpenStore
from drumbeat.locks.ticket import Ticket, TicketStage
from drumbeat.locks.ticket_table import TicketTable
from drumbeat.settings import Settings
from drumbeat.store.protocol import Store


class LeaseKeeper:
    """What tasks and threads see of it. One for each app of a process."""

    def __init__(self, open_store: OpenStore, settings: Callable[[], Settings], clock: Clock) -> None:
        self._open_store = open_store
        self._clock = clock
        self._renewer: LeaseRenewer | None = None
        self._host: _RenewerHost | None = None
        self.table = TicketTable(clock, lambda: settings().lock_renew)
        _all_keepers.add(self)

    async def ensure_running(self) -> str | None:
        """Begin a run if there is none; gives the address at which tickets are called.

        Raises what opening a store raises.
        """
        with self.table.mutex:
            if self._renewer is None:
                self._renewer = LeaseRenewer(self.table, self._open_store, self._clock, self._try_finish)
                if self._host is None or not self._host.accept(self._renewer):
                    self._renewer.start_thread()
            run = self._renewer
        return run.channel if run.is_ready else await asyncio.wrap_future(run.ready)

    async def attach(self, store: Store) -> None:
        """Until cancelled, runs are on this loop and with this store, which must not be those of tasks. What is held or wanted
        at the end goes on in a thread."""
        lodging = _RenewerHost()
        with self.table.mutex:
            self._host = lodging
        try:
            while True:
                await (await lodging.next_renewer()).run_attached(store)
                lodging.finish_current()
        finally:
            with self.table.mutex:
                if self._host is lodging:
                    self._host = None
            for run in lodging.renewers:
                if self.table.is_drained and self._try_finish(run, None):
                    run.ended.set_result(None)
                else:
                    run.detach_to_thread()

    def record_acquire(self, ticket: Ticket, status: TicketStatus, asked_at: float) -> None:
        """The store has answered its enter."""
        awake_at = self.table.record_acquire(ticket, status, asked_at)
        if (run := self._renewer) is not None:
            run.ensure_awake_by(awake_at, ticket.trusted_until)

    def abandon(self, ticket: Ticket) -> None:
        """Remove it and leave the line for it, at once, without anybody waiting for that. Harmless twice."""
        sure = ticket.stage is not TicketStage.ACQUIRING
        if self.table.remove(ticket) and ticket.request is not None:
            self.release(ticket, confirmed=sure)

    def release(self, ticket: Ticket, *, confirmed: bool = True) -> None:
        """Have the thread tell the store that this ticket has left."""
        self.table.queue_release(ticket, confirmed=confirmed)
        if (run := self._renewer) is not None:
            run.wake_releases()

    def call_when_free(self, callback: Callable[[], object]) -> None:
        """Have this called when this process holds no lock, by whichever thread leaves last; now, if that is so."""
        self.table.call_when_free(callback)

    async def close(self) -> None:
        """End the thread, unless something is held or wanted."""
        run = self._renewer
        if run is None or not self.table.is_empty:
            return
        run.stop()
        await asyncio.wait([asyncio.wrap_future(run.ended)], timeout=LEAVE_TIMEOUT)

    def reset_after_fork(self) -> None:
        """In a forked child: neither the thread nor what it keeps is here."""
        self._renewer = None
        self._host = None
        self.table.reset()

    def _try_finish(self, renewer: LeaseRenewer, error: Exception | None) -> bool:
        """Whether this run may end, because nothing is left to keep or it has failed; the next lock begins another."""
        with self.table.mutex:
            if error is not None:
                self.table.fail_all(error)
            elif not self.table.is_empty:
                return False
            if self._renewer is renewer:
                self._renewer = None
            return True


class _RenewerHost:
    """Room for runs beside somebody who lives on."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._accepted = asyncio.Event()
        self.renewers: deque[LeaseRenewer] = deque()
        """The one that is here, and behind it those that come when it has ended."""

    def accept(self, renewer: LeaseRenewer) -> bool:
        """Called by any thread, with the mutex held. False: that loop is closed."""
        self.renewers.append(renewer)
        try:
            self._loop.call_soon_threadsafe(self._accepted.set)
        except RuntimeError:
            self.renewers.remove(renewer)
            return False
        return True

    async def next_renewer(self) -> LeaseRenewer:
        while not self.renewers:
            await self._accepted.wait()
            self._accepted.clear()
        return self.renewers[0]

    def finish_current(self) -> None:
        self.renewers.popleft()


_all_keepers: "weakref.WeakSet[LeaseKeeper]" = weakref.WeakSet()


def _reset_all_after_fork() -> None:
    for keeper in list(_all_keepers):
        keeper.reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all_after_fork)
