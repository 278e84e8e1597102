"""Translates errors of the driver and the server into ours: one line, without a password."""

from collections.abc import Iterator
from contextlib import contextmanager

# This package is imported only when a PostgreSQL store is opened.
import asyncpg  # noqa: TID253

from drumbeat.errors import ConfigError, DrumbeatError, SchemaOutOfDate, StoreError, StoreFull, StoreUnavailable
from drumbeat.store import migrations

MIN_SERVER_VERSION = 13
MIGRATIONS = migrations.load_migrations("drumbeat.store.postgres.migrations")
LATEST_VERSION = MIGRATIONS[-1].number

# An id or a unique key is taken; our own, of raise_if_known.
_DUPLICATE_STATES = frozenset({"23505", "DB001"})
# Trying again helps: another transaction was faster. A taken key is then found by the read that comes first.
_RETRYABLE_STATES = frozenset({"40001", "40P01", "23505"})
_MISSING_SCHEMA_STATES = frozenset({"42P01", "3F000", "42883", "42703"})
_ACCESS_DENIED_STATES = {
    "28P01": "the password or the user name is wrong",
    "28000": "this user may not connect to this database",
    "3D000": "there is no such database",
    "42501": "this user lacks a permission",
}
_UNAVAILABLE_STATES = frozenset({"25006", "55P03", "55006"})


class DuplicateJobs(StoreError):
    """Of jobs that were to be stored at once, one exists already: nothing was stored. Never leaves the engine."""


@contextmanager
def translate_errors(masked_url: str) -> Iterator[None]:
    try:
        yield
    except DrumbeatError:
        raise
    except TimeoutError as error:
        raise StoreUnavailable(f"{masked_url}: no answer in time") from error
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        raise translate_error(error, masked_url) from error


def translate_error(error: Exception, masked_url: str) -> DrumbeatError:
    """Our error for an error of the driver."""
    reason = _one_line(error)
    if not isinstance(error, asyncpg.PostgresError):
        # A value that the driver cannot send is the caller's; all its other errors are about the connection.
        is_value = isinstance(error, ValueError)
        return StoreError(f"{masked_url}: {reason}") if is_value else StoreUnavailable(f"{masked_url}: {reason}")
    state = error.sqlstate or ""
    if state in _MISSING_SCHEMA_STATES:
        return SchemaOutOfDate(found=0, known=LATEST_VERSION)
    if state in _ACCESS_DENIED_STATES:
        return ConfigError(f"{masked_url}: {_ACCESS_DENIED_STATES[state]} ({reason})", "url")
    if state == "53100":
        return StoreFull(f"{masked_url}: {reason}")
    if state == "25006":
        return StoreUnavailable(f"{masked_url}: the server is read-only: it is a standby, or closed for writing")
    if state[:2] in {"08", "53", "57", "58", "40"} or state in _UNAVAILABLE_STATES:
        return StoreUnavailable(f"{masked_url}: {reason}")
    return StoreError(f"{masked_url}: {reason}")


def is_retryable(error: asyncpg.PostgresError) -> bool:
    # A migration has changed a table under a prepared statement: the driver prepares it anew, but not in a transaction.
    return error.sqlstate in _RETRYABLE_STATES or isinstance(error, asyncpg.InvalidCachedStatementError)


@contextmanager
def detect_duplicates() -> Iterator[None]:
    """Wraps statements that store new jobs all at once."""
    try:
        yield
    except asyncpg.PostgresError as error:
        if error.sqlstate in _DUPLICATE_STATES:
            raise DuplicateJobs("some of these jobs are known") from error
        raise


def parse_missing_day(error: asyncpg.PostgresError) -> int | None:
    """The finished_at that fits no partition of history, if that is what the error is about."""
    if error.sqlstate != "23514" or not (error.message or "").startswith("no partition"):
        return None
    digits = "".join(sign for sign in (error.detail or "") if sign.isdigit())
    return int(digits) if digits else None


def as_outage(error: DrumbeatError) -> DrumbeatError:
    """The same error once the store has been open: an operator may correct the configuration while we wait."""
    return StoreUnavailable(str(error)) if isinstance(error, ConfigError) else error


def _one_line(error: Exception) -> str:
    text = error.message if isinstance(error, asyncpg.PostgresError) and error.message else str(error)
    return " ".join(text.split()) or type(error).__name__
