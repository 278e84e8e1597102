"""A few connections to one Redis: a `RedisPool` opens them when they are needed, lends each to one call at a time, and opens others
in place of those that were lost.

In a cluster all keys of a namespace are in one slot, so a pool is connected to the node that has it, and follows when it moves.
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
from drumbeat.store.redis.connection import DriverConnection, RedisConnection, Value
from drumbeat.store.redis.failures import (
    DRIVER_ERRORS,
    as_outage,
    is_connection_intact,
    translate_error,
    translate_errors,
)
from drumbeat.store.redis.keys import RedisKeys
from drumbeat.store.redis.scripts import SCRIPTS

CALL_TIMEOUT = 4.5
"""Seconds in which a call is answered, or the store is unavailable: from waiting for a connection to the last byte."""
MAX_CONNECTIONS = 8
"""Connections of one pool at most; the last one that was given back is lent first, so few are ever opened."""
_NODE_TIMEOUT = 1.5
_READ_BUFFER_BYTES = 1 << 18
_MAX_REDIRECTS = 5
_DRIVER_OPTIONS = frozenset(
    {
        *("db", "client_name", "ssl_keyfile", "ssl_certfile", "ssl_ca_certs", "ssl_ca_path", "ssl_password"),
        *("ssl_cert_reqs", "ssl_check_hostname", "ssl_min_version", "ssl_ciphers"),
    }
)
_OWN_OPTIONS = {"cluster": {"true", "false"}, "eviction": {"accepted", "refused"}}

T = TypeVar("T")
Node = tuple[str, int]
Operation = Callable[[RedisConnection], Awaitable[T]]


class RedisAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server is, and how to speak to it."""

    options: dict[str, Any]
    """What the driver's connection is made with."""
    display_url: str
    """Without a password."""
    cluster: bool = False
    """There must be a cluster. One that is found is used as one in any case."""
    eviction_accepted: bool = False
    """Somebody has decided to live with a server that throws keys away."""

    def new_connection(self, node: Node | None) -> DriverConnection:
        """A connection, not opened yet; `node`: to this one in place of the URL's."""
        options = dict(self.options)
        kind = options.pop("connection_class", Connection)
        if node is not None:
            options["host"], options["port"] = node
        return cast(DriverConnection, kind(**options))


def address(url: str, display_url: str) -> RedisAddress:
    """Understand the URL. `cluster=true` and `eviction=accepted` are ours, the other options are the driver's.

    Raises:
        ConfigError: with what is allowed.
    """
    base, _, query = url.partition("?")
    given = parse_qsl(query, keep_blank_values=True)
    own_options = {name: value for name, value in given if name in _OWN_OPTIONS}
    for name, value in own_options.items():
        if value not in _OWN_OPTIONS[name]:
            raise ConfigError(f"{display_url}: {name}= may be {' or '.join(sorted(_OWN_OPTIONS[name]))}", "url")
    if unknown := sorted({name for name, _ in given} - _DRIVER_OPTIONS - _OWN_OPTIONS.keys()):
        known = ", ".join(sorted(_DRIVER_OPTIONS | _OWN_OPTIONS.keys()))
        raise ConfigError(f"{display_url}: there is no option {unknown[0]!r}: use {known}", "url")
    rest = urlencode([(name, value) for name, value in given if name not in _OWN_OPTIONS])
    scheme, _, place = base.partition("://")
    _check_database(scheme, base, display_url)
    scheme = scheme.replace("valkey", "redis")
    try:
        options = dict(parse_url(f"{scheme}://{place}?{rest}" if rest else f"{scheme}://{place}"))
    except ValueError as error:
        raise ConfigError(f"{display_url}: {error}", "url") from error
    options = {"client_name": "drumbeat"} | options
    # Time-outs are our own: the driver would make a task for each write.
    options |= {
        "socket_timeout": None,
        "socket_connect_timeout": CALL_TIMEOUT - 0.2,
        "socket_read_size": _READ_BUFFER_BYTES,
        "protocol": 2,
    }
    return RedisAddress(
        options=options,
        display_url=display_url,
        cluster=own_options.get("cluster") == "true",
        eviction_accepted=own_options.get("eviction") == "accepted",
    )


def _check_database(scheme: str, base: str, display_url: str) -> None:
    try:
        parts = urlsplit(base)
        _ = parts.port
    except ValueError as error:
        raise ConfigError(f"{display_url}: {error}", "url") from error
    if scheme == "unix":
        if not parts.path.strip("/") or parts.hostname:
            raise ConfigError(f"{display_url} names no socket: use unix:///folder/redis.sock, with ?db=1", "url")
    elif parts.path.strip("/") and not parts.path.strip("/").isdigit():
        raise ConfigError(f"{display_url}: a database of Redis is a number, as in redis://host:6379/0", "url")


class RedisPool:
    def __init__(self, address: RedisAddress, namespace: str, *, size: int = MAX_CONNECTIONS) -> None:
        self.address = address
        self.keys = RedisKeys(namespace)
        self._pid = os.getpid()
        self._max_size = size
        self._idle: list[RedisConnection] = []
        self._busy: set[RedisConnection] = set()
        self._opening = 0
        self._waiters: deque[asyncio.Future[RedisConnection | None]] = deque()
        self._node: Node | None = None
        self._known_nodes: list[Node] = []
        self._has_connected = False
        self._is_closed = False

    async def run(self, name: str, *args: Value, timeout: float = CALL_TIMEOUT) -> Any:
        """The answer of the script `lua/<name>.lua`, which gets the prefix of all keys as KEYS[1], and these as ARGV.

        Raises:
            StoreUnavailable: no answer in time; it may have run.
            StoreFull: the server is full, and the script is not one of those that run all the same; it did nothing.
            StoreError: the script failed, or a value cannot be sent.
        """
        script = SCRIPTS[name]

        async def evaluate(connection: RedisConnection) -> Any:
            text = script.with_flags if connection.has_script_flags else script.without_flags
            try:
                return await connection.execute("EVALSHA", text.sha, 1, self.keys.prefix, *args)
            except exceptions.NoScriptError:
                # The first time on this server, or somebody has flushed its scripts; it keeps them from now on.
                return await connection.execute("EVAL", text.lua, 1, self.keys.prefix, *args)

        return await self._with_connection(evaluate, timeout)

    async def command(self, *args: Value, timeout: float = CALL_TIMEOUT) -> Any:
        """The answer of a plain command; a key must be one of `keys`."""
        return await self._with_connection(lambda connection: connection.execute(*args), timeout)

    async def pipeline(self, commands: Sequence[tuple[Value, ...]], *, timeout: float = CALL_TIMEOUT) -> list[Any]:
        """The answers of several plain commands, sent at once; others may come between them."""
        return await self._with_connection(lambda connection: connection.execute_all(commands), timeout)

    async def open_dedicated(self) -> RedisConnection:
        """A connection that belongs to the caller: drop it in the end."""
        self._check_process()
        with translate_errors(self.address.display_url):
            async with asyncio.timeout(CALL_TIMEOUT):
                return await self._open()

    async def close(self) -> None:
        """Calls under way end with StoreUnavailable. Harmless twice."""
        self._is_closed = True
        connections = [*self._idle, *self._busy]
        self._idle.clear()
        while self._hand_over(None):
            pass
        if os.getpid() == self._pid:
            for connection in connections:
                await connection.close()

    async def _with_connection(self, operation: Operation[T], timeout: float) -> T:
        self._check_process()
        deadline = asyncio.get_running_loop().time() + timeout
        try:
            for _ in range(_MAX_REDIRECTS):
                connection = self._pop_idle() or await self._acquire(deadline)
                try:
                    return await self._run_on(connection, operation, deadline)
                except exceptions.MovedError as moved:
                    await self._follow_redirect(moved)
        except DRIVER_ERRORS as error:
            raise translate_error(error, self.address.display_url) from error
        raise StoreUnavailable(f"{self.address.display_url}: the cluster sent us on {_MAX_REDIRECTS} times")

    async def _run_on(self, connection: RedisConnection, operation: Operation[T], deadline: float) -> T:
        # Not asyncio.timeout: it costs more than all else that is done here, and this is the way of every call.
        timer = asyncio.get_running_loop().call_at(deadline, connection.time_out)
        try:
            answer = await operation(connection)
        except BaseException as error:
            await self._release(connection, is_connection_intact(error))
            raise
        finally:
            timer.cancel()
        await self._release(connection, True)
        return answer

    def _pop_idle(self) -> RedisConnection | None:
        """The connection that was used last, if it is free; nobody waits for one then."""
        if not self._idle or not self._idle[-1].is_usable:
            return None
        connection = self._idle.pop()
        self._busy.add(connection)
        return connection

    async def _acquire(self, deadline: float) -> RedisConnection:
        """A connection that is opened now, or one that somebody gives back."""
        async with asyncio.timeout_at(deadline):
            while self._idle:
                if (connection := self._pop_idle()) is not None:
                    return connection
                await self._idle.pop().close()
            while len(self._busy) + self._opening >= self._max_size:
                if (given := await self._wait_for_release()) is not None:
                    return given
            self._opening += 1
            try:
                connection = await self._open()
            except BaseException:
                self._hand_over(None)
                raise
            finally:
                self._opening -= 1
            self._busy.add(connection)
            return connection

    async def _wait_for_release(self) -> RedisConnection | None:
        """Wait for a connection; None: there is room for another."""
        waiter: asyncio.Future[RedisConnection | None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                with suppress(ValueError):  # somebody who gave a connection back has passed over it already
                    self._waiters.remove(waiter)
            elif (connection := waiter.result()) is not None:
                await self._release(connection, True)
            else:
                self._hand_over(None)
            raise

    async def _release(self, connection: RedisConnection, is_intact: bool) -> None:
        if is_intact and connection.is_usable and not self._is_closed:
            if not self._hand_over(connection):
                self._busy.discard(connection)
                self._idle.append(connection)
            return
        self._busy.discard(connection)
        self._hand_over(None)
        await connection.close()

    def _hand_over(self, connection: RedisConnection | None) -> bool:
        """Give it, or room for another, to who has waited longest; False if nobody waits."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return True
        return False

    async def _open(self) -> RedisConnection:
        if self._is_closed:
            raise StoreUnavailable(f"{self.address.display_url}: the store is closed")
        try:
            with translate_errors(self.address.display_url):
                connection = await self._connect()
        except DrumbeatError as error:
            if self._has_connected:
                raise as_outage(error) from error
            raise
        self._has_connected = True
        return connection

    async def _connect(self) -> RedisConnection:
        """A connection to the server, in a cluster to the node that has our slot."""
        if self._node is not None:
            with suppress(OSError, exceptions.RedisError, TimeoutError, DrumbeatError):
                return await self._connect_node(self._node)
            self._node = None
        connection = await self._connect_any()
        if not connection.is_cluster:
            return await self._check_role(connection)
        try:
            self._node = await self._find_slot_owner(connection)
        finally:
            await connection.close()
        return await self._connect_node(self._node)

    async def _connect_any(self) -> RedisConnection:
        """The server of the URL, or in its place another node of the cluster that we know from better times."""
        for node in self._known_nodes:
            with suppress(OSError, exceptions.RedisError, TimeoutError):
                async with asyncio.timeout(_NODE_TIMEOUT):
                    return await RedisConnection.open(self.address.new_connection(node), self.address.display_url)
        return await RedisConnection.open(self.address.new_connection(None), self.address.display_url)

    async def _connect_node(self, node: Node) -> RedisConnection:
        async with asyncio.timeout(_NODE_TIMEOUT):
            return await self._check_role(
                await RedisConnection.open(self.address.new_connection(node), self.address.display_url)
            )

    async def _check_role(self, connection: RedisConnection) -> RedisConnection:
        problem = None
        if not connection.is_master:
            problem = "the server is read-only: it is a replica"
        elif self.address.cluster and not connection.is_cluster:
            problem = "cluster=true, but the server is no node of a cluster"
        if problem is not None:
            await connection.close()
            raise ConfigError(f"{self.address.display_url}: {problem}", "url")
        return connection

    async def _find_slot_owner(self, connection: RedisConnection) -> Node:
        slot = await connection.execute("CLUSTER", "KEYSLOT", self.keys.prefix)
        slots = await connection.execute("CLUSTER", "SLOTS")
        found = [(first, last, [self._to_node(*node) for node in nodes]) for first, last, *nodes in slots]
        self._known_nodes = list(dict.fromkeys(node for _, _, nodes in found for node in nodes))
        random.shuffle(self._known_nodes)
        for first, last, nodes in found:
            if first <= slot <= last:
                return nodes[0]
        raise StoreUnavailable(f"{self.address.display_url}: no node of the cluster has slot {slot}")

    def _to_node(self, host: bytes | None, port: int, *_: object) -> Node:
        # A node that does not know its own name is the one that was asked.
        return (host or b"").decode() or self.address.options.get("host", "localhost"), port

    async def _follow_redirect(self, moved: Any) -> None:
        self._node = (moved.host or self.address.options.get("host", "localhost"), int(moved.port))
        for connection in self._idle:
            await connection.close()
        self._idle.clear()

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise StoreError(
                f"{self.address.display_url} was opened before this process was forked: open the store anew in the child"
            )
