"""Hints across processes: the scripts that make jobs due publish the smallest due moment, heard by every worker that listens.

    script --PUBLISH {namespace}:wake "run_at"--> Ear of each worker --> hear(run_at)

The worker that enqueues hears its own hint in the same way, and as soon as the answer to its call: telling it directly as well
would only make it look twice.
"""

import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

# This package is imported only when a Redis store is opened.
from redis import exceptions  # noqa: TID253

from drumbeat.clock import Clock, jittered
from drumbeat.errors import StoreUnavailable
from drumbeat.model.room import hinted
from drumbeat.service import background
from drumbeat.store.redis.connections import Link
from drumbeat.store.redis.failures import translated
from drumbeat.store.redis.line import Line

CHECK_S = 20.0
"""A connection that only listens would never notice that its other end is gone."""
ANSWER_S = 4.0
RETRY_S = 0.5
Hear = Callable[[int], None]
HearTicket = Callable[[str, int], None]
HearRoom = Callable[[str], None]


class RedisWake:
    def __init__(self, link: Link, clock: Clock) -> None:
        self._link = link
        self._clock = clock

    async def tell(self, run_at: int) -> None:
        await self._link.command("PUBLISH", self._link.keys.wake, run_at)

    def forward(self, tell: Callable[[int], bool]) -> None:
        pass  # the scripts publish by themselves

    @contextlib.asynccontextmanager
    async def listen(self, hear: Hear) -> AsyncIterator[str | None]:
        """Call `hear(run_at)` for every hint."""
        async with self._listening(_Ear(self._link, self._clock, self._link.keys.wake, partial(_moment, hear))):
            yield None

    @contextlib.asynccontextmanager
    async def listen_tickets(self, hear: HearTicket) -> AsyncIterator[str | None]:
        """Call `hear(ticket, after)` for every hint, of whichever process."""
        async with self._listening(_Ear(self._link, self._clock, self._link.keys.tickets, partial(_ticket, hear))):
            yield None

    @contextlib.asynccontextmanager
    async def listen_rooms(self, hear: HearRoom) -> AsyncIterator[None]:
        """Call `hear(instance)` for every hint."""
        async with self._listening(_Ear(self._link, self._clock, self._link.keys.rooms, partial(_rooms, hear))):
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

    def __init__(self, link: Link, clock: Clock, channel: str, hear: Callable[[bytes], None]) -> None:
        self._link = link
        self._clock = clock
        self._channel = channel
        self._hear = hear
        self._line: Line | None = None

    async def open(self) -> None:
        line = await self._link.dial()
        try:
            with translated(self._link.address.shown):
                await line.send("SUBSCRIBE", self._channel)
                await _answer(line)
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
                    self._hear(b"")  # what was said meanwhile was not heard
                await self._listen()
            except StoreUnavailable:
                await self.close()
                await self._clock.sleep(jittered(RETRY_S))

    async def _listen(self) -> None:
        assert self._line is not None
        line = self._line
        with translated(self._link.address.shown):
            while True:
                message = await line.heard(CHECK_S)
                if message is None:
                    await line.send("PING")
                    message = await _answer(line)
                self._take(message)

    def _take(self, message: list[Any]) -> None:
        if message[0] == b"message":
            self._hear(message[2])


async def _answer(line: Line) -> list[Any]:
    """The next thing that the server says: it was asked for something."""
    said: list[Any] | None = await line.heard(ANSWER_S)
    if said is None:
        raise exceptions.ConnectionError("silence")
    return said
