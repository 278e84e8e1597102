"""Hints across processes: the scripts that make jobs due publish the smallest due moment, heard by every worker that listens.

    script --PUBLISH {namespace}:wake "run_at"-----> Subscription of each worker --> hear(run_at)
    add_jobs --PUBLISH {namespace}:door:<its> jobs--> Subscription of one worker  --> given(instance, jobs)

The worker that enqueues hears its own hint in the same way, and as soon as the answer to its call: telling it directly as well
would only make it look twice.
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
from drumbeat.store.protocol.wake import OnHandoff
from drumbeat.store.redis.completion import CompletionClient
from drumbeat.store.redis.connection import RedisConnection, Value
from drumbeat.store.redis.failures import translate_errors
from drumbeat.store.redis.pool import RedisPool

PING_INTERVAL = 20.0
"""A connection that only listens would never notice that its other end is gone."""
PING_TIMEOUT = 4.0
RETRY_DELAY = 0.5
HintCallback = Callable[[int], None]
TicketCallback = Callable[[str, int], None]
RoomCallback = Callable[[str], None]
Channels = dict[str, Callable[[bytes], None]]


class RedisWake:
    def __init__(self, pool: RedisPool, clock: Clock, completion: CompletionClient) -> None:
        self._pool = pool
        self._clock = clock
        self._completion = completion

    async def notify(self, run_at: int) -> None:
        await self._pool.command("PUBLISH", self._pool.keys.wake, run_at)

    def forward(self, notify: Callable[[int], bool]) -> None:
        pass  # the scripts publish by themselves

    @contextlib.asynccontextmanager
    async def listen(
        self, on_notification: HintCallback, on_handoff: OnHandoff | None = None
    ) -> AsyncIterator[str | None]:
        """Call `hear(run_at)` for every hint, and `given` with what claims have got that stand from now on."""
        channels: Channels = {self._pool.keys.wake: partial(_on_hint, on_notification)}
        if on_handoff is not None:
            channels[self._pool.keys.reply_channel(self._completion.reply_channel)] = partial(
                self._on_handoff, on_notification, on_handoff
            )
        async with self._subscribe(RedisSubscription(self._pool, self._clock, channels)):
            self._completion.listeners += on_handoff is not None
            try:
                yield None
            finally:
                self._completion.listeners -= on_handoff is not None

    def _on_handoff(self, hear: HintCallback, given: OnHandoff, text: bytes) -> None:
        """Anybody may publish: what no script of ours has said means "look"."""
        try:
            instance, answer = self._completion.parse_handoff(text)
        except (ValueError, msgspec.MsgspecError):
            hear(0)
        else:
            given(instance, answer)

    @contextlib.asynccontextmanager
    async def listen_tickets(self, on_notification: TicketCallback) -> AsyncIterator[str | None]:
        """Call `hear(ticket, after)` for every hint, of whichever process."""
        async with self._subscribe(
            RedisSubscription(self._pool, self._clock, {self._pool.keys.tickets: partial(_on_ticket, on_notification)})
        ):
            yield None

    @contextlib.asynccontextmanager
    async def listen_rooms(self, on_notification: RoomCallback) -> AsyncIterator[None]:
        """Call `hear(instance)` for every hint."""
        async with self._subscribe(
            RedisSubscription(self._pool, self._clock, {self._pool.keys.rooms: partial(_on_rooms, on_notification)})
        ):
            yield

    @contextlib.asynccontextmanager
    async def _subscribe(self, subscription: "RedisSubscription") -> AsyncIterator[None]:
        # What is published from now on is heard; if the server is away just now, the ear tries again.
        with contextlib.suppress(StoreUnavailable):
            await subscription.open()
        try:
            async with run_in_background(subscription):
                yield
        finally:
            await subscription.close()


def _on_hint(on_hint: HintCallback, text: bytes) -> None:
    """Anybody may publish: what is no number means "look"."""
    on_hint(int(text) if text.isdigit() else 0)


def _on_ticket(on_ticket: TicketCallback, text: bytes) -> None:
    ticket, _, after = text.partition(b" ")
    on_ticket(ticket.decode("ascii", "replace"), int(after) if after.isdigit() else 0)


def _on_rooms(on_room: RoomCallback, text: bytes) -> None:
    for instance in decode_hint(text.decode("ascii", "replace")):
        on_room(instance)


class RedisSubscription:
    """Keeps the connection that listens: opened anew when it is lost, and looked after when it is silent."""

    name = "drumbeat subscription"

    def __init__(self, pool: RedisPool, clock: Clock, channels: Channels) -> None:
        """What is said in the first of the channels are hints."""
        self._pool = pool
        self._clock = clock
        self._channels = {channel.encode(): hear for channel, hear in channels.items()}
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
                    next(iter(self._channels.values()))(b"")  # what was said meanwhile was not heard
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
        """Whatever is said next, the server is there."""
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
