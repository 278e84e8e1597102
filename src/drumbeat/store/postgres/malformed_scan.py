"""Which records of a database cannot be read, for the doctor. A bounded look at each table."""

import msgspec

from drumbeat.store.malformed import Fault, RecordKind, find_faults
from drumbeat.store.postgres.connections import Session
from drumbeat.store.postgres.statements import PostgresMalformedSql
from drumbeat.store.records import AuditEntryRow, RollupRow, StoredInstanceRow, StoredJobRow, StoredScheduleRow

_TABLES: dict[str, RecordKind] = {
    "jobs": RecordKind("job", StoredJobRow, states=("pending", "running")),
    "history": RecordKind("ended job", StoredJobRow, states=("succeeded", "cancelled", "dead")),
    "dead_letters": RecordKind("dead letter", StoredJobRow, states=("dead",)),
    "schedules": RecordKind("schedule", StoredScheduleRow, id="name"),
    "instances": RecordKind("instance", StoredInstanceRow),
    "audit_entries": RecordKind("act", AuditEntryRow),
    "rollups": RecordKind("roll-up", RollupRow, id="task"),
}


async def find_malformed(session: Session, sql: PostgresMalformedSql, limit: int) -> list[Fault]:
    found: list[Fault] = []
    statements = msgspec.structs.asdict(sql)
    for name, looked in _TABLES.items():
        found += find_faults(looked, [dict(row.items()) for row in await session.fetch(statements[name], limit)])
    return found
