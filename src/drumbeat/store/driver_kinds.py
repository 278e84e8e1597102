"""Which library a connection comes from: recognised by the names of its classes, so that no driver is imported that is
not installed.

Shared by the engines that work inside a caller's transaction. No I/O.
"""

from enum import StrEnum
from typing import Any

from drumbeat.errors import InvalidArguments


class DriverKind(StrEnum):
    """The value is shown in messages."""

    SQLITE3 = "sqlite3"
    AIOSQLITE = "aiosqlite"
    ASYNCPG = "asyncpg"
    PSYCOPG = "psycopg"
    PSYCOPG_ASYNC = "psycopg (async)"
    DJANGO = "Django"
    SQLALCHEMY = "SQLAlchemy"
    SQLALCHEMY_ASYNC = "SQLAlchemy (async)"


ASYNC_KINDS = frozenset(
    {DriverKind.AIOSQLITE, DriverKind.ASYNCPG, DriverKind.PSYCOPG_ASYNC, DriverKind.SQLALCHEMY_ASYNC}
)

_KINDS = {
    ("sqlite3", "Connection"): DriverKind.SQLITE3,
    ("sqlite3", "Cursor"): DriverKind.SQLITE3,
    ("aiosqlite", "Connection"): DriverKind.AIOSQLITE,
    ("asyncpg", "Connection"): DriverKind.ASYNCPG,
    ("asyncpg", "PoolConnectionProxy"): DriverKind.ASYNCPG,
    ("psycopg", "Connection"): DriverKind.PSYCOPG,
    ("psycopg", "Cursor"): DriverKind.PSYCOPG,
    ("psycopg", "AsyncConnection"): DriverKind.PSYCOPG_ASYNC,
    ("psycopg", "AsyncCursor"): DriverKind.PSYCOPG_ASYNC,
    ("django", "BaseDatabaseWrapper"): DriverKind.DJANGO,
    ("django", "ConnectionProxy"): DriverKind.DJANGO,
    ("sqlalchemy", "Connection"): DriverKind.SQLALCHEMY,
    ("sqlalchemy", "Session"): DriverKind.SQLALCHEMY,
    ("sqlalchemy", "scoped_session"): DriverKind.SQLALCHEMY,
    ("sqlalchemy", "AsyncConnection"): DriverKind.SQLALCHEMY_ASYNC,
    ("sqlalchemy", "AsyncSession"): DriverKind.SQLALCHEMY_ASYNC,
    ("sqlalchemy", "async_scoped_session"): DriverKind.SQLALCHEMY_ASYNC,
}
_SESSIONS = frozenset({"Session", "scoped_session", "AsyncSession", "async_scoped_session"})
_CURSORS = frozenset({"Cursor", "AsyncCursor"})


def detect_kind(conn: Any, allowed: frozenset[DriverKind], *, sync: bool) -> DriverKind:
    """The kind of a connection, a cursor or a session.

    Raises:
        InvalidArguments: it is not one of `allowed`, or an async one where only a sync one can be used.
    """
    kind = next((found for cls in type(conn).__mro__ if (found := _KINDS.get(_name(cls))) is not None), None)
    if kind is None or kind not in allowed:
        names = ", ".join(sorted(allowed))
        given = f"{type(conn).__module__}.{type(conn).__qualname__}"
        raise InvalidArguments(f"conn is a {given}; with this store it may be a connection of {names}", "conn")
    if sync and kind in ASYNC_KINDS:
        raise InvalidArguments(f"conn is an async connection ({kind}): await the async form of this call", "conn")
    return kind


def unwrap_cursor(conn: Any) -> Any:
    """The connection of a cursor; anything else as it is."""
    return conn.connection if _is_a(conn, _CURSORS) else conn


def session_connection(conn: Any) -> Any:
    """The connection of a SQLAlchemy session, in its transaction (to be awaited for an async one); None for a
    connection."""
    return conn.connection() if _is_a(conn, _SESSIONS) else None


def _is_a(thing: Any, names: frozenset[str]) -> bool:
    return any(cls.__name__ in names and _name(cls) in _KINDS for cls in type(thing).__mro__)


def _name(cls: type) -> tuple[str, str]:
    return cls.__module__.partition(".")[0], cls.__name__
