"""A pool of connections to one Redis: opened on demand, lent to one call at a time, replaced when lost.

In a cluster all keys of a namespace are in one slot: a pool connects to the node that owns it and follows when it moves.
"""

import asyncio
import os
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

# This package is imported only when a Redis store is opened.
from redis import exceptions  # noqa: TID253

from drumbeat.errors import ConfigError, DrumbeatError, StoreError, StoreUnavailable
from drumbeat.store.redis.address import Node, RedisAddress
from drumbeat.store.redis.connection import RedisConnection, Value
from drumbeat.store.redis.failures import DRIVER_ERRORS, is_connection_intact, translate_error, translate_errors
from drumbeat.store.redis.keys import RedisKeys
from drumbeat.store.redis.scripts import SCRIPTS

CALL_TIMEOUT = 4.5
"""Seconds for a whole call, from waiting for a connection to the last byte; then the store is unavailable."""
MAX_CONNECTIONS = 8
"""Connections of a pool. The one released last is lent first, so few are ever opened."""
_NODE_TIMEOUT = 1.5
_MAX_REDIRECTS = 5
T = TypeVar("T")
Operation = Callable[[RedisConnection], Awaitable[T]]


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
        """Run the script `lua/<name>.lua` with the key prefix as KEYS[1] and these as ARGV; return its reply.

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
                # First use on this server, or its scripts were flushed; it caches the script from now on.
                return await connection.execute("EVAL", text.lua, 1, self.keys.prefix, *args)

        return await self._with_connection(evaluate, timeout)

    async def command(self, *args: Value, timeout: float = CALL_TIMEOUT) -> Any:
        """Run a plain command; a key must be one of `keys`."""
        return await self._with_connection(lambda connection: connection.execute(*args), timeout)

    async def pipeline(self, commands: Sequence[tuple[Value, ...]], *, timeout: float = CALL_TIMEOUT) -> list[Any]:
        """Run several plain commands in one round trip, not atomically."""
        return await self._with_connection(lambda connection: connection.execute_all(commands), timeout)

    async def open_dedicated(self) -> RedisConnection:
        """Open a connection that the caller owns and must close."""
        self._check_process()
        with translate_errors(self.address.display_url):
            async with asyncio.timeout(CALL_TIMEOUT):
                return await self._open()

    async def close(self) -> None:
        """Close; current calls end with StoreUnavailable. Idempotent."""
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
        # Not asyncio.timeout: it costs more than the rest of this function, and every call passes here.
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
        """Return the connection that was used last, if it is free."""
        if not self._idle or not self._idle[-1].is_usable:
            return None
        connection = self._idle.pop()
        self._busy.add(connection)
        return connection

    async def _acquire(self, deadline: float) -> RedisConnection:
        """Open a connection, or wait until one is released."""
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
        """Wait for a released connection; None: another may be opened."""
        waiter: asyncio.Future[RedisConnection | None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                with suppress(ValueError):  # already skipped by a release
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
        """Hand a connection, or the right to open one, to the longest waiter; False if there is none."""
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
        except ConfigError as error:
            if self._has_connected:  # it may be repaired while we wait
                raise StoreUnavailable(str(error)) from error
            raise
        self._has_connected = True
        return connection

    async def _connect(self) -> RedisConnection:
        """Connect to the server, in a cluster to the node that owns our slot."""
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
        """Connect to the server of the URL, or else to a node of the cluster that was known before."""
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
        # A node without a name is the one that was asked.
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
