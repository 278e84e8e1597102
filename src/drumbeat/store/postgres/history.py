"""The daily partitions of history: created ahead, dropped when they are old.

Every instance creates the days ahead when it registers and once an hour, so that no leader is needed for that; a
completion that meets a missing day creates it (see `connections`). A large day that is over is dropped as a whole:
detached, then dropped, waiting only briefly for readers. Small ones are deleted row by row.
"""

import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

import asyncpg  # noqa: TID253

from drumbeat.clock import Clock
from drumbeat.core.job_query import JobFilter
from drumbeat.ids import JobId
from drumbeat.store.job_search import id_span
from drumbeat.store.postgres.connections import LONG_TIMEOUT, PostgresConnection, Session
from drumbeat.store.postgres.statements import for_partition
from drumbeat.store.sqlfile import Statements

DAYS_AHEAD = 7
DAY_US = 86_400_000_000
ENSURE_INTERVAL = 3_600.0
LARGE_DAY_BYTES = 8 * 1024 * 1024
"""A larger day is not deleted row by row: each search for the oldest rows would step over all that are deleted already."""


class HistoryPartitions:
    def __init__(
        self,
        jobs: Statements,
        sql: Statements,
        connection: PostgresConnection,
        clock: Clock,
        *,
        large_bytes: int = LARGE_DAY_BYTES,
    ) -> None:
        self._jobs = jobs
        self._sql = sql
        self._connection = connection
        self._clock = clock
        self._large_bytes = large_bytes
        self._ensured_at = float("-inf")

    async def ensure_days_ahead(self) -> None:
        """Create the days ahead, unless that was done within the hour."""
        if self._clock.monotonic() - self._ensured_at < ENSURE_INTERVAL:
            return
        await self._connection.call(lambda session: session.execute(self._sql.days_ahead, DAYS_AHEAD))
        self._ensured_at = self._clock.monotonic()

    async def prune(self, before: int, limit: int) -> int:
        """Delete what finished before this time, oldest days first. A whole day counts as `limit`: there may be more."""
        days = await self._connection.call(lambda session: session.fetch(self._sql.days))
        for name in [
            day["name"] for day in days if not day["attached"] and day_start_us(day["name"]) + DAY_US <= before
        ]:
            await self._connection.call(partial(self._drop_day, name), timeout=LONG_TIMEOUT)
        pruned = 0
        for day in (day for day in days if day["attached"]):
            begins = day_start_us(day["name"])
            if begins >= before or pruned >= limit:
                break
            is_over = begins + DAY_US <= before
            if day["size"] <= self._large_bytes:
                clear = partial(self._delete_rows, begins, min(before, begins + DAY_US), limit - pruned)
                pruned += await self._connection.transact(clear, timeout=LONG_TIMEOUT)
                if is_over and pruned < limit:
                    await self._remove_day(day["name"], before, limit)  # nothing is left in it
            elif is_over and await self._remove_day(day["name"], before, limit):
                pruned = limit
        return pruned

    async def _delete_rows(self, begins: int, before: int, limit: int, session: Session) -> int:
        found = await session.fetchrow(self._jobs.prune, begins, before, limit)
        pruned: int = found["number"]
        if pruned:
            await session.execute(self._jobs.raise_pruned_before, before)
        await self._drop_unused(found["bound"], found["workflows"] or (), session)
        return pruned

    async def _drop_unused(self, bound: Sequence[JobId], workflows: Sequence[str], session: Session) -> None:
        """Delete kept results that no child binds any more, and workflows without jobs, among these."""
        if bound:
            await session.execute(self._jobs.lock_kept_results, bound)
            await session.execute(self._jobs.drop_unbound, bound)
        if workflows:
            await session.execute(self._jobs.lock_workflows, workflows)
            await session.execute(self._jobs.drop_empty_workflows, workflows)

    async def _prune_graphs(self, before: int, limit: int, session: Session) -> None:
        """Delete what belongs to jobs that were dropped with their partition: edges, kept results, workflows."""
        span = id_span(JobFilter(since=before))
        if span is None:
            return
        oldest = span.low
        await session.execute(self._jobs.prune_edges, oldest, limit)  # ids tell when their jobs were made
        bound = [row[0] for row in await session.fetch(self._jobs.find_unbound, oldest, limit)]
        workflows = [row[0] for row in await session.fetch(self._jobs.find_empty_workflows, before, limit)]
        await self._drop_unused(bound, workflows, session)

    async def _remove_day(self, name: str, before: int, limit: int) -> bool:
        """Detach and drop a whole day. False: a reader held it for too long, the next call tries again."""
        # Recorded before they are dropped: after a crash in between, missing jobs must count as expired, not unknown.
        if await self._connection.call(partial(self._has_rows, name), timeout=LONG_TIMEOUT):
            ends = day_start_us(name) + DAY_US
            await self._connection.call(lambda session: session.execute(self._jobs.raise_pruned_before, ends))
        if not await self._connection.call(partial(self._detach, name), timeout=LONG_TIMEOUT):
            return False
        dropped = await self._connection.call(partial(self._drop_day, name), timeout=LONG_TIMEOUT)
        for statement in (self._jobs.prune_attempts, self._jobs.prune_steps, self._jobs.prune_signals):
            await self._connection.call(partial(_execute, statement, before, 10 * limit), timeout=LONG_TIMEOUT)
        await self._connection.transact(partial(self._prune_graphs, before, 10 * limit), timeout=LONG_TIMEOUT)
        return dropped

    async def _has_rows(self, name: str, session: Session) -> bool:
        with contextlib.suppress(asyncpg.UndefinedTableError):  # another process has removed it meanwhile
            return bool(await session.fetchval(for_partition(self._sql.day_has_rows, name)))
        return False

    async def _detach(self, name: str, session: Session) -> bool:
        # Concurrently, so that writers of history do not wait. Not possible in a transaction, which a pooler needs.
        statements = (
            [self._sql.detach]
            if self._connection.pooled
            else [self._sql.detach_finalize, self._sql.detach_concurrently]
        )
        for statement in statements:
            with contextlib.suppress(asyncpg.PostgresError):
                await self._execute_with_timeouts(for_partition(statement, name), session)
                return True
        return False

    async def _drop_day(self, name: str, session: Session) -> bool:
        with contextlib.suppress(asyncpg.LockNotAvailableError, asyncpg.QueryCanceledError):
            async with session.transaction():
                await session.execute(self._sql.set_timeouts, True)
                with contextlib.suppress(asyncpg.UndefinedTableError):
                    async with session.transaction():
                        await session.execute(for_partition(self._sql.keep_results_of_day, name))
                await session.execute(for_partition(self._sql.drop_day, name))
            return True
        return False

    async def _execute_with_timeouts(self, statement: str, session: Session) -> None:
        await session.execute(self._sql.set_timeouts, self._connection.pooled)
        try:
            await session.execute(statement)
        finally:
            if not self._connection.pooled:
                await session.execute(self._sql.reset_timeouts)


async def _execute(statement: str, before: int, limit: int, session: Session) -> None:
    await session.execute(statement, before, limit)


def day_start_us(name: str) -> int:
    """The start of the day whose partition has this name."""
    day = datetime.strptime(name.removeprefix("history_"), "%Y%m%d").replace(tzinfo=UTC)
    return int(day.timestamp()) * 1_000_000
