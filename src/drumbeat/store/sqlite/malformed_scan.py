"""Which records of a file cannot be read, for the doctor. A bounded look at each table, on the reader's thread."""

from typing import Any

import msgspec

from drumbeat.store.malformed import Fault, RecordKind, find_faults
from drumbeat.store.records import AuditEntryRow, RollupRow, StoredInstanceRow, StoredJobRow, StoredScheduleRow
from drumbeat.store.sqlite.connection import SqliteConnection
from drumbeat.store.sqlite.locks import SqliteLockRow, TicketRow
from drumbeat.store.sqlite.rooms import MessageRow
from drumbeat.store.sqlite.rows import PauseRow
from drumbeat.store.sqlite.statements import SqliteMalformedSql

_TABLES: dict[str, RecordKind] = {
    "jobs": RecordKind("job", StoredJobRow, states=("pending", "running")),
    "history": RecordKind("ended job", StoredJobRow, states=("succeeded", "cancelled", "dead")),
    "dead_letters": RecordKind("dead letter", StoredJobRow, states=("dead",)),
    "schedules": RecordKind("schedule", StoredScheduleRow, id="name"),
    "instances": RecordKind("instance", StoredInstanceRow),
    "audit_entries": RecordKind("act", AuditEntryRow),
    "locks": RecordKind("lock", SqliteLockRow, id="name"),
    "tickets": RecordKind("ticket of a lock", TicketRow),
    "rollups": RecordKind("roll-up", RollupRow, id="task"),
    "messages": RecordKind("message of a room", MessageRow),
    "pauses": RecordKind("pause of a queue", PauseRow, id="name"),
}


def find_malformed(db: SqliteConnection, sql: SqliteMalformedSql, limit: int) -> list[Fault]:
    found: list[Fault] = []
    statements = msgspec.structs.asdict(sql)
    for name, looked in _TABLES.items():
        rows: list[dict[str, Any]] = db.named_rows(statements[name], {"limit": limit})
        found += find_faults(looked, rows)
    return found
