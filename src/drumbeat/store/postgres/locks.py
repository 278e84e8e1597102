"""Locks on PostgreSQL. The contract is in `store.protocol.Locks`, the model in `core.turns`.

Each operation is one statement, so one round trip: it calls a function of the schema, where the order of row locks is
documented. Notifications are part of the transactions: the commit sends them.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from drumbeat.core.lock import LockInfo, NewTicket, TicketInfo, TicketState, TicketStatus
from drumbeat.durations import from_us
from drumbeat.errors import StoreError
from drumbeat.store.postgres.acquire_batch import AcquireBatcher
from drumbeat.store.postgres.connections import LONG_TIMEOUT, Session
from drumbeat.store.postgres.parts import PostgresParts

log = logging.getLogger(__name__)

T = TypeVar("T")
_NEGATIVE_OFFSET = "2201X"


class PostgresLocks:
    def __init__(self, parts: PostgresParts) -> None:
        self._sql = parts.sql.locks
        self._schema = parts.sql.schema
        self._connection = parts.connection
        self._batcher = AcquireBatcher(parts.sql.locks, parts.connection)

    async def acquire(self, ticket: NewTicket) -> TicketStatus:
        return _ticket_status(await self._batcher.acquire(ticket))

    async def ticket_status(self, tickets: Sequence[str], *, renew: bool) -> list[TicketStatus]:
        if not tickets:
            return []
        # Without duplicates: the function counts them.
        ids = list(dict.fromkeys(tickets))
        rows = await self._call_with_repair(lambda session: session.fetch(self._sql.ticket_status, ids, renew))
        found = {row["ticket"]: _ticket_status(row) for row in rows}
        lost = [id for id in ids if id not in found]
        if lost:
            reason = await self._load_release_reasons(lost)
            found |= {id: TicketStatus(ticket=id, state=TicketState.LOST, reason=reason.get(id)) for id in lost}
        return [found[ticket] for ticket in tickets]

    async def release(self, tickets: Sequence[str]) -> None:
        if tickets:
            await self._call_with_repair(lambda session: session.execute(self._sql.release, list(tickets)))

    async def force_release(self, lock: str, ticket: str | None, *, by: str, reason: str) -> int:
        count: int = await self._call_with_repair(
            lambda session: session.fetchval(self._sql.force_release, lock, ticket, by, reason)
        )
        return count

    async def list_page(self, *, after: str = "", limit: int = 100, all: bool = False) -> list[LockInfo]:
        return await self._connection.transact(
            partial(self._load_infos, (after, limit, all, None), False), timeout=LONG_TIMEOUT
        )

    async def get(self, lock: str) -> LockInfo | None:
        found = await self._connection.transact(
            partial(self._load_infos, ("", 1, True, lock), True), timeout=LONG_TIMEOUT
        )
        return found[0] if found else None

    async def _call_with_repair(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Run once more after repair where the stored limit of a lock is invalid."""
        try:
            return await self._connection.call(work)
        except StoreError as error:
            if getattr(error.__cause__, "sqlstate", None) != _NEGATIVE_OFFSET:
                raise
            await self._connection.call(lambda session: session.execute(self._sql.repair_limits))
            log.error("a stored lock had a limit below 1: it is 1 now")
            return await self._connection.call(work)

    async def _load_release_reasons(self, ids: list[str]) -> dict[str, str]:
        rows = await self._connection.call(lambda session: session.fetch(self._sql.release_reasons, ids))
        return {
            id: f"released by {row['released_by']}: {row['released_reason']}"
            for row in rows
            for id in row["released_tickets"].split()
        }

    async def _load_infos(self, wanted: tuple[Any, ...], waiters: bool, session: Session) -> list[LockInfo]:
        await session.execute(self._schema.use_snapshot)
        locks = await session.fetch(self._sql.page, *wanted)
        tickets = await session.fetch(self._sql.tickets, [lock["name"] for lock in locks], waiters)
        return [_info(lock, [ticket for ticket in tickets if ticket["lock"] == lock["name"]]) for lock in locks]


def _ticket_status(row: Any) -> TicketStatus:
    waits = row["granted_at"] is None
    return TicketStatus(
        ticket=row["ticket"],
        state=TicketState.WAITING if waits else TicketState.GRANTED,
        token=row["token"],
        lane=row["lane"] or 0,
        position=row["place"],
        recheck_after_us=row["look_after"],
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
        released_reason=lock["released_reason"],
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
