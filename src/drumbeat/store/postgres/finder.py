"""Which records of a database cannot be read, for the doctor. A bounded look at each table."""

import msgspec

from drumbeat.store.malformed import Fault, Looked, look_at
from drumbeat.store.postgres.connections import Session
from drumbeat.store.postgres.statements import MalformedSql
from drumbeat.store.records import ActRow, InstanceRow, JobRow, RollupRow
from drumbeat.store.scheduled import ScheduleRow

_LOOKED: dict[str, Looked] = {
    "jobs": Looked("job", JobRow, states=("pending", "running")),
    "history": Looked("ended job", JobRow, states=("succeeded", "cancelled", "dead")),
    "letters": Looked("dead letter", JobRow, states=("dead",)),
    "schedules": Looked("schedule", ScheduleRow, id="name"),
    "instances": Looked("instance", InstanceRow),
    "acts": Looked("act", ActRow),
    "rollups": Looked("roll-up", RollupRow, id="task"),
}


async def find(session: Session, sql: MalformedSql, limit: int) -> list[Fault]:
    found: list[Fault] = []
    statements = msgspec.structs.asdict(sql)
    for name, looked in _LOOKED.items():
        found += look_at(looked, [dict(row.items()) for row in await session.fetch(statements[name], limit)])
    return found
