"""Connections to PostgreSQL: a `Link` is one of them, opened when it is needed and opened anew when it was lost.

One call at a time uses it. A call that is cancelled, or gets no answer in time, leaves it closed: whatever the server still
sends belongs to nobody. Calls whose transaction lost against another one are repeated here, and nowhere else.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from enum import Enum
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qsl, urlencode

# This package is imported only when a PostgreSQL store is opened.
import asyncpg  # type: ignore[import-untyped]  # noqa: TID253
import msgspec

from drumbeat.clock import Clock, jittered
from drumbeat.errors import ConfigError, DrumbeatError, StoreError, StoreUnavailable
from drumbeat.store.postgres import failures
from drumbeat.store.postgres.failures import translated
from drumbeat.store.postgres.statements import SchemaSql

T = TypeVar("T")
Heard = Callable[[str], None]


class Session(Protocol):
    """What we use of a connection of the driver, which has no types of its own. A record is a tuple with names."""

    async def fetch(self, query: str, *args: Any) -> list[Any]: ...

    async def fetchrow(self, query: str, *args: Any) -> Any: ...

    async def fetchval(self, query: str, *args: Any) -> Any: ...

    async def execute(self, query: str, *args: Any) -> str:
        """Gives the command's tag, such as `UPDATE 3`."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[Any]: ...

    def is_closed(self) -> bool: ...

    def terminate(self) -> None: ...

    async def close(self, *, timeout: float) -> None: ...

    async def copy_to_table(
        self, table: str, *, schema_name: str, columns: Iterable[str], source: AsyncIterator[bytes], format: str
    ) -> str: ...

    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None: ...

    def add_termination_listener(self, callback: Callable[..., None]) -> None: ...


Work = Callable[[Session], Awaitable[T]]

PATIENCE = 4.5
"""Seconds in which a call is answered, or the store is unavailable: from waiting for the line to the last row."""
LONG = 60.0
"""The same for what may take its time: lists for people, removal of old days."""
_REPEATS = 8
_DAY = 86_400_000_000

# Behind a pooler of transactions nothing may be set for a session.
_SESSION = {
    "application_name": "drumbeat",
    "default_transaction_isolation": "read committed",
    # A queue is in memory: 500 rows by their ids are never worth a walk of the table.
    "random_page_cost": "1.1",
    # A process that is stopped (SIGSTOP, a suspended machine) in the middle of a transaction must not keep its locks: others
    # could neither end jobs nor fire the schedules that it was at. Nobody who runs pauses for so long between two statements.
    "idle_in_transaction_session_timeout": "2000",
    "jit": "off",
}
_WAYS = ("enable_seqscan", "enable_bitmapscan", "enable_nestloop", "enable_mergejoin")
# A plan that was made while a table was empty is bad for ever: plan each time.
PLANNED_EACH_TIME = _SESSION | {"plan_cache_mode": "force_custom_plan"} | dict.fromkeys(_WAYS, "on")
# Claims and outcomes are a few statements that are right by one plan only, which these settings leave as the only one,
# whatever the statistics say. So it can be kept: to plan them each time took a fifth of a full batch, and two thirds of a
# small one.
PLANNED_ONCE = _SESSION | {"plan_cache_mode": "force_generic_plan"} | dict.fromkeys(_WAYS, "off")


class Plans(Enum):
    """How the statements of a call want to be planned."""

    USUAL = "as is usual for the link"
    ONCE = "once"
    EITHER = "as it happens to be"


class Again(Exception):
    """Raised by work inside `Link.transact`: undo it all and do it again, somebody else came between."""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server is, and how to speak to it."""

    dsn: str
    shown: str
    """Without a password."""
    pooled: bool = False
    """Behind PgBouncer in transaction mode: each call in a transaction, no prepared statements, no LISTEN."""


def address(url: str, shown: str) -> Address:
    """Understand the URL; `?pooler=transaction` is ours, everything else is the driver's.

    Raises:
        ConfigError: with what is allowed.
    """
    # Not by urlunsplit: it loses the slashes of postgresql:///database?host=/folder.
    base, _, query = url.partition("?")
    options = parse_qsl(query, keep_blank_values=True)
    poolers = [value for name, value in options if name == "pooler"]
    if any(value not in {"transaction", "session"} for value in poolers):
        raise ConfigError(f"{shown}: pooler= may be transaction or session", "url")
    rest = urlencode([(name, value) for name, value in options if name != "pooler"])
    return Address(dsn=f"{base}?{rest}" if rest else base, shown=shown, pooled="transaction" in poolers)


class Link:
    def __init__(
        self, address: Address, sql: SchemaSql, clock: Clock, session: Mapping[str, str] = PLANNED_EACH_TIME
    ) -> None:
        self._address = address
        self._session = session
        self._sql = sql
        self._clock = clock
        self._pid = os.getpid()
        self._turn = asyncio.Lock()
        self._connection: Session | None = None
        self._settings = session
        """What is set in the open connection now."""
        self._was_open = False
        self._closed = False
        self._channels: dict[str, Heard] = {}
        self._heard: set[str] = set()
        """What the open connection listens to; that stays, also when nobody wants it any more."""
        self.lost = asyncio.Event()
        """Set when a connection that listens has gone."""

    @property
    def pooled(self) -> bool:
        return self._address.pooled

    @property
    def is_free(self) -> bool:
        """Whether a call would begin at once."""
        return not self._turn.locked()

    async def call(self, work: Work[T], *, patience: float = PATIENCE, plans: Plans = Plans.USUAL) -> T:
        """Do this with the connection; every statement is a transaction of its own."""
        return await self._repeated(self._in_transaction(work) if self.pooled else work, patience, plans)

    async def transact(self, work: Work[T], *, patience: float = PATIENCE, plans: Plans = Plans.USUAL) -> T:
        """Do this in one transaction; `work` may be called again after a rollback."""
        return await self._repeated(self._in_transaction(work), patience, plans)

    async def listen(self, channel: str, heard: Heard) -> None:
        """From now on, also after a reconnection, `heard` is called with the text of every NOTIFY."""
        try:
            async with self._lent(PATIENCE) as connection:
                if channel not in self._heard:
                    await self._hear(connection, channel)
        finally:
            self._channels[channel] = heard

    def forget(self, channel: str) -> None:
        self._channels.pop(channel, None)

    async def check(self) -> None:
        """Whether the connection still lives; it is opened anew if not."""
        await self.call(lambda connection: connection.execute(self._sql.now), plans=Plans.EITHER)

    async def close(self) -> None:
        self._closed = True
        connection, self._connection = self._connection, None
        if connection is None or os.getpid() != self._pid:
            return
        if self._turn.locked():
            connection.terminate()
            return
        try:
            await connection.close(timeout=2)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            connection.terminate()

    async def _repeated(self, work: Work[T], patience: float, plans: Plans) -> T:
        for _ in range(_REPEATS):
            async with self._lent(patience) as connection:
                try:
                    await self._change(connection, plans)
                    return await work(connection)
                except Again:
                    pass
                except asyncpg.PostgresError as error:
                    if (day := failures.missing_day(error)) is not None:
                        await connection.execute(_day(self._sql.ensure_day, day))
                        continue
                    if not failures.is_worth_repeating(error):
                        raise
            await self._clock.sleep(jittered(0.01))
        raise StoreUnavailable(f"{self._address.shown}: the transaction lost against others {_REPEATS} times")

    async def _change(self, connection: Session, plans: Plans) -> None:
        wanted = PLANNED_ONCE if plans is Plans.ONCE else self._session
        if plans is Plans.EITHER or wanted is self._settings or self.pooled:
            return
        await connection.fetch(self._sql.set, list(wanted), list(wanted.values()))
        self._settings = wanted

    def _in_transaction(self, work: Work[T]) -> Work[T]:
        async def begun(connection: Session) -> T:
            async with connection.transaction():
                return await work(connection)

        return begun

    @asynccontextmanager
    async def _lent(self, patience: float) -> AsyncIterator[Session]:
        if os.getpid() != self._pid:
            raise StoreError(
                f"{self._address.shown} was opened before this process was forked: open the store anew in the child"
            )
        with translated(self._address.shown):
            async with asyncio.timeout(patience), self._turn:
                connection = await self._opened()
                try:
                    yield connection
                except BaseException as error:
                    if not _is_harmless(error):
                        self._drop()
                    raise

    async def _opened(self) -> Session:
        if self._closed:
            raise StoreUnavailable(f"{self._address.shown}: the store is closed")
        if self._connection is not None and not self._connection.is_closed():
            return self._connection
        try:
            with translated(self._address.shown):
                self._connection = await self._connect()
        except DrumbeatError as error:
            if self._was_open:
                raise failures.while_running(error) from error
            raise
        self._was_open = True
        return self._connection

    async def _connect(self) -> Session:
        how: dict[str, Any] = {"statement_cache_size": 0} if self.pooled else {"server_settings": dict(self._session)}
        try:
            connection: Session = await asyncpg.connect(self._address.dsn, timeout=PATIENCE - 0.2, **how)
        except (ValueError, asyncpg.ClientConfigurationError) as error:
            raise ConfigError(f"{self._address.shown}: {error}", "url") from error
        self._settings = self._session
        self._heard.clear()
        try:
            await self._prepare(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _prepare(self, connection: Session) -> None:
        async with connection.transaction():
            server = await connection.fetchrow(self._sql.server)
        assert server is not None
        if server["version"] < failures.OLDEST * 10_000:
            found = server["version"] // 10_000
            raise ConfigError(
                f"{self._address.shown}: the server is PostgreSQL {found}; {failures.OLDEST} or newer is needed", "url"
            )
        if server["in_recovery"] or server["read_only"]:
            raise ConfigError(
                f"{self._address.shown}: the server is read-only: it is a standby, or closed for writing", "url"
            )
        if server["careless"] and not self.pooled:
            await connection.execute(self._sql.careful)
        for channel in self._channels:
            await self._hear(connection, channel)

    async def _hear(self, connection: Session, channel: str) -> None:
        def heard(_connection: object, _pid: int, _channel: str, payload: object) -> None:
            if (hear := self._channels.get(channel)) is not None:
                hear(str(payload))

        await connection.add_listener(channel, heard)
        self._heard.add(channel)
        connection.add_termination_listener(lambda _connection: self.lost.set())

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()


def _day(statement: str, moment: int) -> str:
    """The statement with the beginning of the day that holds this moment; a number, so it can stand in the text."""
    return statement.replace("$1", str(moment // _DAY * _DAY))


def _is_harmless(error: BaseException) -> bool:
    """The server's answer to a statement, our own conclusion from one, or a value that was never sent."""
    if isinstance(error, asyncpg.PostgresError):
        return (error.sqlstate or "")[:3] != "57P"
    return isinstance(error, ValueError | DrumbeatError)
