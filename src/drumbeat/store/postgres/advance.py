"""Following the edges of parents that have ended, on PostgreSQL: the function `advance` of the schema, see there.

Each step is a transaction of its own, on whatever connection is at hand.
"""

import contextlib
from collections.abc import Collection
from typing import NamedTuple

from drumbeat.core.dependencies import MAX_ADVANCED
from drumbeat.errors import StoreError
from drumbeat.ids import JobId
from drumbeat.store.postgres.connections import PlanMode, PostgresConnection, Session
from drumbeat.store.postgres.wake import PostgresNotifier
from drumbeat.store.sqlfile import Statements


class Advanced(NamedTuple):
    """The result of one step."""

    is_more: bool
    """There are more edges to follow."""
    earliest_due: int | None
    """The earliest run_at of children that became due; None: there are none."""
    due_ids: list[JobId]


class PostgresAdvancer:
    def __init__(self, sql: Statements, connection: PostgresConnection, notifier: PostgresNotifier) -> None:
        self._sql = sql
        self._connection = connection
        self._notifier = notifier

    async def advance(self, connection: PostgresConnection) -> Advanced:
        """One step. The caller notifies."""

        async def work(session: Session) -> Advanced:
            row = await session.fetchrow(self._sql.advance, MAX_ADVANCED)
            return Advanced(row["is_more"], row["earliest_due"], row["due_ids"] or [])

        return await connection.call(work, plan_mode=PlanMode.ANY)

    def notify(self, advanced: Advanced, claimed: Collection[JobId] = ()) -> None:
        """Tell workers of children that became due, unless they were all `claimed` at once."""
        if not all(id in claimed for id in advanced.due_ids):
            self._notifier.notify(advanced.earliest_due)

    async def step(self) -> bool:
        """One step, with its hint; whether there is more."""
        advanced = await self.advance(self._connection)
        self.notify(advanced)
        await self._notifier.flush()
        return advanced.is_more

    async def follow(self, released: int) -> None:
        """What the caller did is stored, and has left so many releases: follow them until nothing is left. An outage does not
        undo it: whoever comes next follows them."""
        if released:
            with contextlib.suppress(StoreError):
                while await self.step():
                    pass
