"""A few connections to one Redis: a `Link` opens them when they are needed, lends each to one call at a time, and opens others
in place of those that were lost.

In a cluster all keys of a namespace are in one slot, so a link is connected to the node that has it, and follows when it moves.
"""

import asyncio
import os
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

# This package is imported only when a Redis store is opened.
from redis import exceptions  # noqa: TID253
from redis.asyncio.connection import Connection, parse_url  # noqa: TID253

from drumbeat.errors import ConfigError, DrumbeatError, StoreError, StoreUnavailable
from drumbeat.store.redis.failures import FAULTS, is_harmless, ours, translated, while_running
from drumbeat.store.redis.keys import Keys
from drumbeat.store.redis.line import Line, Value, Wire
from drumbeat.store.redis.scripts import SCRIPTS

PATIENCE = 4.5
"""Seconds in which a call is answered, or the store is unavailable: from waiting for a connection to the last byte."""
SIZE = 8
"""Connections of one link at most; the last one that was given back is lent first, so few are ever opened."""
_PATIENCE_OF_NODE = 1.5
_READ = 1 << 18
_REDIRECTS = 5
_OPTIONS = frozenset(
    {
        *("db", "client_name", "ssl_keyfile", "ssl_certfile", "ssl_ca_certs", "ssl_ca_path", "ssl_password"),
        *("ssl_cert_reqs", "ssl_check_hostname", "ssl_min_version", "ssl_ciphers"),
    }
)
_OWN = {"cluster": {"true", "false"}, "eviction": {"accepted", "refused"}}

T = TypeVar("T")
Node = tuple[str, int]
Work = Callable[[Line], Awaitable[T]]


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server is, and how to speak to it."""

    options: dict[str, Any]
    """What the driver's connection is made with."""
    shown: str
    """Without a password."""
    cluster: bool = False
    """There must be a cluster. One that is found is used as one in any case."""
    eviction_accepted: bool = False
    """Somebody has decided to live with a server that throws keys away."""

    def wire(self, node: Node | None) -> Wire:
        """A connection, not opened yet; `node`: to this one in place of the URL's."""
        options = dict(self.options)
        kind = options.pop("connection_class", Connection)
        if node is not None:
            options["host"], options["port"] = node
        return cast(Wire, kind(**options))


def address(url: str, shown: str) -> Address:
    """Understand the URL. `cluster=true` and `eviction=accepted` are ours, the other options are the driver's.

    Raises:
        ConfigError: with what is allowed.
    """
    base, _, query = url.partition("?")
    given = parse_qsl(query, keep_blank_values=True)
    own = {name: value for name, value in given if name in _OWN}
    for name, value in own.items():
        if value not in _OWN[name]:
            raise ConfigError(f"{shown}: {name}= may be {' or '.join(sorted(_OWN[name]))}", "url")
    if unknown := sorted({name for name, _ in given} - _OPTIONS - _OWN.keys()):
        known = ", ".join(sorted(_OPTIONS | _OWN.keys()))
        raise ConfigError(f"{shown}: there is no option {unknown[0]!r}: use {known}", "url")
    rest = urlencode([(name, value) for name, value in given if name not in _OWN])
    scheme, _, place = base.partition("://")
    _check_place(scheme, base, shown)
    scheme = scheme.replace("valkey", "redis")
    try:
        options = dict(parse_url(f"{scheme}://{place}?{rest}" if rest else f"{scheme}://{place}"))
    except ValueError as error:
        raise ConfigError(f"{shown}: {error}", "url") from error
    options = {"client_name": "drumbeat"} | options
    # Time-outs are our own: the driver would make a task for each write.
    options |= {
        "socket_timeout": None,
        "socket_connect_timeout": PATIENCE - 0.2,
        "socket_read_size": _READ,
        "protocol": 2,
    }
    return Address(
        options=options,
        shown=shown,
        cluster=own.get("cluster") == "true",
        eviction_accepted=own.get("eviction") == "accepted",
    )


def _check_place(scheme: str, base: str, shown: str) -> None:
    try:
        parts = urlsplit(base)
        _ = parts.port
    except ValueError as error:
        raise ConfigError(f"{shown}: {error}", "url") from error
    if scheme == "unix":
        if not parts.path.strip("/") or parts.hostname:
            raise ConfigError(f"{shown} names no socket: use unix:///folder/redis.sock, with ?db=1", "url")
    elif parts.path.strip("/") and not parts.path.strip("/").isdigit():
        raise ConfigError(f"{shown}: a database of Redis is a number, as in redis://host:6379/0", "url")


class Link:
    def __init__(self, address: Address, namespace: str, *, size: int = SIZE) -> None:
        self.address = address
        self.keys = Keys(namespace)
        self._pid = os.getpid()
        self._size = size
        self._idle: list[Line] = []
        self._busy: set[Line] = set()
        self._opening = 0
        self._waiting: deque[asyncio.Future[Line | None]] = deque()
        self._node: Node | None = None
        self._others: list[Node] = []
        self._was_open = False
        self._closed = False

    async def run(self, name: str, *args: Value, patience: float = PATIENCE) -> Any:
        """The answer of the script `lua/<name>.lua`, which gets the prefix of all keys as KEYS[1], and these as ARGV.

        Raises:
            StoreUnavailable: no answer in time; it may have run.
            StoreFull: the server is full, and the script is not one of those that run all the same; it did nothing.
            StoreError: the script failed, or a value cannot be sent.
        """
        script = SCRIPTS[name]

        async def work(line: Line) -> Any:
            text = script.modern if line.is_modern else script.old
            try:
                return await line.ask("EVALSHA", text.sha, 1, self.keys.prefix, *args)
            except exceptions.NoScriptError:
                # The first time on this server, or somebody has flushed its scripts; it keeps them from now on.
                return await line.ask("EVAL", text.lua, 1, self.keys.prefix, *args)

        return await self._lent(work, patience)

    async def command(self, *args: Value, patience: float = PATIENCE) -> Any:
        """The answer of a plain command; a key must be one of `keys`."""
        return await self._lent(lambda line: line.ask(*args), patience)

    async def pipeline(self, commands: Sequence[tuple[Value, ...]], *, patience: float = PATIENCE) -> list[Any]:
        """The answers of several plain commands, sent at once; others may come between them."""
        return await self._lent(lambda line: line.ask_all(commands), patience)

    async def dial(self) -> Line:
        """A connection that belongs to the caller: drop it in the end."""
        self._check_process()
        with translated(self.address.shown):
            async with asyncio.timeout(PATIENCE):
                return await self._opened()

    async def close(self) -> None:
        """Calls under way end with StoreUnavailable. Harmless twice."""
        self._closed = True
        lines = [*self._idle, *self._busy]
        self._idle.clear()
        while self._pass_on(None):
            pass
        if os.getpid() == self._pid:
            for line in lines:
                await line.drop()

    async def _lent(self, work: Work[T], patience: float) -> T:
        self._check_process()
        deadline = asyncio.get_running_loop().time() + patience
        try:
            for _ in range(_REDIRECTS):
                line = self._at_hand() or await self._awaited(deadline)
                try:
                    return await self._used(line, work, deadline)
                except exceptions.MovedError as moved:
                    await self._follow(moved)
        except FAULTS as error:
            raise ours(error, self.address.shown) from error
        raise StoreUnavailable(f"{self.address.shown}: the cluster sent us on {_REDIRECTS} times")

    async def _used(self, line: Line, work: Work[T], deadline: float) -> T:
        # Not asyncio.timeout: it costs more than all else that is done here, and this is the way of every call.
        timer = asyncio.get_running_loop().call_at(deadline, line.give_up)
        try:
            answer = await work(line)
        except BaseException as error:
            await self._put_back(line, is_harmless(error))
            raise
        finally:
            timer.cancel()
        await self._put_back(line, True)
        return answer

    def _at_hand(self) -> Line | None:
        """The line that was used last, if it is free; nobody waits for one then."""
        if not self._idle or not self._idle[-1].is_usable:
            return None
        line = self._idle.pop()
        self._busy.add(line)
        return line

    async def _awaited(self, deadline: float) -> Line:
        """A line that is opened now, or one that somebody gives back."""
        async with asyncio.timeout_at(deadline):
            while self._idle:
                if (line := self._at_hand()) is not None:
                    return line
                await self._idle.pop().drop()
            while len(self._busy) + self._opening >= self._size:
                if (given := await self._given_back()) is not None:
                    return given
            self._opening += 1
            try:
                line = await self._opened()
            except BaseException:
                self._pass_on(None)
                raise
            finally:
                self._opening -= 1
            self._busy.add(line)
            return line

    async def _given_back(self) -> Line | None:
        """Wait in line; None: there is room for another."""
        turn: asyncio.Future[Line | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                with suppress(ValueError):  # somebody who gave a line back has passed over it already
                    self._waiting.remove(turn)
            elif (line := turn.result()) is not None:
                await self._put_back(line, True)
            else:
                self._pass_on(None)
            raise

    async def _put_back(self, line: Line, whole: bool) -> None:
        if whole and line.is_usable and not self._closed:
            if not self._pass_on(line):
                self._busy.discard(line)
                self._idle.append(line)
            return
        self._busy.discard(line)
        self._pass_on(None)
        await line.drop()

    def _pass_on(self, line: Line | None) -> bool:
        """Give it, or room for another, to who has waited longest; False if nobody waits."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(line)
                return True
        return False

    async def _opened(self) -> Line:
        if self._closed:
            raise StoreUnavailable(f"{self.address.shown}: the store is closed")
        try:
            with translated(self.address.shown):
                line = await self._found()
        except DrumbeatError as error:
            if self._was_open:
                raise while_running(error) from error
            raise
        self._was_open = True
        return line

    async def _found(self) -> Line:
        """A connection to the server, in a cluster to the node that has our slot."""
        if self._node is not None:
            with suppress(OSError, exceptions.RedisError, TimeoutError, DrumbeatError):
                return await self._master(self._node)
            self._node = None
        line = await self._anyone()
        if not line.is_cluster:
            return await self._sure(line)
        try:
            self._node = await self._owner(line)
        finally:
            await line.drop()
        return await self._master(self._node)

    async def _anyone(self) -> Line:
        """The server of the URL, or in its place another node of the cluster that we know from better times."""
        for node in self._others:
            with suppress(OSError, exceptions.RedisError, TimeoutError):
                async with asyncio.timeout(_PATIENCE_OF_NODE):
                    return await Line.opened(self.address.wire(node), self.address.shown)
        return await Line.opened(self.address.wire(None), self.address.shown)

    async def _master(self, node: Node) -> Line:
        async with asyncio.timeout(_PATIENCE_OF_NODE):
            return await self._sure(await Line.opened(self.address.wire(node), self.address.shown))

    async def _sure(self, line: Line) -> Line:
        problem = None
        if not line.is_master:
            problem = "the server is read-only: it is a replica"
        elif self.address.cluster and not line.is_cluster:
            problem = "cluster=true, but the server is no node of a cluster"
        if problem is not None:
            await line.drop()
            raise ConfigError(f"{self.address.shown}: {problem}", "url")
        return line

    async def _owner(self, line: Line) -> Node:
        slot = await line.ask("CLUSTER", "KEYSLOT", self.keys.prefix)
        slots = await line.ask("CLUSTER", "SLOTS")
        found = [(first, last, [self._named(*node) for node in nodes]) for first, last, *nodes in slots]
        self._others = list(dict.fromkeys(node for _, _, nodes in found for node in nodes))
        random.shuffle(self._others)
        for first, last, nodes in found:
            if first <= slot <= last:
                return nodes[0]
        raise StoreUnavailable(f"{self.address.shown}: no node of the cluster has slot {slot}")

    def _named(self, host: bytes | None, port: int, *_: object) -> Node:
        # A node that does not know its own name is the one that was asked.
        return (host or b"").decode() or self.address.options.get("host", "localhost"), port

    async def _follow(self, moved: Any) -> None:
        self._node = (moved.host or self.address.options.get("host", "localhost"), int(moved.port))
        for line in self._idle:
            await line.drop()
        self._idle.clear()

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise StoreError(
                f"{self.address.shown} was opened before this process was forked: open the store anew in the child"
            )
