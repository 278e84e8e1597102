"""The days of history: made ahead, and taken away when they are old.

Every instance makes the days to come when it registers and once an hour, so that history outlives a midnight without anybody
in charge; a finish that meets a missing day makes it (see `connections`). A large day that is over goes as a whole: it is
detached, then dropped, waiting only briefly for whoever looks at it. Small ones are cleared row by row.
"""

import contextlib
from datetime import UTC, datetime
from functools import partial

import asyncpg  # type: ignore[import-untyped]  # noqa: TID253

from drumbeat.clock import Clock
from drumbeat.store.postgres.connections import LONG, Link, Session
from drumbeat.store.postgres.statements import JobSql, SchemaSql, of_day

AHEAD = 7
DAY_US = 86_400_000_000
EVERY_S = 3_600.0
LARGE = 8 * 1024 * 1024
"""A day of more bytes is not cleared row by row: each look for the oldest would step over all that is cleared already."""


class History:
    def __init__(self, jobs: JobSql, sql: SchemaSql, link: Link, clock: Clock, *, large: int = LARGE) -> None:
        self._jobs = jobs
        self._sql = sql
        self._link = link
        self._clock = clock
        self._large = large
        self._ahead_at = float("-inf")

    async def look_ahead(self) -> None:
        """Make the days to come, unless that was done within the hour."""
        if self._clock.monotonic() - self._ahead_at < EVERY_S:
            return
        await self._link.call(lambda session: session.execute(self._sql.ahead, AHEAD))
        self._ahead_at = self._clock.monotonic()

    async def prune(self, before: int, limit: int) -> int:
        """Take away what finished before; days oldest first. A whole day counts as `limit`: there may be more."""
        days = await self._link.call(lambda session: session.fetch(self._sql.days))
        for name in [day["name"] for day in days if not day["attached"] and beginning(day["name"]) + DAY_US <= before]:
            await self._link.call(partial(self._drop, name), patience=LONG)
        pruned = 0
        for day in (day for day in days if day["attached"]):
            begins = beginning(day["name"])
            if begins >= before or pruned >= limit:
                break
            is_over = begins + DAY_US <= before
            if day["size"] <= self._large:
                clear = partial(self._clear, begins, min(before, begins + DAY_US), limit - pruned)
                pruned += await self._link.transact(clear, patience=LONG)
                if is_over and pruned < limit:
                    await self._remove(day["name"], before, limit)  # nothing is left in it
            elif is_over and await self._remove(day["name"], before, limit):
                pruned = limit
        return pruned

    async def _clear(self, begins: int, before: int, limit: int, session: Session) -> int:
        pruned: int = await session.fetchval(self._jobs.prune, begins, before, limit)
        if pruned:
            await session.execute(self._jobs.keep_pruned_before, before)
        return pruned

    async def _remove(self, name: str, before: int, limit: int) -> bool:
        """Detach and drop a whole day; False: somebody was looking at it for too long, the next one tries again."""
        # On record before they go: whoever dies in between must not leave jobs that were never heard of.
        if await self._link.call(partial(self._has_any, name), patience=LONG):
            ends = beginning(name) + DAY_US
            await self._link.call(lambda session: session.execute(self._jobs.keep_pruned_before, ends))
        if not await self._link.call(partial(self._detach, name), patience=LONG):
            return False
        dropped = await self._link.call(partial(self._drop, name), patience=LONG)
        await self._link.call(
            lambda session: session.execute(self._jobs.prune_attempts, before, 10 * limit), patience=LONG
        )
        return dropped

    async def _has_any(self, name: str, session: Session) -> bool:
        with contextlib.suppress(asyncpg.UndefinedTableError):  # somebody else has removed it meanwhile
            return bool(await session.fetchval(of_day(self._sql.any_of_day, name)))
        return False

    async def _detach(self, name: str, session: Session) -> bool:
        # Concurrently: nobody who writes history waits. It cannot be part of a transaction, as a pooler would have it.
        ways = [self._sql.detach] if self._link.pooled else [self._sql.detach_finalize, self._sql.detach_concurrently]
        for way in ways:
            with contextlib.suppress(asyncpg.PostgresError):
                await self._briefly(of_day(way, name), session)
                return True
        return False

    async def _drop(self, name: str, session: Session) -> bool:
        with contextlib.suppress(asyncpg.LockNotAvailableError, asyncpg.QueryCanceledError):
            async with session.transaction():
                await session.execute(self._sql.patience)
                await session.execute(of_day(self._sql.drop, name))
            return True
        return False

    async def _briefly(self, statement: str, session: Session) -> None:
        if self._link.pooled:
            await session.execute(self._sql.patience)
            await session.execute(statement)
            return
        await session.execute(self._sql.patient_session)
        try:
            await session.execute(statement)
        finally:
            await session.execute(self._sql.usual_session)


def beginning(name: str) -> int:
    """The first moment of the day whose partition has this name."""
    day = datetime.strptime(name.removeprefix("history_"), "%Y%m%d").replace(tzinfo=UTC)
    return int(day.timestamp()) * 1_000_000
