"""LeaseKeeper: renews the leases of all lock tickets of a process, and notices grants.

    task --acquire, release--> its loop's store
      |  tickets                                            LeaseRenewer, on its own loop with its own store
      +----------------> TicketTable <--- every 5 s, in one call for all: renew; the answer is waiting, granted or lost
                                     <--- status of one ticket: it was notified, or a lease ahead of it has ended
                                     <--- release: for cancelled tasks, which cannot wait for it

Renewals do not run on the loop of the tasks, so a task that blocks its loop loses no lock. The local clock decides that a
lease is over, counted from before the last question that was answered: silence of the store is enough. A `LeaseRenewer` starts
with the first ticket and ends some seconds after the last. In a worker it runs on the heartbeat's loop with the heartbeat's
store, which saves a connection; elsewhere in a thread of its own.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from drumbeat.clock import Clock
from drumbeat.core.lock import TicketStatus
from drumbeat.fork import reset_in_child
from drumbeat.locks.lease_renewer import LEAVE_TIMEOUT, LeaseRenewer, OpenStore
from drumbeat.locks.ticket import Ticket, TicketStage
from drumbeat.locks.ticket_table import TicketTable
from drumbeat.settings import Settings
from drumbeat.store.protocol import Store


class LeaseKeeper:
    """One for each app of a process."""

    def __init__(self, open_store: OpenStore, settings: Callable[[], Settings], clock: Clock) -> None:
        self._open_store = open_store
        self._clock = clock
        self._renewer: LeaseRenewer | None = None
        self._host: _RenewerHost | None = None
        self.table = TicketTable(clock, lambda: settings().lock_renew)
        reset_in_child(self)

    async def ensure_running(self) -> str | None:
        """Start a renewer if there is none; returns the channel on which tickets are notified.

        Raises what opening a store raises.
        """
        with self.table.mutex:
            if self._renewer is None:
                self._renewer = LeaseRenewer(self.table, self._open_store, self._clock, self._try_finish)
                if self._host is None or not self._host.accept(self._renewer):
                    self._renewer.start_thread()
            renewer = self._renewer
        return renewer.channel if renewer.is_ready else await asyncio.wrap_future(renewer.ready)

    async def attach(self, store: Store) -> None:
        """Until cancelled, run renewers on this loop with this store, which must not be those of tasks. A renewer with
        tickets left then moves to a thread."""
        host = _RenewerHost()
        with self.table.mutex:
            self._host = host
        try:
            while True:
                await (await host.next_renewer()).run_attached(store)
                host.finish_current()
        finally:
            with self.table.mutex:
                if self._host is host:
                    self._host = None
            for renewer in host.renewers:
                if self.table.is_drained and self._try_finish(renewer, None):
                    renewer.ended.set_result(None)
                else:
                    renewer.detach_to_thread()

    def record_acquire(self, ticket: Ticket, status: TicketStatus, asked_at: float) -> None:
        """Apply the store's answer to an acquire."""
        awake_at = self.table.record_acquire(ticket, status, asked_at)
        if (renewer := self._renewer) is not None:
            renewer.ensure_awake_by(awake_at, ticket.trusted_until)

    def abandon(self, ticket: Ticket) -> None:
        """Remove a ticket and release it in the background. Harmless twice."""
        confirmed = ticket.stage is not TicketStage.ACQUIRING
        if self.table.remove(ticket) and ticket.request is not None:
            self.release(ticket, confirmed=confirmed)

    def release(self, ticket: Ticket, *, confirmed: bool = True) -> None:
        """Have the renewer release this ticket in the store."""
        self.table.queue_release(ticket, confirmed=confirmed)
        if (renewer := self._renewer) is not None:
            renewer.wake_releases()

    async def close(self) -> None:
        """Stop the renewer, unless there are tickets."""
        renewer = self._renewer
        if renewer is None or not self.table.is_empty:
            return
        renewer.stop()
        await asyncio.wait([asyncio.wrap_future(renewer.ended)], timeout=LEAVE_TIMEOUT)

    def reset_after_fork(self) -> None:
        """A forked child has neither the renewer nor the tickets."""
        self._renewer = None
        self._host = None
        self.table.reset()

    def _try_finish(self, renewer: LeaseRenewer, error: Exception | None) -> bool:
        """Whether this renewer may end: no tickets are left, or it has failed. The next lock starts another."""
        with self.table.mutex:
            if error is not None:
                self.table.fail_all(error)
            elif not self.table.is_empty:
                return False
            if self._renewer is renewer:
                self._renewer = None
            return True


class _RenewerHost:
    """Runs renewers on the loop of a longer-lived service, one after the other."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._accepted = asyncio.Event()
        self.renewers: deque[LeaseRenewer] = deque()
        """The current one first, then those that follow when it has ended."""

    def accept(self, renewer: LeaseRenewer) -> bool:
        """Called in any thread, with the mutex held. False: the loop is closed."""
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
