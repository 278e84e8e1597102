"""How jobs get into the live table: new ones, follow-ups, and the rule of unique keys. Runs on the writer's thread."""

from collections.abc import Iterable, Sequence
from operator import attrgetter

import msgspec

from drumbeat.core.job import AddResult, JobState, NewJob, Unique
from drumbeat.ids import JobId
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.connection import NULL
from drumbeat.store.sqlite.rows import as_json
from drumbeat.store.sqlite.statements import SqliteJobSql
from drumbeat.store.sqlite.writer import WriteContext

INSERT_WIDTH, INSERT_SIMILAR_WIDTH = 16, 3
# Fewer than so many of a kind are not worth a statement of their own.
MIN_SIMILAR = 8
Row = tuple[str | int | None, ...]

# The parameters ?2 and on of statement `add_alike`. An enum's value by its plain attribute: `.value` is a call.
_shared_columns = attrgetter(
    "task",
    "queue",
    "signature",
    "priority",
    "run_at",
    "delay",
    "unique._value_",
    "retries",
    "timeout",
    "crash_limit",
    "on_dead",
    "tenant",
    "trace",
)


class InsertRows(msgspec.Struct, frozen=True):
    """Rows for one statement: `insert_similar` if they share columns, else `insert`."""

    rows: Sequence[Row]
    shared: Row | None = None


def group_similar(jobs: Sequence[NewJob]) -> list[InsertRows]:
    """The rows of all jobs, those with equal shared columns together."""
    if len(jobs) < MIN_SIMILAR:
        return [InsertRows([insert_row(job) for job in jobs])]
    groups: dict[Row, list[Row]] = {}
    last: Row | None = None
    for job, common in zip(jobs, map(_shared_columns, jobs), strict=True):
        if common != last:
            last, group = common, groups.setdefault(common, [])
        group.append((job.id, job.args, job.key or NULL))
    if len(groups) * MIN_SIMILAR > len(jobs):
        return [InsertRows([insert_row(job) for job in jobs])]
    return [InsertRows(group, common) for common, group in groups.items()]


class SqliteInsertBatch(msgspec.Struct, frozen=True):
    """The jobs of one call, with the rows of many: grouped before the write lock is taken."""

    jobs: Sequence[NewJob]
    row_groups: Sequence[InsertRows] | None = None


def insert_row(job: NewJob) -> Row:
    """The columns of statement `add`."""
    return (
        job.id,
        job.task,
        job.queue,
        job.args,
        job.signature,
        job.priority,
        NULL if job.run_at is None else job.run_at,
        job.delay,
        job.key or NULL,
        # An enum is a str, but not exactly one: sqlite3 would look for an adapter each time.
        job.unique.value if job.unique else "",
        NULL if job.retries is None else job.retries,
        NULL if job.timeout is None else job.timeout,
        job.crash_limit,
        job.on_dead or NULL,
        job.tenant,
        job.trace or NULL,
    )


class SqliteInserter:
    def __init__(self, sql: SqliteJobSql) -> None:
        self._sql = sql

    def add(self, write: WriteContext, batch: SqliteInsertBatch) -> list[AddResult]:
        """Insert all or none; one answer for each."""
        jobs, now = batch.jobs, write.now
        if any(job.unique for job in jobs):
            answers = self._add_unique(write, batch)
        else:
            if batch.row_groups is None and len(jobs) < MIN_SIMILAR:
                created = write.db.run_rows(self._sql.insert, INSERT_WIDTH, [insert_row(job) for job in jobs], (now,))
            else:
                created = self._insert_rows(write, batch.row_groups or group_similar(jobs))
            if created == len(jobs):
                answers = [AddResult(job.id, True) for job in jobs]
            else:
                answers = self._find_created(write, jobs, created)
        if any(answer.created for answer in answers):
            write.notify(min(now + job.delay if job.run_at is None else job.run_at for job in jobs))
        return answers

    def add_all(self, write: WriteContext, batches: Sequence[SqliteInsertBatch]) -> list[list[AddResult]]:
        """Insert several calls by one statement: those of a thousand coroutines that each enqueue one job."""
        jobs = [job for batch in batches for job in batch.jobs]
        if any(job.unique for job in jobs):
            return [self.add(write, batch) for batch in batches]
        answers = iter(self.add(write, SqliteInsertBatch(jobs)))
        return [[next(answers) for _ in batch.jobs] for batch in batches]

    def add_follow_ups(self, write: WriteContext, jobs: Sequence[NewJob]) -> None:
        """The follow-ups of deaths, in the step that makes the jobs dead."""
        if jobs:
            self.add(write, SqliteInsertBatch(jobs))

    def _insert_rows(self, write: WriteContext, row_groups: Iterable[InsertRows]) -> int:
        created = 0
        for piece in row_groups:
            if piece.shared is None:
                created += write.db.run_rows(self._sql.insert, INSERT_WIDTH, piece.rows, (write.now,))
            else:
                fixed = (write.now, *piece.shared)
                created += write.db.run_rows(self._sql.insert_similar, INSERT_SIMILAR_WIDTH, piece.rows, fixed)
        return created

    def _find_created(self, write: WriteContext, jobs: Sequence[NewJob], created: int) -> list[AddResult]:
        """Some ids were there before; the new rows are the last ones, in one piece."""
        new: set[JobId] = set()
        if created:
            new.update(rows.ids(write.db.value(self._sql.inserted_after, {"seq": write.db.last_rowid - created})))
        answers = []
        for job in jobs:
            answers.append(AddResult(job.id, job.id in new))
            new.discard(job.id)
        return answers

    def _add_unique(self, write: WriteContext, batch: SqliteInsertBatch) -> list[AddResult]:
        known = set(rows.ids(write.db.value(self._sql.known_ids, {"ids": as_json([job.id for job in batch.jobs])})))
        keys = SqliteUniqueKeys(
            self._sql, write, ((job.task, job.key) for job in batch.jobs if job.unique and job.key is not None)
        )
        answers: list[AddResult] = []
        new: list[NewJob] = []
        for job in batch.jobs:
            holder = None if job.id in known else keys.find_holder(job.task, job.key, job.unique)
            if job.id in known or holder is not None:
                answers.append(AddResult(holder or job.id, False))
                continue
            known.add(job.id)
            keys.take(job.task, job.key, job.unique, job.id)
            new.append(job)
            answers.append(AddResult(job.id, True))
        if new:
            self._insert_rows(write, group_similar(new))
        return answers


class SqliteUniqueKeys:
    """Who holds which unique key at this moment of the transaction, and who takes one in it."""

    def __init__(self, sql: SqliteJobSql, write: WriteContext, keys: Iterable[tuple[str, str]]) -> None:
        wanted = list(dict.fromkeys(keys))
        self._holders: dict[tuple[str, str], list[tuple[JobId, JobState]]] = {}
        if wanted:
            for found in rows.holders(write.db, sql.unique_holders, {"keys": as_json(wanted)}):
                self._holders.setdefault((found.task, found.key), []).append((found.id, found.state))

    def find_holder(self, task: str, key: str | None, unique: Unique) -> JobId | None:
        """The live unique job that makes a new one of this kind unnecessary: for Unique.PENDING only a pending one."""
        if key is None or not unique:
            return None
        found = [
            id for id, state in self._holders.get((task, key), ()) if unique is Unique.LIVE or state is JobState.PENDING
        ]
        return min(found, default=None)

    def take(self, task: str, key: str | None, unique: Unique, id: JobId) -> None:
        if key is not None and unique:
            self._holders.setdefault((task, key), []).append((id, JobState.PENDING))
