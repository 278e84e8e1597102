"""What people look at, on SQLite. The contract is in `store.protocol.Inspect`.

Reads only, on a thread of their own, so that a slow list never keeps a worker's look waiting.
"""

from collections.abc import Sequence

from drumbeat.clock import Clock
from drumbeat.ids import JobId
from drumbeat.model.death import DeadGroup
from drumbeat.model.finding import Finding
from drumbeat.model.instance import Instance, LeaderInfo
from drumbeat.model.job import Attempt, Job, JobCounts, JobFilter, JobPage, JobState, QueueStats, TaskStats
from drumbeat.store.protocol.inspect import NEWEST
from drumbeat.store.searching import WHOLE, Due, Recent, total_due, total_of_tasks, whole, with_due
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.connection import Connection
from drumbeat.store.sqlite.facts import SqliteFacts
from drumbeat.store.sqlite.jobs import nowhere
from drumbeat.store.sqlite.reader import Reader
from drumbeat.store.sqlite.rows import JobRow, as_json
from drumbeat.store.sqlite.search import SqliteSearch
from drumbeat.store.sqlite.statements import InspectSql, JobSql


class SqliteInspect:
    def __init__(
        self, sql: InspectSql, jobs: JobSql, search: SqliteSearch, *, facts: SqliteFacts, reader: Reader, clock: Clock
    ) -> None:
        self._facts = facts
        self._sql = sql
        self._search = search
        self._due = Recent(clock, total_due)
        self._tasks = Recent(clock, total_of_tasks)
        self._jobs = jobs
        self._reader = reader
        self._clock = clock

    async def now(self) -> int:
        return self._clock.now_us()

    async def job(self, id: JobId) -> Job:
        def look(db: Connection) -> tuple[JobRow | None, int | None]:
            return self._find(db, id), db.value(self._jobs.pruned_before)

        found, pruned_before = await self._reader.read(look)
        if found is None:
            raise nowhere(id, pruned_before)
        return found.record()

    async def records(self, ids: Sequence[JobId], *, preview: int | None = None) -> dict[JobId, Job]:
        wanted = {"ids": as_json(list(ids)), "preview": WHOLE if preview is None else preview}

        def look(db: Connection) -> list[JobRow]:
            statements = (self._sql.dead_record, self._sql.history_record, self._sql.live_record)
            return [row for statement in statements for row in rows.jobs(db.value(statement, wanted))]

        return {(job := row.record()).id: job for row in await self._reader.read(look)}

    async def jobs(self, filter: JobFilter) -> list[Job]:
        return await whole(self.page, filter)

    async def page(self, filter: JobFilter) -> JobPage:
        return await self._search.page(filter)

    async def counts(self, filter: JobFilter) -> JobCounts:
        return await self._search.counts(filter)

    async def attempts(self, id: JobId) -> list[Attempt]:
        def look(db: Connection) -> tuple[str, JobRow | None]:
            return db.value(self._sql.attempts, {"id": id}), self._find(db, id)

        text, job = await self._reader.read(look)
        found = [row.record() for row in rows.attempts(text)]
        last = None if job is None else job.last_attempt()
        return found if last is None else [*found, last]

    async def queues(self) -> list[QueueStats]:
        now = {"now": self._clock.now_us()}

        def look(db: Connection) -> tuple[str, str, Due]:
            due = self._due.ask(lambda: rows.due(db.value(self._sql.due, now)))
            return db.value(self._sql.queues, now), db.value(self._sql.pauses), due

        text, pauses, due = await self._reader.read(look)
        paused = {pause.name: pause for pause in rows.pauses(pauses)}
        found: list[QueueStats] = []
        for row in rows.queues(text):
            pause = paused.get(row.name)
            known = QueueStats(
                name=row.name,
                ready=0,
                scheduled=0,
                running=row.running,
                waiting=row.waiting,
                oldest_due=rows.moment_or_none(row.oldest_due),
                paused=pause is not None,
                paused_by=None if pause is None else pause.paused_by,
                paused_why=None if pause is None else pause.paused_why,
                paused_at=None if pause is None else rows.moment(pause.paused_at),
            )
            found.append(with_due(known, due))
        return found

    async def tasks(self) -> list[TaskStats]:
        return await self._tasks.get(self._count_tasks)

    async def _count_tasks(self) -> list[TaskStats]:
        return [row.record() for row in rows.tasks(await self._reader.text(self._sql.tasks, {}))]

    async def instances(self, *, all: bool = False) -> list[Instance]:
        return [row.record() for row in rows.instances(await self._reader.text(self._sql.instances, {"all": all}))]

    async def groups(self, limit: int, *, newest: int = NEWEST) -> list[DeadGroup]:
        text = await self._reader.text(self._sql.groups, {"limit": max(limit, 0), "newest": newest})
        return [row.record() for row in rows.groups(text)]

    async def leader(self) -> LeaderInfo | None:
        wanted = {"now": self._clock.now_us()}
        text = await self._reader.read(lambda db: db.value(self._sql.leader, wanted))
        return None if text is None else rows.leader(text).record()

    async def ahead(self, id: JobId, limit: int = 10_000) -> int:
        def look(db: Connection) -> tuple[JobRow | None, int | None]:
            row = self._find(db, id)
            if row is None:
                return None, db.value(self._jobs.pruned_before)
            return row, self._ahead(db, row, limit)

        found, count = await self._reader.read(look)
        if found is None:
            raise nowhere(id, count)
        return count or 0

    async def facts(self) -> list[Finding]:
        return await self._facts.gather()

    # On the reader's thread.

    def _ahead(self, db: Connection, row: JobRow, limit: int) -> int:
        if row.state is not JobState.PENDING or row.waits_for is not None:
            return 0
        place = {"queue": row.queue, "priority": row.priority, "run_at": row.run_at, "id": row.id}
        count: int = db.value(self._sql.ahead, place | {"now": self._clock.now_us(), "limit": limit})
        return count

    def _find(self, db: Connection, id: JobId) -> JobRow | None:
        wanted = {"ids": as_json([id]), "preview": WHOLE}
        for statement in (self._sql.live_record, self._sql.history_record, self._sql.dead_record):
            if found := rows.jobs(db.value(statement, wanted)):
                return found[0]
        return None
