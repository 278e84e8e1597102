"""The audit log on SQLite. The contract is in `store.protocol.AuditStore`.

Rows come as arrays of a JSON text; the order of fields is the order of columns in `sql/audit.sql`.
"""

import msgspec

from drumbeat.core.audit import (
    ALL_ENTRIES,
    REQUEST_KEY_TTL_US,
    AuditEntry,
    AuditFilter,
    NewAuditEntry,
    drop_long_answer,
)
from drumbeat.store.records import AUDIT_ENTRIES
from drumbeat.store.sqlite.parts import SqliteParts
from drumbeat.store.sqlite.row_decoder import RowDecoder
from drumbeat.store.sqlite.writer import WriteContext

_read_acts = RowDecoder.of(AUDIT_ENTRIES).read


class SqliteAudit:
    def __init__(self, parts: SqliteParts) -> None:
        self._sql = parts.sql.audit
        self._writer = parts.writer
        self._reader = parts.admin_reader

    async def begin(self, act: NewAuditEntry, *, within_us: int = REQUEST_KEY_TTL_US) -> AuditEntry | None:
        earlier = await self._writer.write(self._begin, (act, within_us))
        return None if earlier is None or earlier.id == act.id else earlier

    async def end(self, id: str, *, touched: int, outcome: str, answer: str | None) -> None:
        facts = {"id": id, "touched": touched, "outcome": outcome, "answer": drop_long_answer(answer)}
        await self._writer.write(lambda write, given: write.db.run(self._sql.end, given | {"now": write.now}), facts)

    async def get(self, id: str) -> AuditEntry | None:
        found = await self._reader.read(lambda db: _read_acts(db, self._sql.get, {"id": id}))
        return found[0].to_record() if found else None

    async def list_page(self, query: AuditFilter = ALL_ENTRIES) -> list[AuditEntry]:
        wanted = msgspec.structs.asdict(query) | {"limit": max(query.limit, 0)}
        statement = self._sql.page
        if query.target is not None:
            statement = self._sql.page_of_target
        elif query.who is not None:
            statement = self._sql.page_of_who
        return [row.to_record() for row in await self._reader.read(lambda db: _read_acts(db, statement, wanted))]

    async def prune(self, before: int, limit: int) -> int:
        return await self._writer.write(
            lambda write, given: write.db.run(self._sql.prune, given), {"before": before, "limit": limit}
        )

    def _begin(self, write: WriteContext, given: tuple[NewAuditEntry, int]) -> AuditEntry | None:
        """On the writer's thread. Returns the entry that holds the request key, which may be another; None: no key."""
        act, within = given
        facts = msgspec.structs.asdict(act) | {"now": write.now, "until": write.now - within}
        if act.request_key is not None:
            write.db.run(self._sql.release_key, facts)
        write.db.run(self._sql.begin, facts)
        if act.request_key is None:
            return None
        found = _read_acts(write.db, self._sql.holder_of_key, facts)
        return found[0].to_record() if found else None
