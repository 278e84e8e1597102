"""The columns of jobs and schedules in the SQL engines, made from the fields of their records.

Statements name these lists as `{{history}}` (see sqlfile.py). A column of a job is in all three tables unless it is
named below.
"""

from typing import Any

import msgspec

from drumbeat.core.claim import ClaimedJob
from drumbeat.core.job import NewJob
from drumbeat.core.job_fields import GIVEN_FIELDS
from drumbeat.core.schedule import NewSchedule
from drumbeat.core.transitions import HeldJob
from drumbeat.store.malformed import neutral_value
from drumbeat.store.records import StoredJobRow, StoredScheduleRow

ONLY_LIVE = frozenset(
    {"blocked_on", "blocked_since", "has_run", "suspended", "open_parents", "is_parent", "binds", "place"}
)
ONLY_ENDED = frozenset({"finished_at", "outcome", "result", "result_error"})
LIVE_NAMES = {"started_at": "claimed_at"}
"""Columns of the live table with another name: a claim is not the start of the run."""
LONG_TEXTS = ("args", "progress", "result")
"""Lists read only the beginning of these."""

STORED: tuple[str, ...] = StoredJobRow.__struct_fields__
NEW: tuple[str, ...] = tuple(name for name in NewJob.__struct_fields__ if name != "after")
"""Edges are rows of their own."""
LIVE = tuple(
    column
    for name in STORED
    if name not in ONLY_ENDED and name != "is_parent"
    for column in (("is_parent", name) if name == "token" else (LIVE_NAMES.get(name, name),))
)
"""`is_parent` is among the first 32: a trigger of SQLite that reads a later one reads all columns of each row."""
ENDED = tuple(name for name in STORED if name not in ONLY_LIVE)
_CHANGEABLE = tuple(name for name in NewSchedule.__struct_fields__ if name != "name")
LISTS: dict[str, tuple[str, ...]] = {
    "id": ("id",),
    "task": ("task",),
    "unique": ("unique",),
    "given": GIVEN_FIELDS,
    "new": NEW,
    "inserted": (*GIVEN_FIELDS, "created_at", "due_at", "run_at", "expires_at"),
    "held": HeldJob.__struct_fields__,
    "claimed": ClaimedJob.__struct_fields__,
    "stored": STORED,
    "live": LIVE,
    "history": ENDED,
    "dead": ENDED,
    "moved": tuple(name for name in LIVE if name in ENDED and name != "state"),
    "schedule": StoredScheduleRow.__struct_fields__,
    "definition": NewSchedule.__struct_fields__,
    "changeable": _CHANGEABLE,
    "restarted": (*_CHANGEABLE, "every", "created_at", "changed_at", "declared_at", "changed_by", "reason"),
}

_STORED_FIELDS = {field.name: field for field in msgspec.structs.fields(StoredJobRow)}
_NEW_FIELDS = {field.name: field for field in msgspec.structs.fields(NewJob)}


def default_of(name: str) -> Any:
    """The value in a new row that does not say otherwise."""
    return (_NEW_FIELDS.get(name) or _STORED_FIELDS[name]).default


def neutral_of(name: str) -> Any:
    """The default in a row, or an empty value of its type for a column that has none; None: the column may be null."""
    field = _STORED_FIELDS[name]
    return neutral_value(field.type) if field.required else field.default


def attribute_path(name: str) -> str:
    """Where a field of NewJob has the value of its column. Of an enum by its plain attribute: `.value` is a call, and drivers
    treat an enum as no plain text."""
    return "unique._value_" if name == "unique" else name


def may_be_null(name: str) -> bool:
    """Whether this field of a new job may be None."""
    return _NEW_FIELDS[name].default is None


def literal(value: Any) -> str:
    """A default as SQL."""
    if value is None:
        return "NULL"
    return f"'{value}'" if isinstance(value, str) else str(value).lower()
