"""The statements of the PostgreSQL engine, and where the values of their columns come from.

In the files everything is in the schema `drumbeat`; another namespace is another schema.
"""

import re

import msgspec

from drumbeat.store import sqlfile
from drumbeat.store.job_columns import (
    ENDED,
    LISTS,
    LONG_TEXTS,
    NEW,
    ONLY_ENDED,
    ONLY_LIVE,
    default_of,
    literal,
    may_be_null,
    neutral_of,
)
from drumbeat.store.sqlfile import Columns, Source, Statements, quote_column

_PACKAGE = "drumbeat.store.postgres.sql"
COLUMN_TYPES: dict[str, str] = dict.fromkeys(NEW, "text") | {
    "priority": "smallint",
    "retries": "integer",
    "crash_limit": "integer",
    "timeout": "bigint",
    "run_at": "bigint",
    "delay": "bigint",
}
"""Of NewJob's fields; a text needs no line."""
SHARED_FIELDS = ("task", "queue", "signature", "priority")
"""Fields of NewJob without a default that jobs of one call mostly share: $2 to $5 of `add`."""


def _new_source(expressions: dict[str, str], now: str) -> Source:
    """The values of a new live row; expressions: of NewJob's fields."""
    due = f"coalesce({expressions['run_at']}, {now} + {expressions['delay']})"
    return Source(expressions | {"created_at": now, "due_at": due, "run_at": due})


def _array_value(name: str) -> str:
    column = f"new.{quote_column(name)}"
    if name in SHARED_FIELDS:
        return f"coalesce({column}, ${SHARED_FIELDS.index(name) + 2})"
    return column if name in ("id", "args") or may_be_null(name) else f"coalesce({column}, {literal(default_of(name))})"


def _or_neutral(name: str) -> str:
    """A damaged row may lack a value that the table of its end requires."""
    column = f"gone.{quote_column(name)}"
    neutral = neutral_of(name)
    return column if name == "id" or neutral is None else f"coalesce({column}, {literal(neutral)})"


_FIRST_ARRAY = len(SHARED_FIELDS) + 2
_ARRAYS = {
    name: f"${number}::text[]::uuid[]" if name == "id" else f"${number}::{COLUMN_TYPES[name]}[]"
    for number, name in enumerate(NEW, start=_FIRST_ARRAY)
}
_ID = {"id": "job.id::text"}
_LIVE_ROW = _ID | {"started_at": "job.claimed_at"} | dict.fromkeys(ONLY_ENDED, "NULL")
_PREVIEWS = {name: f"left(job.{name}, $2) AS {name}" for name in LONG_TEXTS}
COLUMNS = Columns(
    LISTS | {"id_range": ("first", "last")},
    {
        "arrays": Source(_ARRAYS),
        "texts": Source({"id": f"${_FIRST_ARRAY}::text[]"}),
        "numbers": Source(
            {
                name: f"${number}::text::uuid"
                for number, name in enumerate(("first", "last"), start=_FIRST_ARRAY + len(NEW))
            }
        ),
        "new_row": _new_source({name: _array_value(name) for name in NEW}, "(SELECT drumbeat.now_us())"),
        "one": _new_source(
            {name: f"${number}::{COLUMN_TYPES[name]}" for number, name in enumerate(NEW, start=3)}
            | {"id": "$3::text::uuid"},
            "drumbeat.now_us()",
        ),
        "gone_or_neutral": Source({name: _or_neutral(name) for name in ENDED}),
        "nulls": Source(dict.fromkeys(LISTS["claimed"], "NULL")),
        "live_row": Source(_LIVE_ROW, "job"),
        "live_record": Source(_PREVIEWS | _LIVE_ROW, "job"),
        "ended_record": Source(_PREVIEWS | _ID | dict.fromkeys(ONLY_LIVE, "NULL"), "job"),
        "parameters": Source({name: f"${number}" for number, name in enumerate(LISTS["definition"], start=1)}),
    },
)
# `drumbeat.job`, the literal 'drumbeat', and the name in CREATE SCHEMA; not the word inside a longer one.
_SCHEMA = re.compile(r"(?<![\w.])drumbeat(?=\.|;)")
_LITERAL = "'drumbeat'"


class PostgresStatements(msgspec.Struct, frozen=True, kw_only=True):
    """All statements of one namespace."""

    jobs: Statements
    instances: Statements
    inspect: Statements
    search: Statements
    locks: Statements
    schedules: Statements
    rooms: Statements
    audit: Statements
    health: Statements
    stats: Statements
    malformed: Statements
    schema: Statements


_JOBS = sqlfile.load(_PACKAGE, "insert.sql", "claim.sql", "completion.sql", "jobs.sql", columns=COLUMNS)
_INSTANCES = sqlfile.load(_PACKAGE, "instances.sql")
_INSPECT = sqlfile.load(_PACKAGE, "inspect.sql", columns=COLUMNS)
_SEARCH = sqlfile.load(_PACKAGE, "search.sql")
_LOCKS = sqlfile.load(_PACKAGE, "locks.sql")
_SCHEDULES = sqlfile.load(_PACKAGE, "schedules.sql", columns=COLUMNS)
_ROOMS = sqlfile.load(_PACKAGE, "rooms.sql")
_AUDIT = sqlfile.load(_PACKAGE, "audit.sql")
_STATS = sqlfile.load(_PACKAGE, "stats.sql")
_MALFORMED = sqlfile.load(_PACKAGE, "malformed.sql")
_HEALTH = sqlfile.load(_PACKAGE, "health.sql")
_SCHEMA_SQL = sqlfile.load(_PACKAGE, "schema.sql")


def statements(namespace: str) -> PostgresStatements:
    return PostgresStatements(
        jobs=_in_schema(_JOBS, namespace),
        instances=_in_schema(_INSTANCES, namespace),
        inspect=_in_schema(_INSPECT, namespace),
        search=_in_schema(_SEARCH, namespace),
        locks=_in_schema(_LOCKS, namespace),
        schedules=_in_schema(_SCHEDULES, namespace),
        rooms=_in_schema(_ROOMS, namespace),
        audit=_in_schema(_AUDIT, namespace),
        stats=_in_schema(_STATS, namespace),
        malformed=_in_schema(_MALFORMED, namespace),
        health=_in_schema(_HEALTH, namespace),
        schema=_in_schema(_SCHEMA_SQL, namespace),
    )


def in_schema(text: str, namespace: str) -> str:
    """The same SQL for the tables of another namespace, which is letters, digits and _ (see `names.check_namespace`)."""
    return _SCHEMA.sub(f'"{namespace}"', text).replace(_LITERAL, f"'{namespace}'")


def for_partition(text: str, name: str) -> str:
    """A statement about one partition of history."""
    return text.replace("history_of_day", name)


def _in_schema(statements: Statements, namespace: str) -> Statements:
    return Statements({name: in_schema(text, namespace) for name, text in vars(statements).items()})
