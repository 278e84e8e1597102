"""A handler's transaction on PostgreSQL, on a connection from a pool that serves nothing else.

The handler's writes come first, and only the last statement before the commit touches the job's row: cancelling or
rescuing the job never waits for a handler. In `def` handlers the connection is psycopg's, opened for the block.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import asyncpg  # noqa: TID253

from drumbeat.errors import ConfigError, StoreUnavailable
from drumbeat.store.postgres.connections import CALL_TIMEOUT, PostgresAddress
from drumbeat.store.postgres.drivers import sqlstate
from drumbeat.store.postgres.error_translation import translate_errors

MAX_CONNECTIONS = 5
"""Number of handlers of one process that may have a transaction open at the same time; the others wait."""
ACQUIRE_TIMEOUT = 30.0
CANCEL_TIMEOUT = 1.0
"""A cancelled statement is answered within this time, or its session is terminated."""
_CONNECTION_LOST_CLASSES = frozenset({"08", "57"})


class TransactionPool:
    """Opened when it is first used, on the loop that uses it."""

    def __init__(self, address: PostgresAddress, terminate_sql: str) -> None:
        self.address = address
        self._terminate_sql = terminate_sql
        self._pool: Any = None
        self._opening: asyncio.Lock | None = None

    async def acquire(self) -> Any:
        with translate_errors(self.address.masked_url):
            try:
                async with asyncio.timeout(ACQUIRE_TIMEOUT):
                    return await (await self._ensure_open()).acquire()
            except TimeoutError:
                raise StoreUnavailable(
                    f"{self.address.masked_url}: none of the {MAX_CONNECTIONS} connections for transactions was free within "
                    f"{ACQUIRE_TIMEOUT:g} s"
                ) from None

    async def release(self, connection: Any) -> None:
        with translate_errors(self.address.masked_url):
            await self._pool.release(connection, timeout=CALL_TIMEOUT)

    async def terminate_session(self, pid: int) -> None:
        """Let the server terminate one of our sessions. A pooler in transaction mode does so itself when its client is
        gone."""
        if self.address.pooled:
            return
        # If this fails, the server ends it when it next sends something.
        with contextlib.suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            async with asyncio.timeout(CALL_TIMEOUT), (await self._ensure_open()).acquire() as connection:
                await connection.execute(self._terminate_sql, pid)

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            # What is still open belongs to a handler that was abandoned.
            pool.terminate()

    async def _ensure_open(self) -> Any:
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            if self._pool is None:
                options: dict[str, Any] = {"statement_cache_size": 0} if self.address.pooled else {}
                self._pool = await asyncpg.create_pool(
                    self.address.dsn,
                    min_size=0,
                    max_size=MAX_CONNECTIONS,
                    timeout=CALL_TIMEOUT,
                    command_timeout=None,
                    **options,
                )
        return self._pool


class PostgresTransaction:
    """The contract is in `store.protocol.EngineTransaction`."""

    def __init__(self, pool: TransactionPool) -> None:
        self.timeout: float | None = None
        self._pool = pool
        self._connection: Any = None
        self._transaction: Any = None

    async def begin(self) -> Any:
        self._connection = await self._pool.acquire()
        try:
            with translate_errors(self._pool.address.masked_url):
                self._transaction = self._connection.transaction()
                await self._transaction.start()
        except BaseException:
            await self._return_connection()
            raise
        return self._connection

    async def commit(self) -> None:
        try:
            with self._translate_connection_loss():
                await self._transaction.commit()
        except asyncio.CancelledError:
            self._terminate()
            raise
        finally:
            await self._return_connection()

    async def rollback(self) -> None:
        if self._connection is None:
            return
        limit = asyncio.timeout(CANCEL_TIMEOUT)
        try:
            async with limit:
                await self._transaction.rollback()
        except TimeoutError:
            await self._terminate_session()
        except (OSError, asyncpg.InterfaceError, asyncpg.PostgresError):
            pass  # a connection that is gone has rolled back by itself
        except asyncio.CancelledError:
            # Python before 3.11.3 raises this at the limit if the task was cancelled before, as that of a handler is here.
            if not limit.expired():
                self._terminate()
                raise
            await self._terminate_session()
        finally:
            await self._return_connection()

    def begin_sync(self) -> Any:
        try:
            import psycopg
        except ImportError:
            raise ConfigError(
                "transaction() in a `def` handler on PostgreSQL needs psycopg: run `pip install 'psycopg[binary]'`, "
                "or make the handler an `async def`"
            ) from None
        with self._translate_connection_loss():
            self._connection = psycopg.connect(self._pool.address.dsn, connect_timeout=int(CALL_TIMEOUT))
        return self._connection

    def commit_sync(self) -> None:
        connection, self._connection = self._connection, None
        with contextlib.closing(connection), self._translate_connection_loss():
            connection.commit()

    def rollback_sync(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()  # and the server rolls back

    def _terminate(self) -> None:
        """Close it at once: what the server still sends would be taken for an answer."""
        with contextlib.suppress(asyncpg.InterfaceError):  # it is gone, and the pool knows
            self._connection.terminate()

    async def _terminate_session(self) -> None:
        """The statement of a cancelled handler is still running: PostgreSQL drops a cancellation that arrives before
        its statement, and a statement may ignore one. Its locks must not outlive the attempt."""
        pid = self._connection.get_server_pid()
        self._terminate()
        await self._return_connection()
        await self._pool.terminate_session(pid)

    async def _return_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(StoreUnavailable):
                await self._pool.release(connection)

    @contextlib.contextmanager
    def _translate_connection_loss(self) -> Iterator[None]:
        """The server's answer to a statement or a commit is the handler's error; a lost connection is ours."""
        try:
            yield
        except Exception as error:  # of any driver
            state = sqlstate(error)
            if state is None or state[:2] in _CONNECTION_LOST_CLASSES:
                raise StoreUnavailable(f"{self._pool.address.masked_url}: {' '.join(str(error).split())}") from error
            raise
