"""Which records of a file cannot be read, for the doctor. A bounded look at each table, on the reader's thread."""

from typing import Any

import msgspec

from drumbeat.store.malformed import Fault, Looked, look_at
from drumbeat.store.records import ActRow, InstanceRow, JobRow, RollupRow
from drumbeat.store.scheduled import ScheduleRow
from drumbeat.store.sqlite.connection import Connection
from drumbeat.store.sqlite.locks import LockRow, TicketRow
from drumbeat.store.sqlite.rooms import MessageRow
from drumbeat.store.sqlite.rows import PauseRow
from drumbeat.store.sqlite.statements import MalformedSql

_LOOKED: dict[str, Looked] = {
    "jobs": Looked("job", JobRow, states=("pending", "running")),
    "history": Looked("ended job", JobRow, states=("succeeded", "cancelled", "dead")),
    "letters": Looked("dead letter", JobRow, states=("dead",)),
    "schedules": Looked("schedule", ScheduleRow, id="name"),
    "instances": Looked("instance", InstanceRow),
    "acts": Looked("act", ActRow),
    "locks": Looked("lock", LockRow, id="name"),
    "tickets": Looked("ticket of a lock", TicketRow),
    "rollups": Looked("roll-up", RollupRow, id="task"),
    "messages": Looked("message of a room", MessageRow),
    "pauses": Looked("pause of a queue", PauseRow, id="name"),
}


def find(db: Connection, sql: MalformedSql, limit: int) -> list[Fault]:
    found: list[Fault] = []
    statements = msgspec.structs.asdict(sql)
    for name, looked in _LOOKED.items():
        rows: list[dict[str, Any]] = db.named_rows(statements[name], {"limit": limit})
        found += look_at(looked, rows)
    return found
