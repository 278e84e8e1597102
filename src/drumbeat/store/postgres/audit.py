"""The record of what people did, on PostgreSQL. The contract is in `store.protocol.Audit`."""

from functools import partial
from typing import Any

import msgspec

from drumbeat.core.audit import REQUEST_KEY_TTL_US, AuditEntry, NewAuditEntry, drop_long_answer
from drumbeat.store.malformed import join_reasons, log_faults, salvage
from drumbeat.store.postgres.connections import LONG_TIMEOUT, Session
from drumbeat.store.postgres.parts import PostgresParts
from drumbeat.store.records import to_datetime, to_datetime_or_none


class PostgresAudit:
    def __init__(self, parts: PostgresParts) -> None:
        self._sql = parts.sql.audit
        self._connection = parts.connection

    async def begin(self, act: NewAuditEntry, *, within_us: int = REQUEST_KEY_TTL_US) -> AuditEntry | None:
        row = await self._connection.transact(partial(self._begin, act, within_us))
        return None if row is None or row["id"] == act.id else _act(row)

    async def end(self, id: str, *, touched: int, outcome: str, answer: str | None) -> None:
        facts = (id, touched, outcome, drop_long_answer(answer))
        await self._connection.call(lambda session: session.execute(self._sql.end, *facts))

    async def get(self, id: str) -> AuditEntry | None:
        row = await self._connection.call(lambda session: session.fetchrow(self._sql.get, id))
        return None if row is None else _act(row)

    async def list_page(
        self,
        *,
        before: str | None = None,
        limit: int = 100,
        who: str | None = None,
        verb: str | None = None,
        target: str | None = None,
    ) -> list[AuditEntry]:
        wanted = (before, max(limit, 0), who, verb, target)
        return [
            _act(row) for row in await self._connection.call(lambda session: session.fetch(self._sql.page, *wanted))
        ]

    async def prune(self, before: int, limit: int) -> int:
        gone = await self._connection.call(
            lambda session: session.fetch(self._sql.prune, before, limit), timeout=LONG_TIMEOUT
        )
        return len(gone)

    async def _begin(self, act: NewAuditEntry, within: int, session: Session) -> Any:
        """The act that has the key, whoever's it is; None: there is no key."""
        if act.request_key is not None:
            await session.execute(self._sql.expire_key, act.who, act.request_key, within)
        facts = (
            act.id,
            act.who,
            act.role,
            act.via,
            act.verb,
            act.target,
            act.reason,
            act.request_key,
            act.request_hash,
        )
        await session.execute(self._sql.begin, *facts)
        if act.request_key is None:
            return None
        return await session.fetchrow(self._sql.key_holder, act.who, act.request_key)


def _act(row: Any) -> AuditEntry:
    facts = dict(row) | {"at": to_datetime(row["at"] or 0), "done_at": to_datetime_or_none(row["done_at"])}
    try:
        return msgspec.convert(facts, AuditEntry)
    except msgspec.ValidationError:
        values, faults = salvage(AuditEntry, facts)
        log_faults("act", row["id"], faults)
        return AuditEntry(**values | {"outcome": f"undecodable: {join_reasons(faults)}"})
