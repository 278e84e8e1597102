"""The audit log on PostgreSQL. The contract is in `store.protocol.AuditStore`."""

from functools import partial
from typing import Any

import msgspec

from drumbeat.core import audit
from drumbeat.store.postgres.connections import LONG_TIMEOUT, Session
from drumbeat.store.postgres.parts import PostgresParts
from drumbeat.store.records import AUDIT_ENTRIES


class PostgresAudit:
    def __init__(self, parts: PostgresParts) -> None:
        self._sql = parts.sql.audit
        self._connection = parts.connection

    async def begin(
        self, act: audit.NewAuditEntry, *, within_us: int = audit.REQUEST_KEY_TTL_US
    ) -> audit.AuditEntry | None:
        found = AUDIT_ENTRIES.read_rows(await self._connection.transact(partial(self._begin, act, within_us)))
        return next((entry for row in found if (entry := row.to_record()).id != act.id), None)

    async def end(self, id: str, *, touched: int, outcome: str, answer: str | None) -> None:
        facts = (id, touched, outcome, audit.drop_long_answer(answer))
        await self._connection.call(lambda session: session.execute(self._sql.end, *facts))

    async def report_progress(self, id: str, *, touched: int, matched: int | None) -> str | None:
        stopped_by: str | None = await self._connection.call(
            lambda session: session.fetchval(self._sql.report_progress, id, touched, matched)
        )
        return stopped_by

    async def request_stop(self, id: str, by: str) -> bool:
        return bool(await self._connection.call(lambda session: session.fetch(self._sql.request_stop, id, by)))

    async def get(self, id: str) -> audit.AuditEntry | None:
        found = AUDIT_ENTRIES.read_rows(await self._connection.call(lambda session: session.fetch(self._sql.get, id)))
        return found[0].to_record() if found else None

    async def list_page(self, query: audit.AuditFilter = audit.ALL_ENTRIES) -> list[audit.AuditEntry]:
        wanted = (query.before, max(query.limit, 0), query.who, query.verb, query.target)
        statement = self._sql.page_of_unended if query.unended else self._sql.page
        found = await self._connection.call(lambda session: session.fetch(statement, *wanted))
        return [row.to_record() for row in AUDIT_ENTRIES.read_rows(found)]

    async def prune(self, before: int, limit: int) -> int:
        gone = await self._connection.call(
            lambda session: session.fetch(self._sql.prune, before, limit), timeout=LONG_TIMEOUT
        )
        return len(gone)

    async def _begin(self, act: audit.NewAuditEntry, within: int, session: Session) -> list[Any]:
        """The entry that holds the request key, which may be this one; empty: there is no key."""
        if act.request_key is not None:
            await session.execute(self._sql.expire_key, act.who, act.request_key, within)
        await session.execute(self._sql.begin, *msgspec.structs.astuple(act))
        if act.request_key is None:
            return []
        return list(await session.fetch(self._sql.key_holder, act.who, act.request_key))
