"""Reads for people on SQLite. The contract is in `store.protocol.Inspector`.

They run on a thread of their own, so that a slow list never delays a worker's reads.
"""

from collections.abc import Sequence

from drumbeat.core.dead_letter import DeadLetterGroup
from drumbeat.core.health import HealthCheck
from drumbeat.core.instance import Instance, LeaderInfo
from drumbeat.core.job import Attempt, Job, JobState
from drumbeat.core.job_query import JobCounts, JobFilter, JobPage, QueueStats, TaskStats, WaitCounts
from drumbeat.durations import to_us
from drumbeat.ids import JobId
from drumbeat.store.cached_count import CachedCount, DueCounts, total_due, total_of_tasks, with_due
from drumbeat.store.job_search import WHOLE_TEXT
from drumbeat.store.malformed import Fault
from drumbeat.store.overview import QueueRow
from drumbeat.store.protocol.inspect import MAX_GROUPED_LETTERS
from drumbeat.store.records import RecordRow, StoredJobRow, as_json
from drumbeat.store.sqlfile import Statements
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.connection import SqliteConnection
from drumbeat.store.sqlite.health import SqliteHealth
from drumbeat.store.sqlite.malformed_scan import find_malformed
from drumbeat.store.sqlite.parts import SqliteOperations, SqliteParts
from drumbeat.store.sqlite.search import SqliteSearch


class SqliteInspect(SqliteOperations):
    def __init__(self, parts: SqliteParts, sql: Statements) -> None:
        super().__init__(parts, sql)
        self._health = SqliteHealth(parts, parts.sql.health)
        self._search = SqliteSearch(parts, parts.sql.search)
        self._due = CachedCount(parts.clock, total_due)
        self._tasks = CachedCount(parts.clock, total_of_tasks)

    async def now(self) -> int:
        return self._clock.now_us()

    async def get_jobs(self, ids: Sequence[JobId], *, preview: int | None = None) -> dict[JobId, Job]:
        wanted = {"ids": as_json(list(ids)), "preview": WHOLE_TEXT if preview is None else preview}

        def load(db: SqliteConnection) -> list[StoredJobRow]:
            statements = (self._sql.dead_record, self._sql.history_record, self._sql.live_record)
            return [row for statement in statements for row in rows.jobs(db, statement, wanted)]

        return {(job := row.to_record()).id: job for row in await self._admin_reader.read(load)}

    async def find_page(self, filter: JobFilter) -> JobPage:
        return await self._search.page(filter)

    async def count_jobs(self, filter: JobFilter) -> JobCounts:
        return await self._search.counts(filter)

    async def count_waits(self) -> WaitCounts:
        return await self._search.count_waits()

    async def get_attempts(self, ids: Sequence[JobId]) -> dict[JobId, list[Attempt]]:
        wanted = {"ids": as_json(list(dict.fromkeys(ids))), "preview": 0}

        def load(db: SqliteConnection) -> tuple[dict[JobId, list[RecordRow[Attempt]]], list[StoredJobRow]]:
            ended = [
                row
                for statement in (self._sql.history_record, self._sql.dead_record)
                for row in rows.jobs(db, statement, wanted)
            ]
            return {id: rows.attempts(db, self._sql.attempts, {"id": id}) for id in ids}, ended

        earlier, ended = await self._admin_reader.read(load)
        found = {id: [row.to_record() for row in attempts] for id, attempts in earlier.items()}
        for row in ended:
            if (last := row.last_attempt()) is not None:
                found[row.id].append(last)
        return found

    async def list_queues(self) -> list[QueueStats]:
        now = {"now": self._clock.now_us()}

        def load(db: SqliteConnection) -> tuple[list[QueueRow], DueCounts]:
            due = self._due.get_sync(lambda: self._count_due(db, now))
            return rows.queues(db, self._sql.queues, now), due

        queues, due = await self._admin_reader.read(load)
        return [with_due(row.to_record(), due) for row in queues]

    async def list_tasks(self) -> list[TaskStats]:
        return await self._tasks.get(self._count_tasks)

    async def _count_tasks(self) -> list[TaskStats]:
        return [row.to_record() for row in await self._admin_reader.read(lambda db: rows.tasks(db, self._sql.tasks))]

    async def list_instances(self, *, all: bool = False) -> list[Instance]:
        found = await self._admin_reader.read(lambda db: rows.instances(db, self._sql.instances, {"all": all}))
        return [row.to_record() for row in found]

    async def group_dead_letters(self, limit: int, *, max_letters: int = MAX_GROUPED_LETTERS) -> list[DeadLetterGroup]:
        wanted = {"limit": max(limit, 0), "newest": max_letters}
        return [
            row.to_record()
            for row in await self._admin_reader.read(lambda db: rows.groups(db, self._sql.groups, wanted))
        ]

    async def get_leader(self) -> LeaderInfo | None:
        wanted = {"now": self._clock.now_us()}
        found = await self._admin_reader.read(lambda db: rows.leaders(db, self._sql.leader, wanted))
        return found[0].to_record() if found else None

    async def count_ahead(self, job: Job, limit: int = 10_000) -> int:
        if job.state is not JobState.PENDING or job.blocked_on is not None:
            return 0
        place = {
            "queue": job.queue,
            "lane": job.lane,
            "priority": job.priority,
            "run_at": to_us(job.run_at),
            "id": job.id,
        }
        parameters = place | {"now": self._clock.now_us(), "limit": limit}
        count: int = await self._admin_reader.read(lambda db: db.value(self._sql.ahead, parameters))
        return count

    async def find_malformed(self, limit: int = 1_000) -> list[Fault]:
        return await self._admin_reader.read(lambda db: find_malformed(db, self._parts.sql.malformed, limit))

    async def check_health(self) -> list[HealthCheck]:
        return await self._health.check_all()

    # On the reader's thread.

    def _count_due(self, db: SqliteConnection, now: dict[str, int]) -> DueCounts:
        return {row.queue: (row.ready, row.scheduled) for row in rows.due(db, self._sql.due, now)}
