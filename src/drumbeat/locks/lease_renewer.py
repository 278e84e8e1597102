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
            pass  # it has just ended: the next run looks at everything

    def ensure_awake_by(self, at: float) -> None:
        """Be awake at this moment. Nothing is done if that is so anyway."""
        if at < self._until:
            self.wake()

    def clear(self) -> None:
        self._wakeup.clear()
        self._until = math.inf  # whoever wants something from here on sets it, and the next sleep is none

    async def sleep(self, until: float) -> None:
        self._until = until
        await self._wakeup.wait(None if until == math.inf else until - self._clock.monotonic())


class _Service:
    """A coroutine as a service."""

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
        """`is_over`: asked whether this run may end, and told why if it must."""
        self._table = table
        self._open_store = open_store
        self._clock = clock
        self._try_finish = try_finish
        self.channel: str | None = None
        """Where tickets are called."""
        self.is_ready = False
        self.ready = _new_promise()
        self.ended: Future[None] = Future()

    def start_thread(self) -> None:
        """In a thread of its own."""
        # Daemon: a program may end without a word; its leases end by themselves.
        threading.Thread(target=self._run_thread, name="drumbeat locks", daemon=True).start()

    async def run_attached(self, store: Store) -> None:
        """Here, with the store of somebody else. When this is cancelled, it is not at its end: see `move`."""
        try:
            await self._run_services(store)
        except Exception as caught:  # carried to whoever waits; our host goes on
            self._report_failure(caught)
        self.ended.set_result(None)

    def detach_to_thread(self) -> None:
        """Go on in a thread, after `lodge` was cancelled. Who enters now waits until it listens there."""
        with self._table.mutex:
            self.is_ready = False
            if self.ready.done():
                self.ready = _new_promise()
            self._table.mark_notified("", 0)  # what was called meanwhile has not been heard
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

    def _run_thread(self) -> None:
        try:
            asyncio.run(self._run_with_own_store())
        except Exception as caught:  # carried to whoever waits
            self._report_failure(caught)
        finally:
            self.ended.set_result(None)

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
            looks, leaves = partial(self._renew_loop, store), partial(self._release_loop, store)
            async with run_in_background(
                _Service("looks", looks), _Service("losses", self._expiry_loop), _Service("leaves", leaves)
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
        patience = OutageBackoff(self._clock, _RenewalOutageReporter())
        while True:
            self._renew_alarm.clear()
            asked_at = self._clock.monotonic()
            tickets, renew, next_at = self._table.due_tickets(asked_at)
            if not tickets:
                await self._renew_alarm.sleep(min(next_at, asked_at + self._table.max_sleep))
                continue
            try:
                seen = await store.locks.ticket_status(tickets, renew=renew)
                for place in self._table.apply_statuses(seen, asked_at, renewed=renew):
                    await self._reacquire(store, place)
            except StoreUnavailable as error:
                self._table.reschedule(tickets)
                await patience.wait(error)
                continue
            patience.reset()
            if renew:
                for place in self._table.find_abandoned():
                    self._table.remove(place)
                    self._table.queue_release(place, confirmed=True)
                self._expiry_alarm.wake()

    async def _reacquire(self, store: Store, ticket: Ticket) -> None:
        """A waiter whose lease ended, in an outage or with its store, stands in line again, at the end."""
        assert ticket.request is not None
        asked_at = self._clock.monotonic()
        seen = await store.locks.acquire(ticket.request)
        ticket.extend_trust(asked_at)
        self._table.apply_statuses([seen], asked_at, renewed=False)

    async def _expiry_loop(self) -> None:
        while True:
            self._expiry_alarm.clear()
            now = self._clock.monotonic()
            await self._expiry_alarm.sleep(min(self._table.expire_leases(now), now + self._table.max_sleep))

    async def _release_loop(self, store: Store) -> None:
        patience = OutageBackoff(self._clock, _RenewalOutageReporter())
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
                await patience.wait(error)
                continue
            patience.reset()
            self._table.confirm_released(tickets, asked_at)

    async def _release_remaining(self, store: Store) -> None:
        tickets, _ = self._table.due_releases(math.inf)
        if not tickets:
            return
        with contextlib.suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout(LEAVE_TIMEOUT / 2):
                await store.locks.release(tickets)
                self._table.confirm_released(tickets, math.inf)


def _new_promise() -> "Future[str | None]":
    promise: Future[str | None] = Future()
    promise.set_running_or_notify_cancel()  # nobody can cancel it for the others
    return promise


def _root_cause(error: Exception) -> Exception:
    """What has gone wrong, without the groups that it came in."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


class _RenewalOutageReporter:
    """A `service.Teller`: locks are kept in any program, and what it tells of is theirs."""

    is_away = False

    def on_failure(self, part: object, error: StoreUnavailable) -> None:
        is_full = isinstance(error, StoreFull)
        text = "locks cannot be renewed: the store is full" if is_full else "locks cannot be renewed: the store is away"
        log.warning(text, extra={"reason": str(error)})

    def on_answer(self, part: object) -> None:
        log.info("locks are renewed again")
