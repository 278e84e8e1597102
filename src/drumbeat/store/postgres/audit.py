"""The record of what people did, on PostgreSQL. The contract is in `store.protocol.Audit`."""

from functools import partial
from typing import Any

import msgspec

from drumbeat.model.audit import REPEATS_US, Act, NewAct, kept_answer
from drumbeat.store.malformed import reasons, salvage, tell
from drumbeat.store.postgres.connections import LONG, Link, Session
from drumbeat.store.postgres.statements import Statements
from drumbeat.store.records import moment, moment_or_none


class PostgresAudit:
    def __init__(self, sql: Statements, *, link: Link) -> None:
        self._sql = sql.audit
        self._link = link

    async def begin(self, act: NewAct, *, within: int = REPEATS_US) -> Act | None:
        row = await self._link.transact(partial(self._begin, act, within))
        return None if row is None or row["id"] == act.id else _act(row)

    async def end(self, id: str, *, touched: int, outcome: str, answer: str | None) -> None:
        facts = (id, touched, outcome, kept_answer(answer))
        await self._link.call(lambda session: session.execute(self._sql.end, *facts))

    async def get(self, id: str) -> Act | None:
        row = await self._link.call(lambda session: session.fetchrow(self._sql.get, id))
        return None if row is None else _act(row)

    async def page(
        self,
        *,
        before: str | None = None,
        limit: int = 100,
        who: str | None = None,
        verb: str | None = None,
        target: str | None = None,
    ) -> list[Act]:
        wanted = (before, max(limit, 0), who, verb, target)
        return [_act(row) for row in await self._link.call(lambda session: session.fetch(self._sql.page, *wanted))]

    async def prune(self, before: int, limit: int) -> int:
        gone = await self._link.call(lambda session: session.fetch(self._sql.prune, before, limit), patience=LONG)
        return len(gone)

    async def _begin(self, act: NewAct, within: int, session: Session) -> Any:
        """The act that has the key, whoever's it is; None: there is no key."""
        if act.request_key is not None:
            await session.execute(self._sql.release_key, act.who, act.request_key, within)
        facts = (act.id, act.who, act.role, act.via, act.verb, act.target, act.why, act.request_key, act.request_hash)
        await session.execute(self._sql.begin, *facts)
        if act.request_key is None:
            return None
        return await session.fetchrow(self._sql.holder, act.who, act.request_key)


def _act(row: Any) -> Act:
    facts = dict(row) | {"at": moment(row["at"] or 0), "done_at": moment_or_none(row["done_at"])}
    try:
        return msgspec.convert(facts, Act)
    except msgspec.ValidationError:
        values, faults = salvage(Act, facts)
        tell("act", row["id"], faults)
        return Act(**values | {"outcome": f"undecodable: {reasons(faults)}"})
