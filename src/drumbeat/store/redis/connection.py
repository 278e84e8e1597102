"""One connection to a server, used by one call at a time and never again after a failed one.

The driver opens it (addresses, TLS, passwords). Then we take over its transport: replies are parsed as they arrive and wake
only their caller. bench/redis_connection.py measures what that gains over the driver's own reading: 1.6 times.

Redis replies in order and without ids: a caller that leaves before its reply leaves it to the next one. So a connection whose
call was cancelled or timed out is dropped.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self, cast

# This package is imported only when a Redis store is opened.
import hiredis
from redis import exceptions  # noqa: TID253

from drumbeat.errors import ConfigError
from drumbeat.store.redis.failures import MIN_VERSION, reply_error

Value = bytes | str | int | float
# Declared in the stubs for commands of one word only.
_pack = cast(Callable[[tuple[Value, ...]], bytes], hiredis.pack_command)


class DriverConnection(Protocol):
    """What we use of the driver's connection, whose types are mostly undeclared."""

    _writer: asyncio.StreamWriter | None

    async def connect(self) -> None: ...

    async def disconnect(self, nowait: bool = False) -> None: ...


class _PendingReplies:
    """Replies to commands that were sent together."""

    __slots__ = ("count", "future", "replies")

    def __init__(self, count: int, future: "asyncio.Future[list[Any]]") -> None:
        self.count = count
        self.future = future
        self.replies: list[Any] = []


class RedisConnection(asyncio.Protocol):
    def __init__(self, driver: DriverConnection, display_url: str) -> None:
        self._driver = driver
        self._display_url = display_url
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(protocolError=exceptions.InvalidResponse, replyError=reply_error)
        self._transport: asyncio.Transport
        self._pending: _PendingReplies | None = None
        self._is_out_of_sync = False
        self._on_message: Callable[[Any], None] | None = None
        self.closed: asyncio.Future[None] = self._loop.create_future()
        """Done once the connection is lost."""
        self.version: tuple[int, ...] = ()
        self.is_cluster = False
        self.has_script_flags = False
        """Whether the server supports script flags."""
        self.is_master = True

    @classmethod
    async def open(cls, driver: DriverConnection, display_url: str) -> Self:
        """Connect and read the server's version and role."""
        connection = cls(driver, display_url)
        try:
            await driver.connect()
            connection._take_over_transport()
            await connection._handshake()
        except BaseException:
            await connection.close()
            raise
        return connection

    async def execute(self, *args: Value) -> Any:
        """Run a command and return its reply.

        Raises:
            redis.ResponseError: the server refused it.
            redis.ConnectionError: the connection is lost; the command may have been executed.
        """
        [answer] = await self._send_and_wait(_pack(args), 1)
        if isinstance(answer, exceptions.RedisError):
            raise answer
        return answer

    async def execute_all(self, commands: Sequence[tuple[Value, ...]]) -> list[Any]:
        """Send all commands, then read the replies; raise the first error among them."""
        answers = await self._send_and_wait(b"".join(map(_pack, commands)), len(commands)) if commands else []
        for answer in answers:
            if isinstance(answer, exceptions.RedisError):
                raise answer
        return answers

    def listen(self, on_message: Callable[[Any], None]) -> None:
        """Pass all further messages to `on_message`; commands are no longer allowed."""
        self._on_message = on_message

    def send(self, *args: Value) -> None:
        """Send without waiting for a reply, while listening."""
        if self._is_open:
            self._transport.write(_pack(args))

    @property
    def is_usable(self) -> bool:
        """Whether it is open and in sync; takes no round trip."""
        return self._is_open and not self._is_out_of_sync

    def time_out(self) -> None:
        """Fail the current call."""
        self._fail(TimeoutError())

    async def close(self) -> None:
        if self._driver._writer is not None:
            self._driver._writer.transport.abort()
        self._fail(exceptions.ConnectionError("the connection was dropped"))
        await self._driver.disconnect(nowait=True)

    def _take_over_transport(self) -> None:
        # Private, but present in every version of the driver so far (a test names it).
        writer = self._driver._writer
        assert writer is not None
        self._transport = cast(asyncio.Transport, writer.transport)
        self._transport.set_protocol(self)

    @property
    def _is_open(self) -> bool:
        return not self.closed.done() and not self._transport.is_closing()

    async def _send_and_wait(self, sent: bytes, count: int) -> list[Any]:
        if not self._is_open:
            raise exceptions.ConnectionError("the connection is closed")
        self._pending = pending = _PendingReplies(count, self._loop.create_future())
        self._transport.write(sent)
        return await pending.future

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not False:
                self._dispatch(reply)
        except exceptions.InvalidResponse as error:
            self._fail(error)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(exceptions.ConnectionError(str(error) if error else "closed by the server"))

    def _dispatch(self, reply: Any) -> None:
        if self._on_message is not None:
            self._on_message(reply)
            return
        pending = self._pending
        if pending is None:
            self._is_out_of_sync = True
            return
        pending.replies.append(reply)
        if len(pending.replies) == pending.count:
            self._pending = None
            if not pending.future.done():
                pending.future.set_result(pending.replies)

    def _fail(self, error: Exception) -> None:
        pending, self._pending = self._pending, None
        if pending is not None and not pending.future.done():
            pending.future.set_exception(error)
        if not self.closed.done():
            self.closed.set_result(None)

    async def _handshake(self) -> None:
        try:
            reply = await self.execute("HELLO")
        except (exceptions.NoPermissionError, exceptions.AuthenticationError):
            raise
        except exceptions.ResponseError as error:
            raise ConfigError(
                f"{self._display_url}: the server is too old: {_required_version()} is needed ({error})", "url"
            ) from error
        facts = dict(zip(reply[::2], reply[1::2], strict=True))
        version = facts[b"version"].decode()
        self.version = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
        self.has_script_flags = self.version >= (7,)
        self.is_cluster = facts[b"mode"] == b"cluster"
        self.is_master = facts[b"role"] == b"master"
        if self.version < MIN_VERSION:
            raise ConfigError(
                f"{self._display_url}: the server is version {version}: {_required_version()} is needed", "url"
            )


def _required_version() -> str:
    return f"Redis {MIN_VERSION[0]}.{MIN_VERSION[1]} or newer, or Valkey"
