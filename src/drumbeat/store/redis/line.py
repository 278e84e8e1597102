"""One connection to a server: used by one call at a time, and never used again after a broken one.

The driver opens it, with all that belongs to that: names, TLS, passwords. From then on it is ours: what comes in is parsed as
it comes in, and wakes just the one who waits for it.

Redis answers in order and without names: whoever leaves before the answer leaves it to the next. So a line whose call was
cancelled, or got no answer in time, is dropped.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self, cast

# This package is imported only when a Redis store is opened.
import hiredis
from redis import exceptions  # noqa: TID253

from drumbeat.errors import ConfigError
from drumbeat.store.redis.failures import OLDEST, refusal

Value = bytes | str | int | float
# Its declared type is that of a command with one word.
_packed = cast(Callable[[tuple[Value, ...]], bytes], hiredis.pack_command)


class Wire(Protocol):
    """What we use of a connection of the driver, most of whose types are not declared."""

    _writer: asyncio.StreamWriter | None

    async def connect(self) -> None: ...

    async def disconnect(self, nowait: bool = False) -> None: ...


class _Question:
    """So many commands that were sent together, and their answers so far."""

    __slots__ = ("answers", "count", "future")

    def __init__(self, count: int, future: "asyncio.Future[list[Any]]") -> None:
        self.count = count
        self.future = future
        self.answers: list[Any] = []


class Line(asyncio.Protocol):
    def __init__(self, wire: Wire, place: str) -> None:
        self._wire = wire
        self._place = place
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(protocolError=exceptions.InvalidResponse, replyError=refusal)
        self._transport: asyncio.Transport
        self._question: _Question | None = None
        self._is_spoiled = False
        self._hear: Callable[[Any], None] | None = None
        self.end: asyncio.Future[None] = self._loop.create_future()
        """Done once the line is lost."""
        self.version: tuple[int, ...] = ()
        self.is_cluster = False
        self.is_modern = False
        """Whether the server knows flags of scripts."""
        self.is_master = True

    @classmethod
    async def opened(cls, wire: Wire, place: str) -> Self:
        """Connect, and learn who is there. `place` is the URL as people may see it."""
        line = cls(wire, place)
        try:
            await wire.connect()
            line._take_over()
            await line._meet()
        except BaseException:
            await line.drop()
            raise
        return line

    async def ask(self, *args: Value) -> Any:
        """The answer to a command.

        Raises:
            redis.ResponseError: the server's own words.
            redis.ConnectionError: the line is lost; the command may have been done.
        """
        [answer] = await self._answers(_packed(args), 1)
        if isinstance(answer, exceptions.RedisError):
            raise answer
        return answer

    async def ask_all(self, commands: Sequence[tuple[Value, ...]]) -> list[Any]:
        """Send them all, then read the answers; what is raised is the first error among them."""
        answers = await self._answers(b"".join(map(_packed, commands)), len(commands)) if commands else []
        for answer in answers:
            if isinstance(answer, exceptions.RedisError):
                raise answer
        return answers

    def listen(self, hear: Callable[[Any], None]) -> None:
        """Whatever is said from now on is for `hear`; nothing is asked any more."""
        self._hear = hear

    def send(self, *args: Value) -> None:
        """Send, for who listens; what is sent on a line that is lost is lost."""
        if self._is_open:
            self._transport.write(_packed(args))

    @property
    def is_usable(self) -> bool:
        """Whether it is still open, with nothing left over in it; costs no round trip."""
        return self._is_open and not self._is_spoiled

    def give_up(self) -> None:
        """There was no answer in time."""
        self._lose(TimeoutError())

    async def drop(self) -> None:
        if self._wire._writer is not None:
            self._wire._writer.transport.abort()
        self._lose(exceptions.ConnectionError("the line was dropped"))
        await self._wire.disconnect(nowait=True)

    def _take_over(self) -> None:
        # In every version of the driver so far; nothing of its own is under way now.
        writer = self._wire._writer
        assert writer is not None
        self._transport = cast(asyncio.Transport, writer.transport)
        self._transport.set_protocol(self)

    @property
    def _is_open(self) -> bool:
        return not self.end.done() and not self._transport.is_closing()

    async def _answers(self, sent: bytes, count: int) -> list[Any]:
        if not self._is_open:
            raise exceptions.ConnectionError("the connection is closed")
        self._question = question = _Question(count, self._loop.create_future())
        self._transport.write(sent)
        return await question.future

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (said := self._reader.gets()) is not False:
                self._take(said)
        except exceptions.InvalidResponse as error:
            self._lose(error)

    def connection_lost(self, error: Exception | None) -> None:
        self._lose(exceptions.ConnectionError(str(error) if error else "closed by the server"))

    def _take(self, said: Any) -> None:
        if self._hear is not None:
            self._hear(said)
            return
        question = self._question
        if question is None:
            self._is_spoiled = True
            return
        question.answers.append(said)
        if len(question.answers) == question.count:
            self._question = None
            if not question.future.done():
                question.future.set_result(question.answers)

    def _lose(self, error: Exception) -> None:
        question, self._question = self._question, None
        if question is not None and not question.future.done():
            question.future.set_exception(error)
        if not self.end.done():
            self.end.set_result(None)

    async def _meet(self) -> None:
        try:
            said = await self.ask("HELLO")
        except (exceptions.NoPermissionError, exceptions.AuthenticationError):
            raise
        except exceptions.ResponseError as error:
            raise ConfigError(
                f"{self._place}: the server is too old: {_needed()} is needed ({error})", "url"
            ) from error
        facts = dict(zip(said[::2], said[1::2], strict=True))
        version = facts[b"version"].decode()
        self.version = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
        self.is_modern = self.version >= (7,)
        self.is_cluster = facts[b"mode"] == b"cluster"
        self.is_master = facts[b"role"] == b"master"
        if self.version < OLDEST:
            raise ConfigError(f"{self._place}: the server is version {version}: {_needed()} is needed", "url")


def _needed() -> str:
    return f"Redis {OLDEST[0]}.{OLDEST[1]} or newer, or Valkey"
