"""From the text of a URL to an open store: the only module that knows which engines there are."""

import asyncio
import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from drumbeat.clock import SYSTEM, Clock
from drumbeat.errors import ConfigError
from drumbeat.names import check_namespace, short_repr
from drumbeat.platforms import require_posix
from drumbeat.redaction import mask_url
from drumbeat.setting_parsers import drop_driver
from drumbeat.store.coordinated import CoordinatedStore
from drumbeat.store.migrations import SchemaVersion
from drumbeat.store.protocol import Store, Transactional
from drumbeat.store.protocol.wake import Forward

if TYPE_CHECKING:
    from drumbeat.store.postgres import PostgresAddress

URL_FORMS = (
    "sqlite:///relative/file.db, sqlite:////absolute/file.db, postgresql://user:password@host/database, "
    "redis://:password@host:6379/0, unix:///folder/redis.sock"
)
_POSTGRES = frozenset({"postgresql", "postgres"})
_REDIS = frozenset({"redis", "rediss", "valkey", "valkeys", "unix"})
_IN_MEMORY = re.compile(r":memory:|[?&]mode=memory", re.IGNORECASE)


class StoreUrl(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed URL."""

    engine: str
    path: Path = Path()
    """SQLite's file, absolute."""
    text: str
    """The URL with the absolute path: what child processes get, and what messages show with the password masked."""


def parse(url: str) -> StoreUrl:
    """Parse a store's URL; a relative path is resolved against the current folder, once.

    Raises:
        ConfigError: with what is allowed.
    """
    url = drop_driver(url)
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"url {short_repr(mask_url(url))} cannot be read: {error}", "url") from None
    if parts.scheme in _POSTGRES | _REDIS and _has_unescaped_password(parts):
        raise ConfigError(
            f"url {short_repr(mask_url(url))} cannot be read: in a password / ? # @ are written as %2F %3F %23 %40",
            "url",
        )
    if parts.scheme in _POSTGRES:
        return StoreUrl(engine="postgres", text=url)
    if parts.scheme in _REDIS:
        return StoreUrl(engine="redis", text=url)
    if parts.scheme != "sqlite":
        raise ConfigError(f"url {short_repr(mask_url(url))} is not a store: use {URL_FORMS}", "url")
    path = unquote(parts.path)
    if _IN_MEMORY.search(unquote(url)):
        raise ConfigError(
            f"url {short_repr(mask_url(url))} is a database in memory, which each connection would have for itself: use a file,"
            " in a temporary folder for tests",
            "url",
        )
    if parts.netloc or not path.startswith("/") or path in {"/", "//"} or "\0" in path or parts.query or parts.fragment:
        raise ConfigError(f"url {short_repr(mask_url(url))} names no SQLite file: use {URL_FORMS}", "url")
    absolute = Path(path[1:]).expanduser().absolute()
    return StoreUrl(engine="sqlite", path=absolute, text=f"sqlite:///{absolute}")


def _has_unescaped_password(parts: SplitResult) -> bool:
    """Whether a character of the password has ended the part of the URL in which passwords are: a driver would take the
    rest of it for a port, a database or an option, and print it."""
    if "@" in parts.path or "@" in parts.fragment:
        return True
    if "@" not in parts.query or "@" in parts.netloc:
        return False
    ports = [each.rpartition("]")[2].partition(":")[2] for each in parts.netloc.split(",")]
    is_option = "=" in parts.query.partition("@")[0]
    return not is_option or not all(port.isdigit() for port in ports if port)


async def open_store(
    url: str, *, coordination: str | None = None, namespace: str = "drumbeat", clock: Clock = SYSTEM
) -> Store:
    """Open the store behind a URL for the running loop, with the one of `coordination` beside it. SQLite files and Redis
    databases are made ready here, PostgreSQL's tables by `migrate_store`.

    Raises:
        ConfigError: the URL, the namespace or the file cannot be used, with the reason in one line.
        SchemaOutOfDate: the store belongs to a newer Drumbeat, or has no tables yet.
        StoreUnavailable: it did not answer; try again.
    """
    engine = _engine(url, namespace, clock)
    if coordination is None:
        return await engine.open()
    if parse(coordination).engine == "sqlite":
        raise ConfigError(
            "a file cannot coordinate other machines: use a redis:// or postgresql:// URL", "coordination"
        )
    return await CoordinatedStore.open(engine.open, _engine(coordination, namespace, clock).open, clock)


def transactional_for(url: str, *, namespace: str = "drumbeat", clock: Clock = SYSTEM) -> Transactional:
    """What can be done inside a caller's own transaction in the store behind a URL. Nothing is opened; no loop is needed.

    Raises:
        ConfigError: the URL or the namespace cannot be used.
    """
    return _engine(url, namespace, clock).transactional()


def read_schema_version(url: str, *, namespace: str = "drumbeat") -> tuple[SchemaVersion, int]:
    """The schema version of the store, and the newest that this code knows. Changes nothing.

    Raises:
        ConfigError: as `open_store`.
    """
    return _engine(url, namespace).read_schema()


async def migrate_store(url: str, *, namespace: str = "drumbeat") -> None:
    """Create the tables of the store behind a URL, or bring them up to date; all or nothing, and harmless twice.

    Raises:
        ConfigError, SchemaOutOfDate, StoreUnavailable: as `open_store`.
    """
    await _engine(url, namespace).migrate()


def migration_script(url: str, *, namespace: str = "drumbeat", after: int = 0) -> str:
    """The SQL that `migrate_store` would run on a store of version `after`; empty where there is nothing to do.

    Raises:
        ConfigError: the URL cannot be used, or its engine migrates by itself.
    """
    return _engine(url, namespace).migration_script(after)


class _Engine:
    """The engine behind one URL. Its package is imported by `_engine`: only an engine that is used needs its driver."""

    def __init__(self, url: StoreUrl, namespace: str, clock: Clock) -> None:
        self._url = url
        self._masked = mask_url(url.text)
        self._namespace = namespace
        self._clock = clock

    async def open(self, forward: Forward | None = None) -> Store:
        raise NotImplementedError

    def transactional(self) -> Transactional:
        raise NotImplementedError

    def read_schema(self) -> tuple[SchemaVersion, int]:
        raise NotImplementedError

    async def migrate(self) -> None:
        async with await self.open():
            pass

    def migration_script(self, after: int) -> str:
        raise ConfigError("only PostgreSQL has a script: SQLite and Redis are made ready when they are opened", "url")


class _SqliteEngine(_Engine):
    async def open(self, forward: Forward | None = None) -> Store:
        from drumbeat.store.sqlite import SqliteStore

        url = self._url
        return await SqliteStore.open(
            url.path, url=url.text, namespace=self._namespace, clock=self._clock, forward=forward
        )

    def transactional(self) -> Transactional:
        from drumbeat.store.sqlite.file_checks import DiskSpaceGuard
        from drumbeat.store.sqlite.transactional import SqliteTransactional

        path = self._url.path
        return SqliteTransactional(path, namespace=self._namespace, clock=self._clock, disk_space=DiskSpaceGuard(path))

    def read_schema(self) -> tuple[SchemaVersion, int]:
        from drumbeat.store.sqlite import file_checks, schema

        file_checks.check_path(self._url.path)
        return schema.read_schema(self._url.path, self._namespace), schema.MIGRATIONS[-1].number


class _PostgresEngine(_Engine):
    async def open(self, forward: Forward | None = None) -> Store:
        from drumbeat.store.postgres import PostgresStore

        address = self._address()
        return await PostgresStore.open(address, namespace=self._namespace, clock=self._clock, forward=forward)

    def transactional(self) -> Transactional:
        from drumbeat.store.postgres import PostgresTransactional

        return PostgresTransactional(self._address(), namespace=self._namespace, clock=self._clock)

    def read_schema(self) -> tuple[SchemaVersion, int]:
        from drumbeat.store.postgres import schema

        return asyncio.run(schema.read_schema(self._address(), self._namespace)), schema.LATEST_VERSION

    async def migrate(self) -> None:
        from drumbeat.store.postgres import schema

        await schema.migrate(self._address(), self._namespace)

    def migration_script(self, after: int) -> str:
        from drumbeat.store.postgres import schema

        return schema.script(self._namespace, after)

    def _address(self) -> "PostgresAddress":
        from drumbeat.store.postgres import parse_address

        return parse_address(self._url.text, self._masked)


class _RedisEngine(_Engine):
    async def open(self, forward: Forward | None = None) -> Store:
        """`forward` is not used: the scripts publish their hints themselves."""
        from drumbeat.store.redis import RedisStore, parse_address

        return await RedisStore.open(
            parse_address(self._url.text, self._masked), namespace=self._namespace, clock=self._clock
        )

    def transactional(self) -> Transactional:
        from drumbeat.store.redis import RedisTransactional

        return RedisTransactional()

    def read_schema(self) -> tuple[SchemaVersion, int]:
        from drumbeat.store.redis import parse_address, schema

        found = schema.read_schema(parse_address(self._url.text, self._masked), self._namespace)
        return asyncio.run(found), schema.LATEST_VERSION


_ENGINES: dict[str, type[_Engine]] = {"sqlite": _SqliteEngine, "postgres": _PostgresEngine, "redis": _RedisEngine}
_DRIVERS = {"asyncpg": "PostgreSQL needs a driver: run `pip install drumbeat[postgres]`"} | dict.fromkeys(
    ("redis", "hiredis"), "Redis needs a driver: run `pip install drumbeat[redis]`"
)


def _engine(url: str, namespace: str, clock: Clock = SYSTEM) -> _Engine:
    parsed = parse(url)
    check_namespace(namespace)
    if parsed.engine == "sqlite":
        require_posix("SQLite stores need", "use PostgreSQL or Redis")
    try:
        import_module(f"drumbeat.store.{parsed.engine}")
    except ModuleNotFoundError as error:
        if error.name not in _DRIVERS:
            raise
        raise ConfigError(_DRIVERS[error.name], "url") from error
    return _ENGINES[parsed.engine](parsed, namespace, clock)
