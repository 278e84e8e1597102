"""How jobs get into the live table: new ones, follow-ups, and the rule of unique keys. Runs on the writer's thread."""

from collections.abc import Iterable, Sequence
from operator import attrgetter

from drumbeat.ids import JobId
from drumbeat.model.job import Added, JobState, NewJob, Unique
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.connection import NULL
from drumbeat.store.sqlite.rows import as_json
from drumbeat.store.sqlite.statements import JobSql
from drumbeat.store.sqlite.writer import Write

WIDTH, WIDTH_ALIKE = 16, 3
# Fewer than so many of a kind are not worth a statement of their own.
ALIKE = 8
Row = tuple[str | int | None, ...]

# The parameters ?2 and on of statement `add_alike`. An enum's value by its plain attribute: `.value` is a call.
_in_common = attrgetter(
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


class Piece:
    """Rows for one statement: of `add_alike` if there is something in common, else of `add`."""

    __slots__ = ("common", "rows")

    def __init__(self, rows: Sequence[Row], common: Row | None = None) -> None:
        self.rows = rows
        self.common = common


def pieces(jobs: Sequence[NewJob]) -> list[Piece]:
    """All jobs, those that differ little together."""
    if len(jobs) < ALIKE:
        return [Piece([row(job) for job in jobs])]
    groups: dict[Row, list[Row]] = {}
    last: Row | None = None
    for job, common in zip(jobs, map(_in_common, jobs), strict=True):
        if common != last:
            last, group = common, groups.setdefault(common, [])
        group.append((job.id, job.args, job.key or NULL))
    if len(groups) * ALIKE > len(jobs):
        return [Piece([row(job) for job in jobs])]
    return [Piece(group, common) for common, group in groups.items()]


class Batch:
    """Jobs of one call, made ready on the caller's thread."""

    __slots__ = ("jobs", "pieces", "soonest_at", "soonest_in", "unique")

    def __init__(self, jobs: Sequence[NewJob]) -> None:
        self.jobs = jobs
        self.pieces = pieces(jobs)
        self.unique = any(job.unique for job in jobs)
        self.soonest_in = min((job.delay for job in jobs if job.run_at is None), default=None)
        self.soonest_at = min((job.run_at for job in jobs if job.run_at is not None), default=None)


def row(job: NewJob) -> Row:
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


class Adding:
    def __init__(self, sql: JobSql) -> None:
        self._sql = sql

    def add(self, write: Write, batch: Batch) -> list[Added]:
        """All or none; one answer for each."""
        return self._add_unique(write, batch) if batch.unique else self._add_plain(write, batch)

    def add_all(self, write: Write, batches: Sequence[Batch]) -> list[list[Added]]:
        """Several calls in one statement: those of a thousand coroutines that each enqueue one job."""
        if any(batch.unique for batch in batches):
            return [self.add(write, batch) for batch in batches]
        joined = Batch.__new__(Batch)
        joined.jobs = [job for batch in batches for job in batch.jobs]
        joined.pieces = pieces(joined.jobs)
        joined.soonest_in = min((b.soonest_in for b in batches if b.soonest_in is not None), default=None)
        joined.soonest_at = min((b.soonest_at for b in batches if b.soonest_at is not None), default=None)
        answers = iter(self._add_plain(write, joined))
        return [[next(answers) for _ in batch.jobs] for batch in batches]

    def follow(self, write: Write, jobs: Sequence[NewJob]) -> None:
        """The follow-ups of deaths, in the step that makes the jobs dead."""
        if jobs:
            self.add(write, Batch(jobs))

    def _add_plain(self, write: Write, batch: Batch) -> list[Added]:
        created = self._insert(write, batch.pieces)
        if created:
            self._ring(write, batch)
        if created == len(batch.jobs):
            return [Added(job.id, True) for job in batch.jobs]
        return self._answers(write, batch.jobs, created)

    def _insert(self, write: Write, pieces: Iterable[Piece]) -> int:
        created = 0
        for piece in pieces:
            if piece.common is None:
                created += write.db.run_rows(self._sql.add, WIDTH, piece.rows, (write.now,))
            else:
                fixed = (write.now, *piece.common)
                created += write.db.run_rows(self._sql.add_alike, WIDTH_ALIKE, piece.rows, fixed)
        return created

    def _answers(self, write: Write, jobs: Sequence[NewJob], created: int) -> list[Added]:
        """Some ids were there before; the new rows are the last ones, in one piece."""
        new: set[JobId] = set()
        if created:
            new.update(rows.ids(write.db.value(self._sql.added_after, {"seq": write.db.last_inserted - created})))
        answers = []
        for job in jobs:
            answers.append(Added(job.id, job.id in new))
            new.discard(job.id)
        return answers

    def _add_unique(self, write: Write, batch: Batch) -> list[Added]:
        known = set(rows.ids(write.db.value(self._sql.known, {"ids": as_json([job.id for job in batch.jobs])})))
        keys = Keys(self._sql, write, ((job.task, job.key) for job in batch.jobs if job.unique and job.key is not None))
        answers: list[Added] = []
        new: list[NewJob] = []
        for job in batch.jobs:
            holder = None if job.id in known else keys.holder(job.task, job.key, job.unique)
            if job.id in known or holder is not None:
                answers.append(Added(holder or job.id, False))
                continue
            known.add(job.id)
            keys.take(job.task, job.key, job.unique, job.id)
            new.append(job)
            answers.append(Added(job.id, True))
        if new:
            self._insert(write, pieces(new))
            self._ring(write, batch)
        return answers

    @staticmethod
    def _ring(write: Write, batch: Batch) -> None:
        if batch.soonest_in is not None:
            write.ring(write.now + batch.soonest_in)
        if batch.soonest_at is not None:
            write.ring(batch.soonest_at)


class Keys:
    """Who holds which unique key at this moment of the transaction, and who takes one in it."""

    def __init__(self, sql: JobSql, write: Write, keys: Iterable[tuple[str, str]]) -> None:
        wanted = list(dict.fromkeys(keys))
        self._holders: dict[tuple[str, str], list[tuple[JobId, JobState]]] = {}
        if wanted:
            for found in rows.holders(write.db, sql.holders, {"keys": as_json(wanted)}):
                self._holders.setdefault((found.task, found.key), []).append((found.id, found.state))

    def holder(self, task: str, key: str | None, unique: Unique) -> JobId | None:
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
