"""Hints across processes: the scripts that make jobs due publish the earliest run_at, received by every worker that
listens.

    script ---PUBLISH {namespace}:wake "run_at"-----> RedisSubscription of each worker --> Subscriber.on_job
    add_jobs -PUBLISH {namespace}:reply:<its> jobs--> RedisSubscription of one worker --> Subscriber.on_handoff

A worker that enqueues receives its own hint in the same way, and as soon as the answer to its call: a direct call as
well would only make it claim twice.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import msgspec

# This package is imported only when a Redis store is opened.
from redis import exceptions  # noqa: TID253

from drumbeat.clock import Clock, jitter
from drumbeat.core.room import decode_hint
from drumbeat.errors import StoreUnavailable
from drumbeat.service import run_in_background
from drumbeat.store.protocol.wake import OnJob, OnRoom, OnTicket, Subscriber
from drumbeat.store.redis.completion import CompletionClient
from drumbeat.store.redis.connection import RedisConnection, Value
from drumbeat.store.redis.failures import translate_errors
from drumbeat.store.redis.pool import RedisPool

PING_INTERVAL = 20.0
"""A connection that only listens would never notice that its peer is gone."""
PING_TIMEOUT = 4.0
RETRY_DELAY = 0.5
Channels = dict[bytes, Callable[[bytes], None]]


class RedisWake:
    def __init__(self, pool: RedisPool, clock: Clock, completion: CompletionClient) -> None:
        self._pool = pool
        self._clock = clock
        self._completion = completion

    async def notify(self, run_at: int) -> None:
        await self._pool.command("PUBLISH", self._pool.keys.wake, run_at)

    @contextlib.asynccontextmanager
    async def listen(self, subscriber: Subscriber) -> AsyncIterator[str | None]:
        """Every hint reaches every subscriber, so that no address is needed. From now on empty claims are parked, if
        hand-offs are wanted."""
        subscription = RedisSubscription(self._pool, self._clock, self._channels(subscriber), subscriber.on_gap)
        takes_handoffs = subscriber.on_handoff is not None
        try:
            with contextlib.suppress(StoreUnavailable):
                await subscription.open()
            async with run_in_background(subscription):
                self._completion.listeners += takes_handoffs
                try:
                    yield None
                finally:
                    self._completion.listeners -= takes_handoffs
        finally:
            await subscription.close()

    def _channels(self, subscriber: Subscriber) -> Channels:
        keys = self._pool.keys
        channels: dict[str, Callable[[bytes], None]] = {}
        if (on_job := subscriber.on_job) is not None:
            channels[keys.wake] = partial(_receive_job, on_job)
        if subscriber.on_handoff is not None:
            channels[keys.reply_channel(self._completion.reply_channel)] = partial(self._receive_handoff, subscriber)
        if (on_ticket := subscriber.on_ticket) is not None:
            channels[keys.tickets] = partial(_receive_ticket, on_ticket)
        if (on_room := subscriber.on_room) is not None:
            channels[keys.rooms] = partial(_receive_rooms, on_room)
        return {channel.encode(): receive for channel, receive in channels.items()}

    def _receive_handoff(self, subscriber: Subscriber, text: bytes) -> None:
        """Any client may publish: what no script of ours wrote means "check now"."""
        try:
            instance, result = self._completion.parse_handoff(text)
        except (ValueError, msgspec.MsgspecError):
            subscriber.on_gap()
        else:
            assert subscriber.on_handoff is not None
            subscriber.on_handoff(instance, result)


def _receive_job(on_job: OnJob, text: bytes) -> None:
    """Any client may publish: what is no number means "check now"."""
    on_job(int(text) if text.isdigit() else 0)


def _receive_ticket(on_ticket: OnTicket, text: bytes) -> None:
    ticket, _, after = text.partition(b" ")
    on_ticket(ticket.decode("ascii", "replace"), int(after) if after.isdigit() else 0)


def _receive_rooms(on_room: OnRoom, text: bytes) -> None:
    for instance in decode_hint(text.decode("ascii", "replace")):
        on_room(instance)


class RedisSubscription:
    """Keeps the subscribed connection: reopens it when it is lost, and pings it while it is silent."""

    name = "drumbeat subscription"

    def __init__(self, pool: RedisPool, clock: Clock, channels: Channels, on_gap: Callable[[], None]) -> None:
        self._pool = pool
        self._clock = clock
        self._channels = channels
        self._on_gap = on_gap
        self._connection: RedisConnection | None = None
        self._reply: asyncio.Future[Any] | None = None

    async def open(self) -> None:
        connection = await self._pool.open_dedicated()
        try:
            connection.listen(self._on_message)
            await self._execute(connection, "SUBSCRIBE", *self._channels)
        except BaseException:
            await connection.close()
            raise
        self._connection = connection

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def run(self) -> None:
        while True:
            try:
                if self._connection is None:
                    await self.open()
                    self._on_gap()  # what was published meanwhile did not arrive
                await self._keep_alive()
            except StoreUnavailable:
                await self.close()
                await self._clock.sleep(jitter(RETRY_DELAY))

    async def _keep_alive(self) -> None:
        assert self._connection is not None
        while True:
            await asyncio.wait([self._connection.closed], timeout=PING_INTERVAL)
            await self._execute(self._connection, "PING")

    async def _execute(self, connection: RedisConnection, *command: Value) -> None:
        """Send a command; whatever comes next proves that the server is alive."""
        self._reply = asyncio.get_running_loop().create_future()
        connection.send(*command)
        await asyncio.wait([self._reply, connection.closed], timeout=PING_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
        with translate_errors(self._pool.address.display_url):
            if not self._reply.done():
                raise exceptions.ConnectionError("closed by the server" if connection.closed.done() else "silence")
            if isinstance(reply := self._reply.result(), exceptions.RedisError):
                raise reply

    def _on_message(self, message: Any) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(message)
        if isinstance(message, list) and message[0] == b"message":
            self._channels[message[1]](message[2])
