"""One connection to a server: opened, made sure of, used by one call at a time, and never used again after a broken one.

Redis answers in order and without names: whoever leaves before the answer leaves it to the next. So a line whose call was
cancelled, or got no answer in time, is dropped.
"""

from collections.abc import Callable
from typing import Any, Protocol, Self, cast

# This package is imported only when a Redis store is opened.
import hiredis
from redis import exceptions  # noqa: TID253

from drumbeat.errors import ConfigError
from drumbeat.store.redis.failures import OLDEST

Value = bytes | str | int | float
# Its declared type is that of a command with one word.
_packed = cast(Callable[[tuple[Value, ...]], bytes], hiredis.pack_command)


class Wire(Protocol):
    """What we use of a connection of the driver, most of whose types are not declared."""

    async def connect(self) -> None: ...

    async def disconnect(self, nowait: bool = False) -> None: ...

    async def send_packed_command(self, command: bytes, check_health: bool = True) -> None: ...

    async def read_response(self, *, timeout: float | None = None, disconnect_on_error: bool = True) -> Any: ...


class Line:
    def __init__(self, wire: Wire, place: str) -> None:
        self._wire = wire
        self._place = place
        # Named anew in version 8 of the driver.
        self._spoiled = getattr(wire, "can_read", None) or wire.can_read_destructive  # type: ignore[attr-defined]
        self.version: tuple[int, ...] = ()
        self.is_cluster = False
        self.is_master = True

    @classmethod
    async def opened(cls, wire: Wire, place: str) -> Self:
        """Connect, and learn who is there. `place` is the URL as people may see it."""
        line = cls(wire, place)
        try:
            await wire.connect()
            await line._meet()
        except BaseException:
            await line.drop()
            raise
        return line

    @property
    def is_modern(self) -> bool:
        """Whether the server knows flags of scripts."""
        return self.version >= (7,)

    async def ask(self, *args: Value) -> Any:
        await self._wire.send_packed_command(_packed(args), check_health=False)
        return await self._wire.read_response()

    async def ask_all(self, commands: list[tuple[Value, ...]]) -> list[Any]:
        """Send them all, then read the answers; what is raised is the first error among them."""
        await self._wire.send_packed_command(b"".join(map(_packed, commands)), check_health=False)
        answers: list[Any] = []
        wrong: exceptions.ResponseError | None = None
        for _ in commands:
            try:
                answers.append(await self._wire.read_response())
            except exceptions.ResponseError as error:
                wrong = wrong or error
        if wrong is not None:
            raise wrong
        return answers

    async def send(self, *args: Value) -> None:
        """Send, and leave the answer to `heard`."""
        await self._wire.send_packed_command(_packed(args), check_health=False)

    async def heard(self, within: float) -> Any:
        """The next answer or message; None if there is none within so many seconds; the line is as good as before."""
        return await self._wire.read_response(timeout=within)

    async def is_usable(self) -> bool:
        """Whether it is still open, with nothing left over in it; costs no round trip."""
        try:
            return not await self._spoiled()
        except exceptions.RedisError:
            return False

    async def drop(self) -> None:
        await self._wire.disconnect(nowait=True)

    async def _meet(self) -> None:
        try:
            said = await self.ask("HELLO")
        except exceptions.NoPermissionError:
            raise
        except exceptions.ResponseError as error:
            if str(error).startswith(("NOAUTH", "Authentication required")):
                raise exceptions.AuthenticationError(str(error)) from error
            raise ConfigError(
                f"{self._place}: the server is too old: {_needed()} is needed ({error})", "url"
            ) from error
        facts = dict(zip(said[::2], said[1::2], strict=True))
        version = facts[b"version"].decode()
        self.version = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
        self.is_cluster = facts[b"mode"] == b"cluster"
        self.is_master = facts[b"role"] == b"master"
        if self.version < OLDEST:
            raise ConfigError(f"{self._place}: the server is version {version}: {_needed()} is needed", "url")


def _needed() -> str:
    return f"Redis {OLDEST[0]}.{OLDEST[1]} or newer, or Valkey"
