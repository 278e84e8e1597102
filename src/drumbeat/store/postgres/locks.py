"""Locks on PostgreSQL. The contract is in `store.protocol.Locks`, the model in `core.turns`.

Each operation is one statement, so one round trip: it calls a function of the schema, where the order of row locks is
documented. Notifications are part of the transactions: the commit sends them.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from drumbeat.core.lock import LockInfo, NewTicket, TicketStatus
from drumbeat.errors import StoreError
from drumbeat.store.overview import LockRow, TicketRow, add_lost_tickets, make_ticket_status
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
        return make_ticket_status(*await self._batcher.acquire(ticket))

    async def ticket_status(self, tickets: Sequence[str], *, renew: bool) -> list[TicketStatus]:
        if not tickets:
            return []
        # Without duplicates: the function counts them.
        ids = list(dict.fromkeys(tickets))
        rows = await self._call_with_repair(lambda session: session.fetch(self._sql.ticket_status, ids, renew))
        found = {row["ticket"]: make_ticket_status(*row) for row in rows}
        lost = [id for id in ids if id not in found]
        releases: list[Any] = []
        if lost:
            releases = await self._connection.call(lambda session: session.fetch(self._sql.release_reasons, lost))
        return add_lost_tickets(tickets, found, releases)

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

    async def _load_infos(self, wanted: tuple[Any, ...], waiters: bool, session: Session) -> list[LockInfo]:
        await session.execute(self._schema.use_snapshot)
        locks = await session.fetch(self._sql.page, *wanted)
        tickets = await session.fetch(self._sql.tickets, [lock["name"] for lock in locks], waiters)
        own = [TicketRow(*ticket) for ticket in tickets]
        return [LockRow(*lock).to_record(own) for lock in locks]
