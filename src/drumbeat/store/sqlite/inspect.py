"""What people look at, on SQLite. The contract is in `store.protocol.Inspect`.

Reads only, on a thread of their own, so that a slow list never keeps a worker's look waiting.
"""

import msgspec

from drumbeat.clock import Clock
from drumbeat.ids import JobId
from drumbeat.model.instance import Instance
from drumbeat.model.job import LIVE, Attempt, Job, JobFilter, JobState, QueueStats, TaskStats
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.connection import Connection
from drumbeat.store.sqlite.jobs import nowhere
from drumbeat.store.sqlite.reader import Reader
from drumbeat.store.sqlite.rows import JobRow, as_json
from drumbeat.store.sqlite.statements import InspectSql, JobSql


class SqliteInspect:
    def __init__(self, sql: InspectSql, jobs: JobSql, *, reader: Reader, clock: Clock) -> None:
        self._sql = sql
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

    async def jobs(self, filter: JobFilter) -> list[Job]:
        found = await self._reader.read(lambda db: self._list(db, filter))
        found.sort(key=lambda row: row.id, reverse=True)
        return [row.record() for row in found[: filter.limit]]

    async def attempts(self, id: JobId) -> list[Attempt]:
        def look(db: Connection) -> tuple[str, JobRow | None]:
            return db.value(self._sql.attempts, {"id": id}), self._find(db, id)

        text, job = await self._reader.read(look)
        found = [row.record() for row in rows.attempts(text)]
        last = None if job is None else job.last_attempt()
        return found if last is None else [*found, last]

    async def queues(self) -> list[QueueStats]:
        now = self._clock.now_us()

        def look(db: Connection) -> tuple[str, str]:
            return db.value(self._sql.queues, {"now": now}), db.value(self._sql.pauses)

        text, pauses = await self._reader.read(look)
        paused = {pause.name: pause for pause in rows.pauses(pauses)}
        found: list[QueueStats] = []
        for row in rows.queues(text):
            pause = paused.get(row.name)
            found.append(
                QueueStats(
                    name=row.name,
                    ready=row.ready,
                    scheduled=row.scheduled,
                    running=row.running,
                    waiting=row.waiting,
                    oldest_due=rows.moment_or_none(row.oldest_due),
                    paused=pause is not None,
                    paused_by=None if pause is None else pause.paused_by,
                    paused_why=None if pause is None else pause.paused_why,
                    paused_at=None if pause is None else rows.moment(pause.paused_at),
                )
            )
        return found

    async def tasks(self) -> list[TaskStats]:
        return [row.record() for row in rows.tasks(await self._reader.text(self._sql.tasks, {}))]

    async def instances(self, *, all: bool = False) -> list[Instance]:
        return [row.record() for row in rows.instances(await self._reader.text(self._sql.instances, {"all": all}))]

    # On the reader's thread.

    def _find(self, db: Connection, id: JobId) -> JobRow | None:
        wanted = {"ids": as_json([id])}
        for statement in (self._sql.live_record, self._sql.history_record, self._sql.dead_record):
            if found := rows.jobs(db.value(statement, wanted)):
                return found[0]
        return None

    def _list(self, db: Connection, filter: JobFilter) -> list[JobRow]:
        """Up to `limit` of each table; whoever asks merges them."""
        parameters = msgspec.structs.asdict(filter)
        parameters["state"] = None if filter.state is None else filter.state.value
        found: list[JobRow] = []
        for listing, record in self._tables(filter):
            found += rows.jobs(db.value(record, {"ids": db.value(listing, parameters)}))
        return found

    def _tables(self, filter: JobFilter) -> list[tuple[str, str]]:
        """(statement that lists ids, statement that gives records) of each table that may hold such jobs."""
        sql, state = self._sql, filter.state
        dead = (sql.dead_list if filter.task is None else sql.dead_list_of_task, sql.dead_record)
        if filter.letters:
            return [dead]
        tables: list[tuple[str, str]] = []
        if state is None or state in LIVE:
            live = sql.live_list_running if state is JobState.RUNNING else sql.live_list
            if filter.task is not None and filter.key is not None:
                live = sql.live_list_of_key
            tables.append((live, sql.live_record))
        if state is None or state not in LIVE:
            tables.append((self._history_listing(filter), sql.history_record))
        if state is None or state is JobState.DEAD:
            tables.append(dead)
        return tables

    def _history_listing(self, filter: JobFilter) -> str:
        if filter.key is not None:
            return self._sql.history_list_of_key
        if filter.state in {JobState.CANCELLED, JobState.DEAD}:
            return self._sql.history_list_not_succeeded
        return self._sql.history_list if filter.task is None else self._sql.history_list_of_task
