"""The audit log on SQLite. The contract is in `store.protocol.AuditStore`.

Rows come as arrays of a JSON text; the order of fields is the order of columns in `sql/audit.sql`.
"""

import msgspec

from drumbeat.core import audit
from drumbeat.store.records import AUDIT_ENTRIES
from drumbeat.store.sqlite.parts import SqliteOperations
from drumbeat.store.sqlite.row_decoder import RowDecoder
from drumbeat.store.sqlite.writer import WriteContext

_read_acts = RowDecoder.of(AUDIT_ENTRIES).read


class SqliteAudit(SqliteOperations):
    async def begin(
        self, act: audit.NewAuditEntry, *, within_us: int = audit.REQUEST_KEY_TTL_US
    ) -> audit.AuditEntry | None:
        earlier = await self._writer.write(self._begin, (act, within_us))
        return None if earlier is None or earlier.id == act.id else earlier

    async def end(self, id: str, *, touched: int, outcome: str, answer: str | None) -> None:
        facts = {"id": id, "touched": touched, "outcome": outcome, "answer": audit.drop_long_answer(answer)}
        await self._writer.write(lambda write, given: write.db.run(self._sql.end, given | {"now": write.now}), facts)

    async def report_progress(self, id: str, *, touched: int, matched: int | None) -> str | None:
        facts = {"id": id, "touched": touched, "matched": matched}
        found = await self._writer.write(
            lambda write, given: write.db.rows(self._sql.report_progress, given | {"now": write.now}),
            facts,
            durable=False,
        )
        stopped_by: str | None = found[0][0] if found else None
        return stopped_by

    async def request_stop(self, id: str, by: str) -> bool:
        facts = {"id": id, "by": by}
        return bool(await self._writer.write(lambda write, given: write.db.run(self._sql.request_stop, given), facts))

    async def get(self, id: str) -> audit.AuditEntry | None:
        found = await self._admin_reader.read(lambda db: _read_acts(db, self._sql.get, {"id": id}))
        return found[0].to_record() if found else None

    async def list_page(self, query: audit.AuditFilter = audit.ALL_ENTRIES) -> list[audit.AuditEntry]:
        wanted = msgspec.structs.asdict(query) | {"limit": max(query.limit, 0)}
        statement = self._sql.page_of_unended if query.unended else self._sql.page
        if query.unended:
            pass
        elif query.target is not None:
            statement = self._sql.page_of_target
        elif query.who is not None:
            statement = self._sql.page_of_who
        return [row.to_record() for row in await self._admin_reader.read(lambda db: _read_acts(db, statement, wanted))]

    async def prune(self, before: int, limit: int) -> int:
        return await self._writer.write(
            lambda write, given: write.db.run(self._sql.prune, given), {"before": before, "limit": limit}
        )

    def _begin(self, write: WriteContext, given: tuple[audit.NewAuditEntry, int]) -> audit.AuditEntry | None:
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
