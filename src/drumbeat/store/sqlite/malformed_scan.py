"""Records of a file that cannot be read, for the doctor. Reads a bounded part of each table, on the reader's thread."""

from typing import Any

from drumbeat.store import overview
from drumbeat.store.malformed import Fault, RecordKind, find_faults
from drumbeat.store.records import RECORD_KINDS, ROOM_MESSAGES
from drumbeat.store.sqlfile import Statements
from drumbeat.store.sqlite.connection import SqliteConnection
from drumbeat.store.sqlite.rows import PauseRow

_KINDS = RECORD_KINDS | {
    "locks": overview.LOCKS,
    "tickets": overview.TICKETS,
    "messages": ROOM_MESSAGES,
    "pauses": RecordKind("pause of a queue", PauseRow, id="name"),
}


def find_malformed(db: SqliteConnection, sql: Statements, limit: int) -> list[Fault]:
    found: list[Fault] = []
    for name, kind in _KINDS.items():
        rows: list[dict[str, Any]] = db.named_rows(getattr(sql, name), {"limit": limit})
        found += find_faults(kind, rows)
    return found
