"""Inserting jobs into the live table of SQLite. Runs on the writer's thread."""

from collections.abc import Iterable, Sequence
from operator import attrgetter

from drumbeat.core.job import AddResult, NewJob
from drumbeat.core.uniqueness import UniqueKeys, select_new, unique_keys
from drumbeat.ids import JobId
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.connection import NULL
from drumbeat.store.sqlite.rows import as_json
from drumbeat.store.sqlite.statements import SqliteJobSql
from drumbeat.store.sqlite.writer import WriteContext

INSERT_WIDTH, INSERT_SIMILAR_WIDTH = 16, 3
MIN_SIMILAR = 8
"""Fewer jobs with common columns are not worth a statement of their own."""
Row = tuple[str | int | None, ...]

# The parameters from ?2 of statement `insert_similar`. The value of an enum by its plain attribute: `.value` is a call.
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


class InsertRows:
    """Rows for one statement: `insert_similar` with the columns in `shared`, else `insert`."""

    __slots__ = ("rows", "shared")

    def __init__(self, rows: Sequence[Row], shared: Row | None = None) -> None:
        self.rows = rows
        self.shared = shared


def group_similar(jobs: Sequence[NewJob]) -> list[InsertRows]:
    """The rows of all jobs, grouped by common columns where that pays."""
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


class SqliteInsertBatch:
    """The jobs of one call, prepared on the caller's thread."""

    __slots__ = ("has_unique", "jobs", "min_delay", "min_run_at", "row_groups")

    def __init__(self, jobs: Sequence[NewJob]) -> None:
        self.jobs = jobs
        self.row_groups = group_similar(jobs)
        self.has_unique = any(job.unique for job in jobs)
        self.min_delay = min((job.delay for job in jobs if job.run_at is None), default=None)
        self.min_run_at = min((job.run_at for job in jobs if job.run_at is not None), default=None)


def insert_row(job: NewJob) -> Row:
    """The columns of statement `insert`."""
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
        # Not the enum, a subclass of str: sqlite3 would look for an adapter each time.
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
        """Store all jobs or none; one result for each."""
        return self._add_unique(write, batch) if batch.has_unique else self._add_plain(write, batch)

    def add_all(self, write: WriteContext, batches: Sequence[SqliteInsertBatch]) -> list[list[AddResult]]:
        """Store the jobs of several calls in one statement, as when a thousand coroutines enqueue one job each."""
        if any(batch.has_unique for batch in batches):
            return [self.add(write, batch) for batch in batches]
        joined = SqliteInsertBatch.__new__(SqliteInsertBatch)
        joined.jobs = [job for batch in batches for job in batch.jobs]
        joined.row_groups = group_similar(joined.jobs)
        joined.min_delay = min((b.min_delay for b in batches if b.min_delay is not None), default=None)
        joined.min_run_at = min((b.min_run_at for b in batches if b.min_run_at is not None), default=None)
        answers = iter(self._add_plain(write, joined))
        return [[next(answers) for _ in batch.jobs] for batch in batches]

    def add_follow_ups(self, write: WriteContext, jobs: Sequence[NewJob]) -> None:
        """Store on_dead jobs, in the transaction that makes their jobs dead."""
        if jobs:
            self.add(write, SqliteInsertBatch(jobs))

    def _add_plain(self, write: WriteContext, batch: SqliteInsertBatch) -> list[AddResult]:
        created = self._insert_rows(write, batch.row_groups)
        if created:
            self._notify(write, batch)
        if created == len(batch.jobs):
            return [AddResult(job.id, True) for job in batch.jobs]
        return self._find_created(write, batch.jobs, created)

    def _insert_rows(self, write: WriteContext, row_groups: Iterable[InsertRows]) -> int:
        created = 0
        for group in row_groups:
            if group.shared is None:
                created += write.db.run_rows(self._sql.insert, INSERT_WIDTH, group.rows, (write.now,))
            else:
                fixed = (write.now, *group.shared)
                created += write.db.run_rows(self._sql.insert_similar, INSERT_SIMILAR_WIDTH, group.rows, fixed)
        return created

    def _find_created(self, write: WriteContext, jobs: Sequence[NewJob], created: int) -> list[AddResult]:
        """The results where some ids existed before: the new rows are the last `created`, with adjacent rowids."""
        new: set[JobId] = set()
        if created:
            new.update(rows.ids(write.db.value(self._sql.inserted_after, {"seq": write.db.last_rowid - created})))
        answers = []
        for job in jobs:
            answers.append(AddResult(job.id, job.id in new))
            new.discard(job.id)
        return answers

    def _add_unique(self, write: WriteContext, batch: SqliteInsertBatch) -> list[AddResult]:
        known = rows.ids(write.db.value(self._sql.known_ids, {"ids": as_json([job.id for job in batch.jobs])}))
        keys = load_unique_keys(self._sql, write, unique_keys(batch.jobs))
        answers, new = select_new(batch.jobs, known, keys)
        if new:
            self._insert_rows(write, group_similar(new))
            self._notify(write, batch)
        return answers

    @staticmethod
    def _notify(write: WriteContext, batch: SqliteInsertBatch) -> None:
        if batch.min_delay is not None:
            write.notify(write.now + batch.min_delay)
        if batch.min_run_at is not None:
            write.notify(batch.min_run_at)


def load_unique_keys(sql: SqliteJobSql, write: WriteContext, keys: Sequence[tuple[str, str]]) -> UniqueKeys:
    if not keys:
        return UniqueKeys()
    found = rows.holders(write.db, sql.unique_holders, {"keys": as_json(keys)})
    return UniqueKeys((each.task, each.key, each.id, each.state) for each in found)
