"""How jobs get into the live table: new ones, follow-ups, and the rule of unique keys. Runs on the writer's thread."""

from collections.abc import Iterable, Sequence
from operator import attrgetter

from drumbeat.core.job import AddResult, JobState, NewJob, Unique
from drumbeat.ids import JobId
from drumbeat.store.job_columns import NEW
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.connection import NULL
from drumbeat.store.sqlite.rows import as_json
from drumbeat.store.sqlite.statements import ROW_COLUMNS, SHARED_COLUMNS, SqliteJobSql
from drumbeat.store.sqlite.writer import WriteContext

INSERT_WIDTH, INSERT_SIMILAR_WIDTH = len(NEW), len(ROW_COLUMNS)
# Fewer than so many of a kind are not worth a statement of their own.
MIN_SIMILAR = 8
Row = tuple[str | int | None, ...]

_VALUES = tuple("unique._value_" if name == "unique" else name for name in NEW)
"""An enum's value by its plain attribute: `.value` is a call; and sqlite3 would look for an adapter of an enum."""
_all_columns = attrgetter(*_VALUES)
_shared_columns = attrgetter(*(_VALUES[NEW.index(name)] for name in SHARED_COLUMNS))


class InsertRows:
    """Rows for one statement: of `insert_similar` if they share values, else of `insert`."""

    __slots__ = ("rows", "shared")

    def __init__(self, rows: Sequence[Row], shared: Row | None = None) -> None:
        self.rows = rows
        self.shared = shared


def group_similar(jobs: Sequence[NewJob]) -> list[InsertRows]:
    """All jobs, those that differ little together."""
    if len(jobs) < MIN_SIMILAR:
        return [InsertRows([insert_row(job) for job in jobs])]
    groups: dict[Row, list[Row]] = {}
    last: Row | None = None
    for job, common in zip(jobs, map(_shared_columns, jobs), strict=True):
        if common != last:
            last, group = common, groups.setdefault(common, [])
        group.append((job.id, job.args, NULL if job.key is None else job.key))
    if len(groups) * MIN_SIMILAR > len(jobs):
        return [InsertRows([insert_row(job) for job in jobs])]
    return [InsertRows(group, common) for common, group in groups.items()]


class SqliteInsertBatch:
    """Jobs of one call, made ready on the caller's thread."""

    __slots__ = ("has_unique", "jobs", "min_delay", "min_run_at", "row_groups")

    def __init__(self, jobs: Sequence[NewJob]) -> None:
        self.jobs = jobs
        self.row_groups = group_similar(jobs)
        self.has_unique = any(job.unique for job in jobs)
        self.min_delay = min((job.delay for job in jobs if job.run_at is None), default=None)
        self.min_run_at = min((job.run_at for job in jobs if job.run_at is not None), default=None)


def insert_row(job: NewJob) -> Row:
    """The columns of statement `insert`."""
    return tuple([NULL if value is None else value for value in _all_columns(job)])


class SqliteInserter:
    def __init__(self, sql: SqliteJobSql) -> None:
        self._sql = sql

    def add(self, write: WriteContext, batch: SqliteInsertBatch) -> list[AddResult]:
        """All or none; one answer for each."""
        return self._add_unique(write, batch) if batch.has_unique else self._add_plain(write, batch)

    def add_all(self, write: WriteContext, batches: Sequence[SqliteInsertBatch]) -> list[list[AddResult]]:
        """Several calls in one statement: those of a thousand coroutines that each enqueue one job."""
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
        """The follow-ups of deaths, in the step that makes the jobs dead."""
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
            self._notify(write, batch)
        return answers

    @staticmethod
    def _notify(write: WriteContext, batch: SqliteInsertBatch) -> None:
        if batch.min_delay is not None:
            write.notify(write.now + batch.min_delay)
        if batch.min_run_at is not None:
            write.notify(batch.min_run_at)


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
