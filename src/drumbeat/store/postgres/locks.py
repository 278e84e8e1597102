"""Turns, on PostgreSQL. The contract is in `store.protocol.Locks`.

Each operation is one statement that calls a function of the schema, so one round trip; what the functions do, and in which
order they lock, is said there. Hints are part of their transactions: NOTIFY is sent by the commit.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from drumbeat.durations import from_us
from drumbeat.errors import StoreError
from drumbeat.model.lock import LockInfo, NewTicket, Seen, TicketInfo, TicketState
from drumbeat.store.postgres.connections import LONG, Link, Session
from drumbeat.store.postgres.entering import Entering
from drumbeat.store.postgres.statements import Statements

log = logging.getLogger(__name__)

T = TypeVar("T")
_NEGATIVE_OFFSET = "2201X"


class PostgresLocks:
    def __init__(self, sql: Statements, *, link: Link) -> None:
        self._sql = sql.locks
        self._schema = sql.schema
        self._link = link
        self._entering = Entering(sql.locks, link)

    async def enter(self, ticket: NewTicket) -> Seen:
        return _seen(await self._entering.enter(ticket))

    async def look(self, tickets: Sequence[str], *, renew: bool) -> list[Seen]:
        if not tickets:
            return []
        # Each once: the function counts them.
        ids = list(dict.fromkeys(tickets))
        rows = await self._mending(lambda session: session.fetch(self._sql.look, ids, renew))
        found = {row["ticket"]: _seen(row) for row in rows}
        lost = [id for id in ids if id not in found]
        if lost:
            why = await self._reasons(lost)
            found |= {id: Seen(ticket=id, state=TicketState.LOST, why=why.get(id)) for id in lost}
        return [found[ticket] for ticket in tickets]

    async def leave(self, tickets: Sequence[str]) -> None:
        if tickets:
            await self._mending(lambda session: session.execute(self._sql.leave, list(tickets)))

    async def release(self, lock: str, ticket: str | None, *, by: str, why: str) -> int:
        count: int = await self._mending(lambda session: session.fetchval(self._sql.release, lock, ticket, by, why))
        return count

    async def page(self, *, after: str = "", limit: int = 100, all: bool = False) -> list[LockInfo]:
        return await self._link.transact(partial(self._infos, (after, limit, all, None), False), patience=LONG)

    async def get(self, lock: str) -> LockInfo | None:
        found = await self._link.transact(partial(self._infos, ("", 1, True, lock), True), patience=LONG)
        return found[0] if found else None

    async def _mending(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Where the server cannot reckon with a lock's limit, that is mended, and it is done once more."""
        try:
            return await self._link.call(work)
        except StoreError as error:
            if getattr(error.__cause__, "sqlstate", None) != _NEGATIVE_OFFSET:
                raise
            await self._link.call(lambda session: session.execute(self._sql.mend))
            log.error("a stored lock had a limit below 1: it is 1 now")
            return await self._link.call(work)

    async def _reasons(self, ids: list[str]) -> dict[str, str]:
        rows = await self._link.call(lambda session: session.fetch(self._sql.reasons, ids))
        return {
            id: f"released by {row['released_by']}: {row['released_why']}"
            for row in rows
            for id in row["released"].split()
        }

    async def _infos(self, wanted: tuple[Any, ...], waiters: bool, session: Session) -> list[LockInfo]:
        await session.execute(self._schema.one_snapshot)
        locks = await session.fetch(self._sql.page, *wanted)
        tickets = await session.fetch(self._sql.tickets, [lock["name"] for lock in locks], waiters)
        return [_info(lock, [ticket for ticket in tickets if ticket["lock"] == lock["name"]]) for lock in locks]


def _seen(row: Any) -> Seen:
    waits = row["granted_at"] is None
    return Seen(
        ticket=row["ticket"],
        state=TicketState.WAITING if waits else TicketState.GRANTED,
        token=row["token"],
        lane=row["lane"] or 0,
        place=row["place"],
        look_after=row["look_after"],
        granted_at=row["granted_at"],
    )


def _info(lock: Any, tickets: Sequence[Any]) -> LockInfo:
    return LockInfo(
        name=lock["name"],
        limit=lock["limit"],
        per=None if lock["per"] is None else lock["per"] / 1_000_000,
        holding=lock["holding"],
        waiting=lock["waiting"],
        holders=[_ticket(ticket) for ticket in tickets if ticket["granted_at"] is not None],
        waiters=[_ticket(ticket) for ticket in tickets if ticket["granted_at"] is None],
        released_at=None if lock["released_at"] is None else from_us(lock["released_at"]),
        released_by=lock["released_by"],
        released_why=lock["released_why"],
        opens_at=None if lock["opens_at"] is None else from_us(lock["opens_at"]),
    )


def _ticket(row: Any) -> TicketInfo:
    return TicketInfo(
        id=row["id"],
        token=row["number"],
        lane=row["lane"],
        owner=row["owner"],
        what=row["what"],
        entered_at=from_us(row["entered_at"]),
        granted_at=None if row["granted_at"] is None else from_us(row["granted_at"]),
        lease_left=row["remains"] / 1_000_000,
    )
