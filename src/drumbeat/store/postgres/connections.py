"""Connections to PostgreSQL. A `PostgresConnection` is opened when it is first needed and reopened when it was lost.

One call at a time uses it. A call that is cancelled, or gets no answer in time, closes it: what the server still sends
would be taken for the answer to the next call. Transactions that fail by a conflict with another one are retried here,
and nowhere else.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from enum import Enum
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qsl, urlencode

# This package is imported only when a PostgreSQL store is opened.
import asyncpg  # noqa: TID253
import msgspec

from drumbeat.clock import Clock, jitter
from drumbeat.errors import ConfigError, DrumbeatError, StoreError, StoreUnavailable
from drumbeat.store.postgres import error_translation
from drumbeat.store.postgres.error_translation import translate_errors
from drumbeat.store.sqlfile import Statements

T = TypeVar("T")
NotificationHandler = Callable[[str], None]


class Session(Protocol):
    """What we use of the driver's connection, which has no type annotations. A record is a tuple with names."""

    async def fetch(self, query: str, *args: Any) -> list[Any]: ...

    async def fetchrow(self, query: str, *args: Any) -> Any: ...

    async def fetchval(self, query: str, *args: Any) -> Any: ...

    async def execute(self, query: str, *args: Any) -> str:
        """Returns the command's tag, such as `UPDATE 3`."""
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


Operation = Callable[[Session], Awaitable[T]]

CALL_TIMEOUT = 4.5
"""Seconds within which a call is answered, waiting for the connection included; after that the store is unavailable."""
LONG_TIMEOUT = 60.0
"""The same for what may take long: pages and charts, removal of old partitions."""
_MAX_TRIES = 8
_DAY_US = 86_400_000_000

# Not set behind a pooler in transaction mode: sessions are shared.
_SESSION_SETTINGS = {
    "application_name": "drumbeat",
    "default_transaction_isolation": "read committed",
    # A queue is in memory: 500 rows by their ids are never worth a sequential scan.
    "random_page_cost": "1.1",
    # A process that is stopped (SIGSTOP, a suspended machine) in the middle of a transaction must not keep its locks: others
    # could neither end its jobs nor fire its schedules. A running process never pauses this long between two statements.
    "idle_in_transaction_session_timeout": "2000",
    "jit": "off",
}
_PLANNER_SWITCHES = ("enable_seqscan", "enable_bitmapscan", "enable_nestloop", "enable_mergejoin")
# A plan that was cached while a table was empty stays bad: plan each time.
CUSTOM_PLAN_SETTINGS = (
    _SESSION_SETTINGS | {"plan_cache_mode": "force_custom_plan"} | dict.fromkeys(_PLANNER_SWITCHES, "on")
)
# Claims and outcomes are a few statements with one right plan each, which these settings leave as the only one, whatever the
# statistics say. So it can be cached: planning them each time took a fifth of a full batch, and two thirds of a small one.
GENERIC_PLAN_SETTINGS = (
    _SESSION_SETTINGS | {"plan_cache_mode": "force_generic_plan"} | dict.fromkeys(_PLANNER_SWITCHES, "off")
)


class PlanMode(Enum):
    """How the statements of a call are planned."""

    DEFAULT = "default"
    GENERIC = "generic"
    ANY = "any"


class RetryTransaction(Exception):
    """Raised by work inside `PostgresConnection.transact`: roll back and try again, another transaction came between."""


class PostgresAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server is, and how to connect to it."""

    dsn: str
    masked_url: str
    """Without a password."""
    pooled: bool = False
    """Behind PgBouncer in transaction mode: each call in a transaction, no prepared statements, no LISTEN."""


def parse_address(url: str, masked_url: str) -> PostgresAddress:
    """Parse the URL; `?pooler=transaction` is ours, everything else is the driver's.

    Raises:
        ConfigError: with what is allowed.
    """
    # Not by urlunsplit: it loses the slashes of postgresql:///database?host=/folder.
    base, _, query = url.partition("?")
    options = parse_qsl(query, keep_blank_values=True)
    poolers = [value for name, value in options if name == "pooler"]
    if any(value not in {"transaction", "session"} for value in poolers):
        raise ConfigError(f"{masked_url}: pooler= may be transaction or session", "url")
    rest = urlencode([(name, value) for name, value in options if name != "pooler"])
    return PostgresAddress(
        dsn=f"{base}?{rest}" if rest else base, masked_url=masked_url, pooled="transaction" in poolers
    )


class PostgresConnection:
    def __init__(
        self,
        address: PostgresAddress,
        sql: Statements,
        clock: Clock,
        settings: Mapping[str, str] = CUSTOM_PLAN_SETTINGS,
    ) -> None:
        self._address = address
        self._base_settings = settings
        self._sql = sql
        self._clock = clock
        self._pid = os.getpid()
        self._lock = asyncio.Lock()
        self._session: Session | None = None
        self._current_settings = settings
        """Settings of the open session."""
        self._was_open = False
        self._closed = False
        self._handlers: dict[str, NotificationHandler] = {}
        self._listened_channels: set[str] = set()
        """Channels that the open session listens to; it does not UNLISTEN."""
        self.lost = asyncio.Event()
        """Set when a session that listens was lost."""

    @property
    def pooled(self) -> bool:
        return self._address.pooled

    @property
    def is_free(self) -> bool:
        """Whether a call would begin at once."""
        return not self._lock.locked()

    async def call(
        self, work: Operation[T], *, timeout: float = CALL_TIMEOUT, plan_mode: PlanMode = PlanMode.DEFAULT
    ) -> T:
        """Run `work` with the session; every statement is a transaction of its own."""
        return await self._run_with_retries(self._in_transaction(work) if self.pooled else work, timeout, plan_mode)

    async def transact(
        self, work: Operation[T], *, timeout: float = CALL_TIMEOUT, plan_mode: PlanMode = PlanMode.DEFAULT
    ) -> T:
        """Run `work` in one transaction; it may be called again after a rollback."""
        return await self._run_with_retries(self._in_transaction(work), timeout, plan_mode)

    async def listen(self, channel: str, on_notification: NotificationHandler) -> None:
        """Call `on_notification` with the payload of every NOTIFY from now on, also after a reconnection."""
        try:
            async with self._acquire_session(CALL_TIMEOUT) as session:
                if channel not in self._listened_channels:
                    await self._add_listener(session, channel)
        finally:
            self._handlers[channel] = on_notification

    def unlisten(self, channel: str) -> None:
        self._handlers.pop(channel, None)

    async def ping(self) -> None:
        """Check that the session is alive; it is reopened if not."""
        await self.call(lambda session: session.execute(self._sql.now), plan_mode=PlanMode.ANY)

    async def close(self) -> None:
        self._closed = True
        session, self._session = self._session, None
        if session is None or os.getpid() != self._pid:
            return
        if self._lock.locked():
            session.terminate()
            return
        try:
            await session.close(timeout=2)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            session.terminate()

    async def _run_with_retries(self, work: Operation[T], timeout: float, plan_mode: PlanMode) -> T:
        for _ in range(_MAX_TRIES):
            async with self._acquire_session(timeout) as session:
                try:
                    await self._apply_plan_mode(session, plan_mode)
                    return await work(session)
                except RetryTransaction:
                    pass
                except asyncpg.PostgresError as error:
                    if (day := error_translation.parse_missing_day(error)) is not None:
                        await session.execute(_fill_in_day(self._sql.ensure_history_day, day))
                        continue
                    if not error_translation.is_retryable(error):
                        raise
            await self._clock.sleep(jitter(0.01))
        raise StoreUnavailable(f"{self._address.masked_url}: the transaction conflicted with others {_MAX_TRIES} times")

    async def _apply_plan_mode(self, session: Session, plan_mode: PlanMode) -> None:
        wanted = GENERIC_PLAN_SETTINGS if plan_mode is PlanMode.GENERIC else self._base_settings
        if plan_mode is PlanMode.ANY or wanted is self._current_settings or self.pooled:
            return
        await session.fetch(self._sql.apply_settings, list(wanted), list(wanted.values()))
        self._current_settings = wanted

    def _in_transaction(self, work: Operation[T]) -> Operation[T]:
        async def run(session: Session) -> T:
            async with session.transaction():
                return await work(session)

        return run

    @asynccontextmanager
    async def _acquire_session(self, timeout: float) -> AsyncIterator[Session]:
        if os.getpid() != self._pid:
            raise StoreError(
                f"{self._address.masked_url} was opened before this process was forked: open the store anew in the child"
            )
        with translate_errors(self._address.masked_url):
            async with asyncio.timeout(timeout), self._lock:
                session = await self._ensure_open()
                try:
                    yield session
                except BaseException as error:
                    if not _is_session_usable(error):
                        self._terminate()
                    raise

    async def _ensure_open(self) -> Session:
        if self._closed:
            raise StoreUnavailable(f"{self._address.masked_url}: the store is closed")
        if self._session is not None and not self._session.is_closed():
            return self._session
        try:
            with translate_errors(self._address.masked_url):
                self._session = await self._connect()
        except DrumbeatError as error:
            if self._was_open:
                raise error_translation.as_outage(error) from error
            raise
        self._was_open = True
        return self._session

    async def _connect(self) -> Session:
        options: dict[str, Any] = (
            {"statement_cache_size": 0} if self.pooled else {"server_settings": dict(self._base_settings)}
        )
        try:
            session: Session = await asyncpg.connect(self._address.dsn, timeout=CALL_TIMEOUT - 0.2, **options)
        except (ValueError, asyncpg.ClientConfigurationError) as error:
            raise ConfigError(f"{self._address.masked_url}: {error}", "url") from error
        self._current_settings = self._base_settings
        self._listened_channels.clear()
        try:
            await self._prepare_session(session)
        except BaseException:
            session.terminate()
            raise
        return session

    async def _prepare_session(self, session: Session) -> None:
        async with session.transaction():
            server = await session.fetchrow(self._sql.server)
        assert server is not None
        if server["version"] < error_translation.MIN_SERVER_VERSION * 10_000:
            found = server["version"] // 10_000
            raise ConfigError(
                f"{self._address.masked_url}: the server is PostgreSQL {found}; "
                f"{error_translation.MIN_SERVER_VERSION} or newer is needed",
                "url",
            )
        if server["in_recovery"] or server["read_only"]:
            raise ConfigError(
                f"{self._address.masked_url}: the server is read-only: it is a standby, or closed for writing", "url"
            )
        if server["careless"] and not self.pooled:
            await session.execute(self._sql.enable_synchronous_commit)
        for channel in self._handlers:
            await self._add_listener(session, channel)

    async def _add_listener(self, session: Session, channel: str) -> None:
        def receive(_connection: object, _pid: int, _channel: str, payload: object) -> None:
            if (handler := self._handlers.get(channel)) is not None:
                handler(str(payload))

        await session.add_listener(channel, receive)
        self._listened_channels.add(channel)
        session.add_termination_listener(lambda _connection: self.lost.set())

    def _terminate(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.terminate()


def _fill_in_day(statement: str, timestamp: int) -> str:
    """The statement with the start of the day that contains this timestamp; a number, so it can be part of the text."""
    return statement.replace("$1", str(timestamp // _DAY_US * _DAY_US))


def _is_session_usable(error: BaseException) -> bool:
    """After a server's answer to a statement, an error of ours about one, or a value that was never sent."""
    if isinstance(error, asyncpg.PostgresError):
        return (error.sqlstate or "")[:3] != "57P"
    return isinstance(error, ValueError | DrumbeatError)
