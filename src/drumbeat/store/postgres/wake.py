"""Hints across processes: NOTIFY with the earliest run_at, received by every worker that listens.

    add --commit--> PostgresNotifier --NOTIFY "run_at sender"--> PostgresConnection of each worker --> Subscriber.on_job

A NOTIFY takes a lock that all transactions with one share, so it is not part of a transaction that stores jobs, except
for a single job of a lone caller, or after a silence, when it blocks no other: there it saves a round trip. In a burst
the first hint is sent at once, and those that follow within some milliseconds as one at their end, so that none is lost
and a flood of enqueues is no flood of hints. Subscribers of the same store are called directly, and ignore their own
NOTIFY.

A loop may run no longer than the call that it was started for (`run_until_complete` for each enqueue). So the last call
under way does not return before its hint is sent: `flush`.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from functools import partial

from drumbeat.clock import Clock, jitter
from drumbeat.core.room import decode_hint
from drumbeat.errors import StoreError, StoreUnavailable
from drumbeat.service import Wakeup, run_in_background
from drumbeat.store.postgres.connections import PlanMode, PostgresConnection, Session
from drumbeat.store.protocol.wake import Forward, OnJob, Subscriber
from drumbeat.store.sqlfile import Statements

BURST_WINDOW_S = 0.002
FLUSH_TIMEOUT = 1.0
PING_INTERVAL = 20.0
"""A connection that only listens would never notice that its peer is gone."""
RECONNECT_DELAY = 0.5
FALLBACK_POLL_INTERVAL = 0.5
"""How often subscribers are told to check where no notification can be received."""


class PostgresNotifier:
    """The sending end; lives as long as its store."""

    def __init__(
        self,
        connection: PostgresConnection,
        sql: Statements,
        channel: str,
        clock: Clock,
        forward: Forward | None = None,
    ) -> None:
        self._connection = connection
        self._sql = sql
        self._clock = clock
        self._forward = forward
        self._task: asyncio.Task[None] | None = None
        self._pending_due: int | None = None
        self._sent_at = float("-inf")
        self._flush_requested = Wakeup(clock)
        self._closed = False
        self.channel = channel
        self._sender = os.urandom(6).hex()
        self.listeners: list[OnJob] = []
        self.internal_listeners: list[OnJob] = []
        """Parts of this store that want every hint as well."""

    def sender_for_commit(self, *, alone: bool) -> str | None:
        """The sender for a hint that the statement storing a job sends with its commit; None: send none, because hints
        go another way, or it is not `alone` and in the middle of a burst."""
        if self._closed or self._task is not None or self._forward is not None:
            return None
        return self._sender if alone or self._burst_remaining() <= 0 else None

    def notify(self, due: int | None, *, sent: bool = False) -> None:
        """Jobs that are due then are stored and visible (None: there are none). `sent`: the commit has notified all
        other stores."""
        if due is None:
            return
        self._deliver(due)
        if sent:
            self._sent_at = self._clock.monotonic()
            return
        if self._forward is not None and self._forward(due):
            return
        self._pending_due = due if self._pending_due is None else min(due, self._pending_due)
        if self._task is None and not self._closed:
            # Not in a task group: several calls share it, and none may cancel it. `flush` and `close` end it.
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._send_pending(), name="drumbeat notifier")

    async def flush(self) -> None:
        """Return when no hint waits to be sent, or after FLUSH_TIMEOUT if the server does not take it."""
        if (task := self._task) is not None:
            self._flush_requested.set()
            await asyncio.wait([task], timeout=FLUSH_TIMEOUT)

    def on_notification(self, payload: str) -> None:
        """A NOTIFY arrived. Any client may send one: what is no number means "check now"."""
        due, _, sender = payload.partition(" ")
        if sender != self._sender:
            self._deliver(int(due) if due.isdigit() else 0)

    async def close(self) -> None:
        """Send what is pending, if the server answers."""
        self._closed = True
        if (task := self._task) is not None:
            await self.flush()
            task.cancel()

    def _deliver(self, due: int) -> None:
        for on_job in [*self.internal_listeners, *self.listeners]:
            on_job(due)

    async def _send_pending(self) -> None:
        try:
            while self._pending_due is not None:
                if (pause := self._burst_remaining()) > 0:
                    await self._flush_requested.wait(pause)
                payload, self._pending_due = f"{self._pending_due} {self._sender}", None
                # Lost with the server: its receivers poll.
                with contextlib.suppress(StoreError):
                    await self._connection.call(partial(self._send_notify, payload), plan_mode=PlanMode.ANY)
                self._sent_at = self._clock.monotonic()
        finally:
            self._task = None
            self._flush_requested.clear()

    def _burst_remaining(self) -> float:
        """Seconds until the end of the burst; 0 or less if there is none."""
        return self._sent_at + BURST_WINDOW_S - self._clock.monotonic()

    async def _send_notify(self, payload: str, session: Session) -> None:
        await session.execute(self._sql.notify, self.channel, payload)


class PostgresWake:
    """The receiving end."""

    def __init__(
        self, connection: PostgresConnection, notifier: PostgresNotifier, clock: Clock, *, namespace: str
    ) -> None:
        self._connection = connection
        self._notifier = notifier
        self._clock = clock
        self._ticket_channel = f"{namespace}.locks"
        self._room_channel = f"{namespace}.rooms"
        self._subscribers: list[Subscriber] = []

    async def notify(self, run_at: int) -> None:
        self._notifier.notify(run_at)

    @contextlib.asynccontextmanager
    async def listen(self, subscriber: Subscriber) -> AsyncIterator[str | None]:
        """Every hint reaches every subscriber, so that no address is needed. Behind a pooler in transaction mode only
        hints of this very store arrive: the subscriber is also told to check every FALLBACK_POLL_INTERVAL."""
        channels = self._channels(subscriber)
        self._subscribers.append(subscriber)
        if subscriber.on_job is not None:
            self._notifier.listeners.append(subscriber.on_job)
        try:
            if not self._connection.pooled:
                await self._subscribe(channels)
            async with run_in_background(_PostgresSubscription(self._connection, self._clock, subscriber.on_gap)):
                yield None
        finally:
            self._subscribers.remove(subscriber)
            if subscriber.on_job is not None:
                self._notifier.listeners.remove(subscriber.on_job)
            wanted = {channel for each in self._subscribers for channel in self._channels(each)}
            for channel in channels.keys() - wanted:
                self._connection.unlisten(channel)

    def _channels(self, subscriber: Subscriber) -> dict[str, Callable[[str], None]]:
        wanted = (
            (subscriber.on_job, self._notifier.channel, self._notifier.on_notification),
            (subscriber.on_ticket, self._ticket_channel, self._receive_ticket),
            (subscriber.on_room, self._room_channel, self._receive_rooms),
        )
        return {channel: receive for callback, channel, receive in wanted if callback is not None}

    async def _subscribe(self, channels: dict[str, Callable[[str], None]]) -> None:
        for channel, receive in channels.items():
            try:
                await self._connection.listen(channel, receive)
            except StoreUnavailable:
                self._connection.lost.set()

    def _receive_ticket(self, payload: str) -> None:
        ticket, _, after = payload.partition(" ")
        for subscriber in list(self._subscribers):
            if subscriber.on_ticket is not None:
                subscriber.on_ticket(ticket, int(after) if after.isdigit() else 0)

    def _receive_rooms(self, payload: str) -> None:
        for subscriber in list(self._subscribers):
            if subscriber.on_room is not None:
                for instance in decode_hint(payload):
                    subscriber.on_room(instance)


class _PostgresSubscription:
    """Keeps the connection that listens: reopens it when it is lost, and pings it while it is silent. Where LISTEN cannot
    be used, it tells the subscriber to check from time to time instead."""

    name = "drumbeat subscription"

    def __init__(self, connection: PostgresConnection, clock: Clock, on_gap: Callable[[], None]) -> None:
        self._connection = connection
        self._clock = clock
        self._on_gap = on_gap

    async def run(self) -> None:
        while self._connection.pooled:
            await self._clock.sleep(jitter(FALLBACK_POLL_INTERVAL))
            self._on_gap()
        while True:
            was_lost = await self._wait_until_lost()
            self._connection.lost.clear()
            try:
                await self._connection.ping()
            except StoreUnavailable:
                self._connection.lost.set()
                await self._clock.sleep(jitter(RECONNECT_DELAY))
                continue
            if was_lost:
                self._on_gap()  # what was sent meanwhile did not arrive

    async def _wait_until_lost(self) -> bool:
        """Wait until the connection is lost (True), or for PING_INTERVAL. Other subscriptions clear the same flag."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PING_INTERVAL):
                await self._connection.lost.wait()
                return True
        return False
