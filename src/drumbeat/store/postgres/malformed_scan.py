"""Records of a database that cannot be read, for the doctor. Reads a bounded part of each table."""

from drumbeat.store.malformed import Fault, find_faults
from drumbeat.store.postgres.connections import Session
from drumbeat.store.records import RECORD_KINDS
from drumbeat.store.sqlfile import Statements


async def find_malformed(session: Session, sql: Statements, limit: int) -> list[Fault]:
    found: list[Fault] = []
    for name, kind in RECORD_KINDS.items():
        found += find_faults(kind, [dict(row.items()) for row in await session.fetch(getattr(sql, name), limit)])
    return found
