"""LeaseRenewer: renews and observes the tickets of a process, from its first lock to some seconds after its last.

Three loops share one event loop and one store: one renews leases and asks for the status of waiting tickets, one marks tickets
whose lease is over, one releases tickets in the background. The event loop is that of a thread of its own, or of a worker's
heartbeat; the renewer may move from there to a thread in the middle of its work, because its state is in the TicketTable.
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
from drumbeat.locks.ticket import Ticket
from drumbeat.locks.ticket_table import TicketTable
from drumbeat.service import OutageBackoff, Wakeup, run_in_background
from drumbeat.store.protocol import Store
from drumbeat.store.protocol.wake import Subscriber

log = logging.getLogger(__name__)

IDLE_TIMEOUT = 5.0
LEAVE_TIMEOUT = 3.0
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
            pass  # it has just ended: the next renewer checks everything

    def ensure_awake_by(self, at: float) -> None:
        """Wake up at this time, unless the sleep ends sooner."""
        if at < self._until:
            self.wake()

    def clear(self) -> None:
        self._wakeup.clear()
        self._until = math.inf  # a request from here on sets the wakeup, so the next sleep returns at once

    async def sleep(self, until: float) -> None:
        self._until = until
        await self._wakeup.wait(None if until == math.inf else until - self._clock.monotonic())


class _NamedService:
    """A coroutine function as a `service.Service`."""

    def __init__(self, name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.name = name
        self.run = run


class LeaseRenewer:
    def __init__(
        self,
        table: TicketTable,
        open_store: OpenStore,
        clock: Clock,
        try_finish: Callable[["LeaseRenewer", Exception | None], bool],
    ) -> None:
        """`try_finish`: asked whether the renewer may end; called with the error if it must."""
        self._table = table
        self._open_store = open_store
        self._clock = clock
        self._try_finish = try_finish
        self.channel: str | None = None
        """The channel on which tickets are notified."""
        self.is_ready = False
        self.ready = _new_ready_future()
        self.ended: Future[None] = Future()

    def start_thread(self) -> None:
        if self._clock.inline:
            self._task = asyncio.get_running_loop().create_task(self._run_detached(), name="drumbeat locks")
            return
        # Daemon: a program may exit without closing; its leases expire.
        threading.Thread(target=self._run_thread, name="drumbeat locks", daemon=True).start()

    async def run_attached(self, store: Store) -> None:
        """Run on this loop, with this store. After a cancellation it goes on with `detach_to_thread`."""
        try:
            await self._run_services(store)
        except Exception as caught:  # raised in those who wait; the host goes on
            self._report_failure(caught)
        self.ended.set_result(None)

    def detach_to_thread(self) -> None:
        """Go on in a thread, after `run_attached` was cancelled. An acquire waits until it listens there."""
        with self._table.mutex:
            self.is_ready = False
            if self.ready.done():
                self.ready = _new_ready_future()
            self._table.mark_notified("", 0)  # notifications in between are lost
        self.start_thread()

    def stop(self) -> None:
        if self.is_ready:
            self._idle_alarm.wake()

    def ensure_awake_by(self, awake_at: float, lost_at: float) -> None:
        if self.is_ready:
            self._renew_alarm.ensure_awake_by(awake_at)
            self._expiry_alarm.ensure_awake_by(lost_at)

    def wake_releases(self) -> None:
        if self.is_ready:
            self._release_alarm.wake()

    async def _run_detached(self) -> None:
        try:
            await self._run_with_own_store()
        except Exception as caught:  # raised in those who wait
            self._report_failure(caught)
        finally:
            self.ended.set_result(None)

    def _run_thread(self) -> None:
        asyncio.run(self._run_detached())

    async def _run_with_own_store(self) -> None:
        async with await self._open_store() as store:
            await self._run_services(store)

    async def _run_services(self, store: Store) -> None:
        self._renew_alarm, self._expiry_alarm, self._release_alarm, self._idle_alarm = [
            _Alarm(self._clock) for _ in range(4)
        ]
        async with store.wake.listen(Subscriber(on_ticket=self._on_notification)) as self.channel:
            self.is_ready = True
            self.ready.set_result(self.channel)
            async with run_in_background(
                _NamedService("lock renewal", partial(self._renew_loop, store)),
                _NamedService("lock expiry", self._expiry_loop),
                _NamedService("lock release", partial(self._release_loop, store)),
            ):
                while not self._try_finish(self, None):
                    self._idle_alarm.clear()
                    await self._idle_alarm.sleep(self._clock.monotonic() + IDLE_TIMEOUT)
            await self._release_remaining(store)

    def _report_failure(self, caught: Exception) -> None:
        error = _root_cause(caught)
        self._try_finish(self, error)
        if not self.is_ready:
            self.ready.set_exception(error)
        else:
            log.error("locks are no longer renewed", extra={"reason": str(error)})

    def _on_notification(self, ticket: str, after_us: int) -> None:
        self._renew_alarm.ensure_awake_by(self._table.mark_notified(ticket, after_us))

    async def _renew_loop(self, store: Store) -> None:
        backoff = OutageBackoff(self._clock, _RenewalOutageReporter())
        while True:
            self._renew_alarm.clear()
            asked_at = self._clock.monotonic()
            tickets, renew, next_at = self._table.due_tickets(asked_at)
            if not tickets:
                await self._renew_alarm.sleep(min(next_at, asked_at + self._table.max_sleep))
                continue
            try:
                statuses = await store.locks.ticket_status(tickets, renew=renew)
                for ticket in self._table.apply_statuses(statuses, asked_at, renewed=renew):
                    await self._reacquire(store, ticket)
            except StoreUnavailable as error:
                self._table.reschedule(tickets)
                await backoff.wait(error)
                continue
            backoff.reset()
            if renew:
                for ticket in self._table.find_abandoned():
                    self._table.remove(ticket)
                    self._table.queue_release(ticket, confirmed=True)
                self._expiry_alarm.wake()

    async def _reacquire(self, store: Store, ticket: Ticket) -> None:
        """Put a waiter whose lease ended, in an outage or with its store, at the end of the queue again."""
        assert ticket.request is not None
        if not self._table.has(ticket):
            return
        asked_at, is_answered = self._clock.monotonic(), False
        try:
            status = await store.locks.acquire(ticket.request)
            is_answered = True
        finally:
            if not self._table.has(ticket):  # abandoned meanwhile: its release may have come before this
                self._table.queue_release(ticket, confirmed=is_answered)
                self._release_alarm.wake()
        ticket.extend_trust(asked_at)
        self._table.apply_statuses([status], asked_at, renewed=False)

    async def _expiry_loop(self) -> None:
        while True:
            self._expiry_alarm.clear()
            now = self._clock.monotonic()
            await self._expiry_alarm.sleep(min(self._table.expire_leases(now), now + self._table.max_sleep))

    async def _release_loop(self, store: Store) -> None:
        backoff = OutageBackoff(self._clock, _RenewalOutageReporter())
        while True:
            self._release_alarm.clear()
            asked_at = self._clock.monotonic()
            tickets, next_at = self._table.due_releases(asked_at)
            if not tickets:
                await self._release_alarm.sleep(next_at)
                continue
            try:
                await store.locks.release(tickets)
            except StoreUnavailable as error:
                await backoff.wait(error)
                continue
            backoff.reset()
            self._table.confirm_released(tickets, asked_at)

    async def _release_remaining(self, store: Store) -> None:
        tickets, _ = self._table.due_releases(math.inf)
        if not tickets:
            return
        with contextlib.suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout(LEAVE_TIMEOUT / 2):
                await store.locks.release(tickets)
                self._table.confirm_released(tickets, math.inf)


def _new_ready_future() -> "Future[str | None]":
    ready: Future[str | None] = Future()
    ready.set_running_or_notify_cancel()  # one waiter must not cancel it for the others
    return ready


def _root_cause(error: Exception) -> Exception:
    """The error itself, without the exception groups around it."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


class _RenewalOutageReporter:
    """A `service.OutageListener` for renewals, which also run in programs without a worker."""

    is_away = False

    def on_failure(self, part: object, error: StoreUnavailable) -> None:
        state = "full" if isinstance(error, StoreFull) else "unavailable"
        log.warning("locks cannot be renewed: the store is %s", state, extra={"reason": str(error)})

    def on_answer(self, part: object) -> None:
        log.info("locks are renewed again")
