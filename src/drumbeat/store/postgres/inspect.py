"""Reads for people on PostgreSQL, each from one snapshot. The contract is in `store.protocol.Inspector`."""

from collections.abc import Sequence
from functools import partial

from drumbeat.core.dead_letter import DeadLetterGroup
from drumbeat.core.health import HealthCheck
from drumbeat.core.instance import Instance, LeaderInfo
from drumbeat.core.job import Attempt, Job, JobState
from drumbeat.core.job_query import JobCounts, JobFilter, JobPage, QueueStats, TaskStats, WaitCounts
from drumbeat.durations import to_us
from drumbeat.ids import JobId, is_job_id
from drumbeat.store import overview
from drumbeat.store.cached_count import CachedCount, DueCounts, total_due, total_of_tasks, with_due
from drumbeat.store.job_search import WHOLE_TEXT
from drumbeat.store.malformed import Fault
from drumbeat.store.postgres import rows
from drumbeat.store.postgres.connections import LONG_TIMEOUT, Session
from drumbeat.store.postgres.health import PostgresHealth
from drumbeat.store.postgres.json_guard import StatementGuard, run_guarded
from drumbeat.store.postgres.malformed_scan import find_malformed
from drumbeat.store.postgres.parts import PostgresParts
from drumbeat.store.postgres.search import PostgresSearch
from drumbeat.store.protocol.inspect import MAX_GROUPED_LETTERS
from drumbeat.store.records import INSTANCES


class PostgresInspect:
    def __init__(self, parts: PostgresParts) -> None:
        self._sql = parts.sql
        self._connection = parts.connection
        self._report_connection = parts.report_connection
        self._health = PostgresHealth(parts)
        self._search = PostgresSearch(parts)
        self._due_cache = CachedCount(parts.clock, total_due)
        self._task_cache = CachedCount(parts.clock, total_of_tasks)

    async def now(self) -> int:
        now: int = await self._connection.call(lambda session: session.fetchval(self._sql.schema.now))
        return now

    async def get_jobs(self, ids: Sequence[JobId], *, preview: int | None = None) -> dict[JobId, Job]:
        wanted = [id for id in ids if is_job_id(id)]
        return await self._connection.transact(
            partial(self._load_records, wanted, WHOLE_TEXT if preview is None else preview), timeout=LONG_TIMEOUT
        )

    async def find_page(self, filter: JobFilter) -> JobPage:
        return await self._search.page(filter)

    async def count_jobs(self, filter: JobFilter) -> JobCounts:
        return await self._search.counts(filter)

    async def count_waits(self) -> WaitCounts:
        return await self._search.count_waits()

    async def get_attempts(self, ids: Sequence[JobId]) -> dict[JobId, list[Attempt]]:
        return await self._report_connection.transact(partial(self._load_attempts, ids), timeout=LONG_TIMEOUT)

    async def list_queues(self) -> list[QueueStats]:
        return await run_guarded(
            lambda guard: self._report_connection.transact(partial(self._load_queues, guard), timeout=LONG_TIMEOUT)
        )

    async def list_tasks(self) -> list[TaskStats]:
        return await self._task_cache.get(self._count_tasks)

    async def _load_queues(self, guard: StatementGuard, session: Session) -> list[QueueStats]:
        await session.execute(self._sql.schema.use_snapshot)
        due = await self._due_cache.get(partial(self._count_due, session))
        found = overview.QUEUES.read_rows(await session.fetch(guard(self._sql.inspect.queues)))
        return [with_due(row.to_record(), due) for row in found]

    async def _count_due(self, session: Session) -> DueCounts:
        found = await session.fetch(self._sql.inspect.due)
        return {row["queue"]: (row["ready"], row["scheduled"]) for row in found}

    async def _count_tasks(self) -> list[TaskStats]:
        found = await run_guarded(
            lambda guard: self._report_connection.call(
                lambda session: session.fetch(guard(self._sql.inspect.tasks)), timeout=LONG_TIMEOUT
            )
        )
        return [row.to_record() for row in overview.TASKS.read_rows(found)]

    async def list_instances(self, *, all: bool = False) -> list[Instance]:
        found = await self._connection.call(
            lambda session: session.fetch(self._sql.inspect.instances, all), timeout=LONG_TIMEOUT
        )
        return [row.to_record() for row in INSTANCES.read_rows(found)]

    async def group_dead_letters(self, limit: int, *, max_letters: int = MAX_GROUPED_LETTERS) -> list[DeadLetterGroup]:
        wanted = (max(limit, 0), max_letters)
        found = await run_guarded(
            lambda guard: self._report_connection.call(
                lambda session: session.fetch(guard(self._sql.inspect.dead_groups), *wanted), timeout=LONG_TIMEOUT
            )
        )
        return [row.to_record() for row in overview.DEAD_GROUPS.read_rows(found)]

    async def get_leader(self) -> LeaderInfo | None:
        found = await self._connection.call(lambda session: session.fetch(self._sql.inspect.leader))
        return next((row.to_record() for row in overview.LEADERS.read_rows(found)), None)

    async def count_ahead(self, job: Job, limit: int = 10_000) -> int:
        if job.state is not JobState.PENDING or job.blocked_on is not None:
            return 0
        place = (job.queue, job.lane, job.priority, to_us(job.run_at), job.id)
        count: int = await self._report_connection.call(
            lambda session: session.fetchval(self._sql.inspect.count_ahead, *place, limit), timeout=LONG_TIMEOUT
        )
        return count

    async def find_malformed(self, limit: int = 1_000) -> list[Fault]:
        return await self._report_connection.call(
            lambda session: find_malformed(session, self._sql.malformed, limit), timeout=LONG_TIMEOUT
        )

    async def check_health(self) -> list[HealthCheck]:
        return await self._health.check_all()

    async def _load_records(self, ids: list[JobId], preview: int, session: Session) -> dict[JobId, Job]:
        await session.execute(self._sql.schema.use_snapshot)
        sql = self._sql.inspect
        found: dict[JobId, Job] = {}
        for statement in (sql.dead_record, sql.history_record, sql.live_record):
            for row in await session.fetch(statement, ids, preview):
                job = rows.job(row)
                found[job.id] = job
        return found

    async def _load_attempts(self, ids: Sequence[JobId], session: Session) -> dict[JobId, list[Attempt]]:
        sql = self._sql.inspect
        wanted = [id for id in ids if is_job_id(id)]
        await session.execute(self._sql.schema.use_snapshot)
        found: dict[JobId, list[Attempt]] = {id: [] for id in ids}
        for row in await session.fetch(sql.attempts, wanted):
            found[row["id"]] += rows.attempts([row])
        for statement in (sql.history_record, sql.dead_record):
            for row in await session.fetch(statement, wanted, 0):
                if (last := rows.job_row(row).last_attempt()) is not None:
                    found[row["id"]].append(last)
        return found
