"""Tickets that ask for locks at the same time are stored in one statement and one commit.

Many tasks that acquire locks at once would otherwise wait for one commit each, one after the other on one connection,
and delay all others that acquire the same lock. So tickets that arrive while a call is under way are stored by the next
one.

    acquire --connection is free--> takes all waiting tickets --> one call --> sets their results
      \\--a call is under way-----> waits for its result, or for its turn to do the same
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from drumbeat.core.lock import NewTicket
from drumbeat.errors import DrumbeatError
from drumbeat.store.postgres.connections import CALL_TIMEOUT, PostgresConnection
from drumbeat.store.postgres.rows import to_columns
from drumbeat.store.sqlfile import Statements

_MIN_TICKETS_PER_SECOND = 100
"""What even a slow server stores of tickets for a long queue."""
_MAX_GROUP_TICKETS = 500
_Waiter = tuple[NewTicket, "asyncio.Future[Any]"]


class AcquireBatcher:
    def __init__(self, sql: Statements, connection: PostgresConnection) -> None:
        self._sql = sql
        self._connection = connection
        self._lock = asyncio.Lock()
        self._waiting: list[_Waiter] = []

    async def acquire(self, ticket: NewTicket) -> Any:
        """Returns the row of the ticket's status."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((ticket, answer))
        try:
            async with self._lock:
                if not answer.done():
                    await self._acquire_all()
            return answer.result()
        finally:
            answer.cancel()  # if the caller was cancelled, its ticket is not stored any more

    async def _acquire_all(self) -> None:
        """Store all waiting tickets, the caller's among them."""
        waiting = [entry for entry in self._waiting if not entry[1].done()]
        group, self._waiting = waiting[:_MAX_GROUP_TICKETS], waiting[_MAX_GROUP_TICKETS:]
        try:
            # Each ticket once: acquiring twice is acquiring once.
            rows = await self._call_acquire(list({ticket.id: ticket for ticket, _ in group}.values()))
        except DrumbeatError as error:
            for _, answer in group:
                if not answer.done():
                    answer.set_exception(error)
                    answer.exception()  # a caller that was cancelled meanwhile does not retrieve it
            return
        except BaseException:
            # Only this caller was cancelled. The others still wait, and one of them makes the next call.
            self._waiting = group + self._waiting
            raise
        for ticket, answer in group:
            if not answer.done():
                answer.set_result(rows[ticket.id])

    async def _call_acquire(self, tickets: Sequence[NewTicket]) -> dict[str, Any]:
        facts = [(each.id, each.lock, each.limit, each.per, each.lease, each.owner, each.what) for each in tickets]
        timeout = CALL_TIMEOUT + len(tickets) / _MIN_TICKETS_PER_SECOND
        rows = await self._connection.call(
            lambda session: session.fetch(self._sql.acquire, *to_columns(facts)), timeout=timeout
        )
        return {row["ticket"]: row for row in rows}
