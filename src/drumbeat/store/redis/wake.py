"""Hints across processes: the scripts that make jobs due publish the smallest due moment, heard by every worker that listens.

    script --PUBLISH {namespace}:wake "run_at"-----> Ear of each worker --> hear(run_at)
    jobs_add --PUBLISH {namespace}:door:<its> jobs--> Ear of one worker  --> given(instance, jobs)

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

from drumbeat.clock import Clock, jittered
from drumbeat.errors import StoreUnavailable
from drumbeat.model.room import hinted
from drumbeat.service import background
from drumbeat.store.protocol.wake import Given
from drumbeat.store.redis.connections import Link
from drumbeat.store.redis.ending import Exchanging
from drumbeat.store.redis.failures import translated
from drumbeat.store.redis.line import Line, Value

CHECK_S = 20.0
"""A connection that only listens would never notice that its other end is gone."""
ANSWER_S = 4.0
RETRY_S = 0.5
Hear = Callable[[int], None]
HearTicket = Callable[[str, int], None]
HearRoom = Callable[[str], None]
Channels = dict[str, Callable[[bytes], None]]


class RedisWake:
    def __init__(self, link: Link, clock: Clock, exchanging: Exchanging) -> None:
        self._link = link
        self._clock = clock
        self._exchanging = exchanging

    async def tell(self, run_at: int) -> None:
        await self._link.command("PUBLISH", self._link.keys.wake, run_at)

    def forward(self, tell: Callable[[int], bool]) -> None:
        pass  # the scripts publish by themselves

    @contextlib.asynccontextmanager
    async def listen(self, hear: Hear, given: Given | None = None) -> AsyncIterator[str | None]:
        """Call `hear(run_at)` for every hint, and `given` with what claims have got that stand from now on."""
        channels: Channels = {self._link.keys.wake: partial(_moment, hear)}
        if given is not None:
            channels[self._link.keys.door(self._exchanging.door)] = partial(self._enter, hear, given)
        async with self._listening(_Ear(self._link, self._clock, channels)):
            self._exchanging.listeners += given is not None
            try:
                yield None
            finally:
                self._exchanging.listeners -= given is not None

    def _enter(self, hear: Hear, given: Given, text: bytes) -> None:
        """Anybody may publish: what no script of ours has said means "look"."""
        try:
            instance, answer = self._exchanging.given(text)
        except (ValueError, msgspec.MsgspecError):
            hear(0)
        else:
            given(instance, answer)

    @contextlib.asynccontextmanager
    async def listen_tickets(self, hear: HearTicket) -> AsyncIterator[str | None]:
        """Call `hear(ticket, after)` for every hint, of whichever process."""
        async with self._listening(_Ear(self._link, self._clock, {self._link.keys.tickets: partial(_ticket, hear)})):
            yield None

    @contextlib.asynccontextmanager
    async def listen_rooms(self, hear: HearRoom) -> AsyncIterator[None]:
        """Call `hear(instance)` for every hint."""
        async with self._listening(_Ear(self._link, self._clock, {self._link.keys.rooms: partial(_rooms, hear)})):
            yield

    @contextlib.asynccontextmanager
    async def _listening(self, ear: "_Ear") -> AsyncIterator[None]:
        # What is published from now on is heard; if the server is away just now, the ear tries again.
        with contextlib.suppress(StoreUnavailable):
            await ear.open()
        try:
            async with background(ear):
                yield
        finally:
            await ear.close()


def _moment(hear: Hear, text: bytes) -> None:
    """Anybody may publish: what is no number means "look"."""
    hear(int(text) if text.isdigit() else 0)


def _ticket(hear: HearTicket, text: bytes) -> None:
    ticket, _, after = text.partition(b" ")
    hear(ticket.decode("ascii", "replace"), int(after) if after.isdigit() else 0)


def _rooms(hear: HearRoom, text: bytes) -> None:
    for instance in hinted(text.decode("ascii", "replace")):
        hear(instance)


class _Ear:
    """Keeps the connection that listens: opened anew when it is lost, and looked after when it is silent."""

    name = "drumbeat ear"

    def __init__(self, link: Link, clock: Clock, channels: Channels) -> None:
        """What is said in the first of the channels are hints."""
        self._link = link
        self._clock = clock
        self._channels = {channel.encode(): hear for channel, hear in channels.items()}
        self._line: Line | None = None
        self._word: asyncio.Future[Any] | None = None

    async def open(self) -> None:
        line = await self._link.dial()
        try:
            line.listen(self._take)
            await self._ask(line, "SUBSCRIBE", *self._channels)
        except BaseException:
            await line.drop()
            raise
        self._line = line

    async def close(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            await line.drop()

    async def run(self) -> None:
        while True:
            try:
                if self._line is None:
                    await self.open()
                    next(iter(self._channels.values()))(b"")  # what was said meanwhile was not heard
                await self._listen()
            except StoreUnavailable:
                await self.close()
                await self._clock.sleep(jittered(RETRY_S))

    async def _listen(self) -> None:
        assert self._line is not None
        while True:
            await asyncio.wait([self._line.end], timeout=CHECK_S)
            await self._ask(self._line, "PING")

    async def _ask(self, line: Line, *command: Value) -> None:
        """Whatever is said next, the server is there."""
        self._word = asyncio.get_running_loop().create_future()
        line.send(*command)
        await asyncio.wait([self._word, line.end], timeout=ANSWER_S, return_when=asyncio.FIRST_COMPLETED)
        with translated(self._link.address.shown):
            if not self._word.done():
                raise exceptions.ConnectionError("closed by the server" if line.end.done() else "silence")
            if isinstance(said := self._word.result(), exceptions.RedisError):
                raise said

    def _take(self, said: Any) -> None:
        if self._word is not None and not self._word.done():
            self._word.set_result(said)
        if isinstance(said, list) and said[0] == b"message":
            self._channels[said[1]](said[2])
