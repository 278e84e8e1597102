"""From the text of a URL to an open store; the only place that knows which engines there are."""

import asyncio
import re
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from drumbeat.clock import SYSTEM, Clock
from drumbeat.errors import ConfigError
from drumbeat.names import check_namespace, short_repr
from drumbeat.redaction import mask_url
from drumbeat.store.coordinated import CoordinatedStore
from drumbeat.store.migrations import SchemaVersion
from drumbeat.store.protocol import Store, Transactional

URL_FORMS = (
    "sqlite:///relative/file.db, sqlite:////absolute/file.db, postgresql://user:password@host/database, "
    "redis://:password@host:6379/0, unix:///folder/redis.sock"
)
_POSTGRES = frozenset({"postgresql", "postgres"})
_REDIS = frozenset({"redis", "rediss", "valkey", "valkeys", "unix"})
_IN_MEMORY = re.compile(r":memory:|[?&]mode=memory", re.IGNORECASE)


class StoreUrl(msgspec.Struct, frozen=True, kw_only=True):
    """A URL that has been understood."""

    engine: str
    path: Path = Path()
    """SQLite's file, absolute."""
    text: str
    """The URL with the absolute path: what child processes are given, and people, masked, are shown."""


def parse(url: str) -> StoreUrl:
    """Understand a store's URL; a relative path is taken from the current folder, once.

    Raises:
        ConfigError: with what is allowed.
    """
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
    """Whether a character of the password has ended the part of the URL in which passwords are: a driver would take the rest of
    it for a port, a database or an option, and say so."""
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
    if coordination is not None:
        if parse(coordination).engine == "sqlite":
            raise ConfigError(
                "a file cannot coordinate other machines: use a redis:// or postgresql:// URL", "coordination"
            )
        second = partial(open_store, coordination, namespace=namespace, clock=clock)
        return await CoordinatedStore.open(await open_store(url, namespace=namespace, clock=clock), second, clock)
    parsed = parse(url)
    check_namespace(namespace)
    # Imported here: only an engine that is used brings in its driver.
    if parsed.engine == "postgres":
        store: Store = await _postgres().PostgresStore.open(_address(url), namespace=namespace, clock=clock)
        return store
    if parsed.engine == "redis":
        redis = _redis()
        return await redis.RedisStore.open(redis.parse_address(url, mask_url(url)), namespace=namespace, clock=clock)  # type: ignore[no-any-return]
    from drumbeat.store.sqlite import SqliteStore

    return await SqliteStore.open(parsed.path, url=parsed.text, namespace=namespace, clock=clock)


def transactional_for(url: str, *, namespace: str = "drumbeat", clock: Clock = SYSTEM) -> Transactional:
    """What can be done inside a caller's own transaction in the store behind a URL. Nothing is opened, and no loop is needed.

    Raises:
        ConfigError: the URL or the namespace cannot be used.
    """
    parsed = parse(url)
    check_namespace(namespace)
    if parsed.engine == "postgres":
        inside: Transactional = _postgres().PostgresTransactional(_address(url), namespace=namespace, clock=clock)
        return inside
    if parsed.engine == "redis":
        return _redis().RedisTransactional()  # type: ignore[no-any-return]
    from drumbeat.store.sqlite.file_checks import DiskSpaceGuard
    from drumbeat.store.sqlite.transactional import SqliteTransactional

    return SqliteTransactional(parsed.path, namespace=namespace, clock=clock, disk_space=DiskSpaceGuard(parsed.path))


def read_schema_version(url: str, *, namespace: str = "drumbeat") -> tuple[SchemaVersion, int]:
    """What the store says about its schema, and the newest version that this code knows; nothing is changed.

    Raises:
        ConfigError: as `open_store`.
    """
    parsed = parse(url)
    check_namespace(namespace)
    if parsed.engine == "postgres":
        tables = _postgres().schema
        return asyncio.run(tables.read_schema(_address(url), namespace)), tables.LATEST_VERSION
    if parsed.engine == "redis":
        redis = _redis()
        return asyncio.run(
            redis.schema.read_schema(redis.parse_address(url, mask_url(url)), namespace)
        ), redis.schema.LATEST_VERSION
    from drumbeat.store.sqlite import file_checks, schema

    file_checks.check_path(parsed.path)
    return schema.read_schema(parsed.path, namespace), schema.MIGRATIONS[-1].number


async def migrate_store(url: str, *, namespace: str = "drumbeat") -> None:
    """Create the tables of the store behind a URL, or bring them up to date; all or nothing, and harmless twice.

    Raises:
        ConfigError, SchemaOutOfDate, StoreUnavailable: as `open_store`.
    """
    if parse(url).engine == "postgres":
        check_namespace(namespace)
        await _postgres().schema.migrate(_address(url), namespace)
        return
    async with await open_store(url, namespace=namespace):
        pass


def migration_script(url: str, *, namespace: str = "drumbeat", after: int = 0) -> str:
    """The SQL that `migrate_store` would run on a store of version `after`; empty where there is nothing to do.

    Raises:
        ConfigError: the URL cannot be used, or its engine migrates without anybody's help.
    """
    check_namespace(namespace)
    if parse(url).engine != "postgres":
        raise ConfigError("only PostgreSQL has a script: SQLite and Redis are made ready when they are opened", "url")
    script: str = _postgres().schema.script(namespace, after)
    return script


def _postgres() -> ModuleType:
    try:
        from drumbeat.store import postgres
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise ConfigError("PostgreSQL needs a driver: run `pip install drumbeat[postgres]`", "url") from error
    return postgres


def _redis() -> ModuleType:
    try:
        from drumbeat.store import redis
    except ModuleNotFoundError as error:
        if error.name not in {"redis", "hiredis"}:
            raise
        raise ConfigError("Redis needs a driver: run `pip install drumbeat[redis]`", "url") from error
    return redis


def _address(url: str) -> Any:
    return _postgres().parse_address(url, mask_url(url))
