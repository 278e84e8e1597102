"""How tickets get into their lines: alone if nobody else wants that now, and else together.

A crowd of tasks that want locks at once would wait for one commit each, one after the other on one connection, and hold up
everybody else who enters the same line. So those that come while a call is under way are entered by the next one, in one
statement and one commit.

    enter --the connection is ours--> takes all who wait --> one call --> tells them
      \\--somebody enters-----------> waits for its answer, or for its turn to do the same
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from drumbeat.core.lock import NewTicket
from drumbeat.errors import DrumbeatError
from drumbeat.store.postgres.connections import CALL_TIMEOUT, PostgresConnection
from drumbeat.store.postgres.statements import PostgresLockSql

_MIN_TICKETS_PER_SECOND = 100
"""So many even a slow server takes into a long line in a second."""
_MAX_GROUP_TICKETS = 500
_Waiter = tuple[NewTicket, "asyncio.Future[Any]"]


class AcquireBatcher:
    def __init__(self, sql: PostgresLockSql, connection: PostgresConnection) -> None:
        self._sql = sql
        self._connection = connection
        self._lock = asyncio.Lock()
        self._waiting: list[_Waiter] = []

    async def acquire(self, ticket: NewTicket) -> Any:
        """Gives its row."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((ticket, answer))
        try:
            async with self._lock:
                if not answer.done():
                    await self._acquire_all()
            return answer.result()
        finally:
            answer.cancel()  # if we are: nobody enters for us any more

    async def _acquire_all(self) -> None:
        """Everybody who waits, and among them the one whose turn it is."""
        waiting = [entry for entry in self._waiting if not entry[1].done()]
        group, self._waiting = waiting[:_MAX_GROUP_TICKETS], waiting[_MAX_GROUP_TICKETS:]
        try:
            # Each once: to enter twice is to enter once.
            rows = await self._call_acquire(list({ticket.id: ticket for ticket, _ in group}.values()))
        except DrumbeatError as error:
            for _, answer in group:
                if not answer.done():
                    answer.set_exception(error)
                    answer.exception()  # whoever was cancelled meanwhile does not ask for it
            return
        except BaseException:
            # Only this caller's wish is void. The others are still there, and one of them has the next turn.
            self._waiting = group + self._waiting
            raise
        for ticket, answer in group:
            if not answer.done():
                answer.set_result(rows[ticket.id])

    async def _call_acquire(self, tickets: Sequence[NewTicket]) -> dict[str, Any]:
        if len(tickets) == 1:
            [facts] = _arguments(tickets)
            row = await self._connection.call(lambda session: session.fetchrow(self._sql.acquire, *facts))
            return {row["ticket"]: row}
        columns = list(zip(*_arguments(tickets), strict=True))
        patience = CALL_TIMEOUT + len(tickets) / _MIN_TICKETS_PER_SECOND
        rows = await self._connection.call(
            lambda session: session.fetch(self._sql.acquire_all, *columns), timeout=patience
        )
        return {row["ticket"]: row for row in rows}


def _arguments(tickets: Sequence[NewTicket]) -> list[tuple[Any, ...]]:
    return [
        (ticket.id, ticket.lock, ticket.limit, ticket.per, ticket.lease, ticket.owner, ticket.what)
        for ticket in tickets
    ]
