"""What people look at, on PostgreSQL. The contract is in `store.protocol.Inspect`. Reads only, from one snapshot each."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from drumbeat.clock import Clock
from drumbeat.ids import JobId, is_job_id
from drumbeat.model.death import DeadGroup
from drumbeat.model.finding import Finding
from drumbeat.model.instance import Instance, LeaderInfo
from drumbeat.model.job import Attempt, Job, JobCounts, JobFilter, JobPage, JobState, QueueStats, TaskStats
from drumbeat.store.malformed import Fault
from drumbeat.store.postgres import rows
from drumbeat.store.postgres.caution import Guard, careful
from drumbeat.store.postgres.connections import LONG, Link, Session
from drumbeat.store.postgres.facts import PostgresFacts
from drumbeat.store.postgres.finder import find
from drumbeat.store.postgres.jobs import nowhere
from drumbeat.store.postgres.search import PostgresSearch
from drumbeat.store.postgres.statements import Statements
from drumbeat.store.protocol.inspect import NEWEST
from drumbeat.store.searching import WHOLE, Due, Recent, total_due, total_of_tasks, whole, with_due


class PostgresInspect:
    def __init__(
        self, sql: Statements, search: PostgresSearch, *, facts: PostgresFacts, link: Link, lists: Link, clock: Clock
    ) -> None:
        """lists: for what may take long."""
        self._facts = facts
        self._sql = sql
        self._search = search
        self._due = Recent(clock, total_due)
        self._tasks = Recent(clock, total_of_tasks)
        self._link = link
        self._lists = lists

    async def now(self) -> int:
        now: int = await self._link.call(lambda session: session.fetchval(self._sql.schema.now))
        return now

    async def job(self, id: JobId) -> Job:
        found, pruned_before = await self._link.transact(partial(self._find, id), patience=LONG)
        if found is None:
            raise nowhere(id, pruned_before)
        return rows.job(found)

    async def records(self, ids: Sequence[JobId], *, preview: int | None = None) -> dict[JobId, Job]:
        wanted = [id for id in ids if is_job_id(id)]
        return await self._link.transact(
            partial(self._records, wanted, WHOLE if preview is None else preview), patience=LONG
        )

    async def jobs(self, filter: JobFilter) -> list[Job]:
        return await whole(self.page, filter)

    async def page(self, filter: JobFilter) -> JobPage:
        return await self._search.page(filter)

    async def counts(self, filter: JobFilter) -> JobCounts:
        return await self._search.counts(filter)

    async def attempts(self, id: JobId) -> list[Attempt]:
        if not is_job_id(id):
            return []
        return await self._lists.transact(partial(self._attempts, id), patience=LONG)

    async def queues(self) -> list[QueueStats]:
        return await careful(lambda guard: self._lists.transact(partial(self._queues, guard), patience=LONG))

    async def tasks(self) -> list[TaskStats]:
        return await self._tasks.get(self._count_tasks)

    async def _queues(self, guard: Guard, session: Session) -> list[QueueStats]:
        await session.execute(self._sql.schema.one_snapshot)
        due = await self._due.get(partial(self._count_due, session))
        return [with_due(rows.queue(row), due) for row in await session.fetch(guard(self._sql.inspect.queues))]

    async def _count_due(self, session: Session) -> Due:
        found = await session.fetch(self._sql.inspect.due)
        return {row["queue"]: (row["ready"], row["scheduled"]) for row in found}

    async def _count_tasks(self) -> list[TaskStats]:
        found = await careful(
            lambda guard: self._lists.call(lambda session: session.fetch(guard(self._sql.inspect.tasks)), patience=LONG)
        )
        return [rows.task(row) for row in found]

    async def instances(self, *, all: bool = False) -> list[Instance]:
        found = await self._link.call(lambda session: session.fetch(self._sql.inspect.instances, all), patience=LONG)
        return [rows.instance(row) for row in found]

    async def groups(self, limit: int, *, newest: int = NEWEST) -> list[DeadGroup]:
        wanted = (max(limit, 0), newest)
        found = await careful(
            lambda guard: self._lists.call(
                lambda session: session.fetch(guard(self._sql.inspect.groups), *wanted), patience=LONG
            )
        )
        return [rows.group(row) for row in found]

    async def leader(self) -> LeaderInfo | None:
        row = await self._link.call(lambda session: session.fetchrow(self._sql.inspect.leader))
        return None if row is None else rows.leader(row)

    async def ahead(self, id: JobId, limit: int = 10_000) -> int:
        found, count = await self._lists.transact(partial(self._ahead, id, limit), patience=LONG)
        if found is None:
            raise nowhere(id, count)
        return count or 0

    async def malformed(self, limit: int = 1_000) -> list[Fault]:
        return await self._lists.call(lambda session: find(session, self._sql.malformed, limit), patience=LONG)

    async def facts(self) -> list[Finding]:
        return await self._facts.gather()

    async def _ahead(self, id: JobId, limit: int, session: Session) -> tuple[Any, int | None]:
        await session.execute(self._sql.schema.one_snapshot)
        row, pruned_before = await self._look(id, session)
        if row is None:
            return None, pruned_before
        if row["state"] != JobState.PENDING.value or row["waits_for"] is not None or row["run_at"] is None:
            return row, 0
        place = (row["queue"], row["priority"], row["run_at"], row["id"], limit)
        return row, await session.fetchval(self._sql.inspect.ahead, *place)

    async def _find(self, id: JobId, session: Session) -> tuple[Any, int | None]:
        await session.execute(self._sql.schema.one_snapshot)
        return await self._look(id, session)

    async def _look(self, id: JobId, session: Session) -> tuple[Any, int | None]:
        if is_job_id(id):
            sql = self._sql.inspect
            for statement in (sql.live_record, sql.history_record, sql.dead_record):
                if (found := await session.fetchrow(statement, [id], WHOLE)) is not None:
                    return found, None
        return None, await session.fetchval(self._sql.jobs.pruned_before)

    async def _records(self, ids: list[JobId], preview: int, session: Session) -> dict[JobId, Job]:
        await session.execute(self._sql.schema.one_snapshot)
        sql = self._sql.inspect
        found: dict[JobId, Job] = {}
        for statement in (sql.dead_record, sql.history_record, sql.live_record):
            for row in await session.fetch(statement, ids, preview):
                job = rows.job(row)
                found[job.id] = job
        return found

    async def _attempts(self, id: JobId, session: Session) -> list[Attempt]:
        await session.execute(self._sql.schema.one_snapshot)
        found = rows.attempts(await session.fetch(self._sql.inspect.attempts, id))
        row, _ = await self._look(id, session)
        last = None if row is None else rows.job_row(row).last_attempt()
        return found if last is None else [*found, last]
