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
from drumbeat.store.malformed import Fault
from drumbeat.store.protocol.inspect import NEWEST
from drumbeat.store.records import AttemptRow, JobRow
from drumbeat.store.searching import WHOLE, Due, Recent, total_due, total_of_tasks, whole, with_due
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.connection import Connection
from drumbeat.store.sqlite.facts import SqliteFacts
from drumbeat.store.sqlite.finder import find
from drumbeat.store.sqlite.jobs import nowhere
from drumbeat.store.sqlite.reader import Reader
from drumbeat.store.sqlite.rows import PauseRow, QueueRow, as_json
from drumbeat.store.sqlite.search import SqliteSearch
from drumbeat.store.sqlite.statements import InspectSql, JobSql, MalformedSql


class SqliteInspect:
    def __init__(
        self,
        sql: InspectSql,
        jobs: JobSql,
        malformed: MalformedSql,
        search: SqliteSearch,
        *,
        facts: SqliteFacts,
        reader: Reader,
        clock: Clock,
    ) -> None:
        self._malformed = malformed
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
            return [row for statement in statements for row in rows.jobs(db, statement, wanted)]

        return {(job := row.record()).id: job for row in await self._reader.read(look)}

    async def jobs(self, filter: JobFilter) -> list[Job]:
        return await whole(self.page, filter)

    async def page(self, filter: JobFilter) -> JobPage:
        return await self._search.page(filter)

    async def counts(self, filter: JobFilter) -> JobCounts:
        return await self._search.counts(filter)

    async def attempts(self, id: JobId) -> list[Attempt]:
        def look(db: Connection) -> tuple[list[AttemptRow], JobRow | None]:
            return rows.attempts(db, self._sql.attempts, {"id": id}), self._find(db, id)

        tries, job = await self._reader.read(look)
        found = [row.record() for row in tries]
        last = None if job is None else job.last_attempt()
        return found if last is None else [*found, last]

    async def queues(self) -> list[QueueStats]:
        now = {"now": self._clock.now_us()}

        def look(db: Connection) -> tuple[list[QueueRow], list[PauseRow], Due]:
            due = self._due.ask(lambda: self._count_due(db, now))
            return rows.queues(db, self._sql.queues, now), rows.pauses(db, self._sql.pauses), due

        queues, pauses, due = await self._reader.read(look)
        paused = {pause.name: pause for pause in pauses}
        found: list[QueueStats] = []
        for row in queues:
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
        return [row.record() for row in await self._reader.read(lambda db: rows.tasks(db, self._sql.tasks))]

    async def instances(self, *, all: bool = False) -> list[Instance]:
        found = await self._reader.read(lambda db: rows.instances(db, self._sql.instances, {"all": all}))
        return [row.record() for row in found]

    async def groups(self, limit: int, *, newest: int = NEWEST) -> list[DeadGroup]:
        wanted = {"limit": max(limit, 0), "newest": newest}
        return [row.record() for row in await self._reader.read(lambda db: rows.groups(db, self._sql.groups, wanted))]

    async def leader(self) -> LeaderInfo | None:
        wanted = {"now": self._clock.now_us()}
        found = await self._reader.read(lambda db: rows.leaders(db, self._sql.leader, wanted))
        return found[0].record() if found else None

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

    async def malformed(self, limit: int = 1_000) -> list[Fault]:
        return await self._reader.read(lambda db: find(db, self._malformed, limit))

    async def facts(self) -> list[Finding]:
        return await self._facts.gather()

    # On the reader's thread.

    def _count_due(self, db: Connection, now: dict[str, int]) -> Due:
        return {row.queue: (row.ready, row.scheduled) for row in rows.due(db, self._sql.due, now)}

    def _ahead(self, db: Connection, row: JobRow, limit: int) -> int:
        if row.state is not JobState.PENDING or row.waits_for is not None:
            return 0
        place = {"queue": row.queue, "priority": row.priority, "run_at": row.run_at, "id": row.id}
        count: int = db.value(self._sql.ahead, place | {"now": self._clock.now_us(), "limit": limit})
        return count

    def _find(self, db: Connection, id: JobId) -> JobRow | None:
        wanted = {"ids": as_json([id]), "preview": WHOLE}
        for statement in (self._sql.live_record, self._sql.history_record, self._sql.dead_record):
            if found := rows.jobs(db, statement, wanted):
                return found[0]
        return None
