"""The statements of the PostgreSQL engine, and where the values of their columns come from.

In the files everything is in the schema `drumbeat`; another namespace is another schema.
"""

import re
from functools import lru_cache

from drumbeat.store import job_columns, sqlfile
from drumbeat.store.job_columns import LISTS, NEW
from drumbeat.store.sqlfile import Columns, EngineStatements, Source, quote_column

COLUMN_TYPES: dict[str, str] = dict.fromkeys(NEW, "text") | {
    "priority": "smallint",
    "retries": "integer",
    "crash_limit": "integer",
    "timeout": "bigint",
    "run_at": "bigint",
    "delay": "bigint",
    "expires_at": "bigint",
    "expires": "bigint",
}
"""Of NewJob's fields; a text needs no line."""
SHARED_FIELDS = ("task", "queue", "signature", "priority")
"""Fields of NewJob without a default that jobs of one call mostly share: $2 to $5 of `add`."""


def _new_source(expressions: dict[str, str], now: str) -> Source:
    """The values of a new live row; expressions: of NewJob's fields."""
    due = f"coalesce({expressions['run_at']}, {now} + {expressions['delay']})"
    expires_at = f"coalesce({expressions['expires_at']}, {due} + {expressions['expires']})"
    return Source(expressions | {"created_at": now, "due_at": due, "run_at": due, "expires_at": expires_at})


def _array_value(name: str) -> str:
    column = f"new.{quote_column(name)}"
    if name in SHARED_FIELDS:
        return f"coalesce({column}, ${SHARED_FIELDS.index(name) + 2})"
    return (
        column
        if name in ("id", "args") or job_columns.may_be_null(name)
        else f"coalesce({column}, {job_columns.literal(job_columns.default_of(name))})"
    )


def _or_neutral(name: str) -> str:
    """A damaged row may lack a value that the table of its end requires."""
    column = f"gone.{quote_column(name)}"
    neutral = job_columns.neutral_of(name)
    return column if name == "id" or neutral is None else f"coalesce({column}, {job_columns.literal(neutral)})"


_FIRST_ARRAY = len(SHARED_FIELDS) + 2
_ARRAYS = {
    name: f"${number}::text[]::uuid[]" if name == "id" else f"${number}::{COLUMN_TYPES[name]}[]"
    for number, name in enumerate(NEW, start=_FIRST_ARRAY)
}
_ID = {"id": "job.id::text"}
_LIVE_ROW = _ID | {"started_at": "job.claimed_at"} | dict.fromkeys(job_columns.ONLY_ENDED, "NULL")
_PREVIEWS = {name: f"left(job.{name}, $2) AS {name}" for name in job_columns.LONG_TEXTS}
COLUMNS = Columns(
    LISTS | {"id_range": ("first", "last"), "node": ("is_parent", "binds", "open_parents")},
    {
        "arrays": Source(_ARRAYS),
        "texts": Source({"id": f"${_FIRST_ARRAY}::text[]"}),
        "numbers": Source(
            {
                name: f"${number}::text::uuid"
                for number, name in enumerate(("first", "last"), start=_FIRST_ARRAY + len(NEW))
            }
        ),
        "node_arrays": Source(
            {
                name: f"${number}::{kind}[]"
                for number, (name, kind) in enumerate(
                    (("is_parent", "boolean"), ("binds", "boolean"), ("open_parents", "integer")),
                    start=_FIRST_ARRAY + len(NEW),
                )
            }
        ),
        "new_row": _new_source({name: _array_value(name) for name in NEW}, "(SELECT drumbeat.now_us())"),
        "one": _new_source(
            {name: f"${number}::{COLUMN_TYPES[name]}" for number, name in enumerate(NEW, start=3)}
            | {"id": "$3::text::uuid"},
            "drumbeat.now_us()",
        ),
        "gone_or_neutral": Source({name: _or_neutral(name) for name in job_columns.ENDED}),
        "nulls": Source(dict.fromkeys(LISTS["claimed"], "NULL")),
        "live_row": Source(_LIVE_ROW, "job"),
        "live_record": Source(_PREVIEWS | _LIVE_ROW, "job"),
        "ended_record": Source(_PREVIEWS | _ID | dict.fromkeys(job_columns.ONLY_LIVE, "NULL"), "job"),
        "parameters": Source({name: f"${number}" for number, name in enumerate(LISTS["definition"], start=1)}),
    },
)
# `drumbeat.job`, the job_columns.literal 'drumbeat', and the name in CREATE SCHEMA; not the word inside a longer one.
_SCHEMA = re.compile(r"(?<![\w.])drumbeat(?=\.|;)")
_LITERAL = "'drumbeat'"


_SQL = sqlfile.load_engine("drumbeat.store.postgres.sql", COLUMNS)


@lru_cache(maxsize=8)
def statements(namespace: str) -> EngineStatements:
    return sqlfile.change_names(_SQL, lambda text: in_schema(text, namespace))


def in_schema(text: str, namespace: str) -> str:
    """The same SQL for the tables of another namespace, which is letters, digits and _ (see `names.check_namespace`)."""
    return _SCHEMA.sub(f'"{namespace}"', text).replace(_LITERAL, f"'{namespace}'")


def for_partition(text: str, name: str) -> str:
    """A statement about one partition of history."""
    return text.replace("history_of_day", name)
