"""Inserting jobs into the live table of SQLite. Runs on the writer's thread."""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import cast

import msgspec

from drumbeat.core.job import AddResult, NewJob
from drumbeat.core.lanes import split_lane
from drumbeat.core.uniqueness import UniqueKeys, select_new, unique_keys
from drumbeat.ids import JobId
from drumbeat.store.job_columns import NEW, attribute_path
from drumbeat.store.records import as_json
from drumbeat.store.sqlfile import Statements
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.connection import NULL
from drumbeat.store.sqlite.statements import (
    NODE_COLUMNS,
    NULLABLE_COLUMNS,
    REQUIRED_COLUMNS,
    ROW_COLUMNS,
    SHARED_COLUMNS,
)
from drumbeat.store.sqlite.writer import WriteContext

INSERT_WIDTH, INSERT_SIMILAR_WIDTH = len(NEW), len(ROW_COLUMNS)
_LANE_WIDTH = 5
MIN_SIMILAR = 8
"""Fewer jobs with common columns are not worth a statement of their own."""
Row = tuple[str | int | None, ...]

_required_values = attrgetter(*map(attribute_path, REQUIRED_COLUMNS))
_nullable_values = attrgetter(*NULLABLE_COLUMNS)
_shared_values = attrgetter(*map(attribute_path, SHARED_COLUMNS))
_UNIQUE, _RUN_AT, _LANE = attrgetter("unique"), attrgetter("run_at"), attrgetter("lane")
_read_lines = msgspec.json.Decoder(list[tuple[str, str]]).decode
_DELAY: "attrgetter[int]" = attrgetter("delay")


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
    for job, common in zip(jobs, map(_shared_values, jobs), strict=True):
        if common != last:
            last, group = common, groups.setdefault(common, [])
        group.append((job.id, job.args, NULL if job.key is None else job.key))
    if len(groups) * MIN_SIMILAR > len(jobs):
        return [InsertRows([insert_row(job) for job in jobs])]
    return [InsertRows(group, common) for common, group in groups.items()]


class SqliteInsertBatch(msgspec.Struct, frozen=True):
    """The jobs of one call, with the rows of many: grouped before the write lock is taken."""

    jobs: Sequence[NewJob]
    row_groups: Sequence[InsertRows] | None = None


def insert_row(job: NewJob) -> Row:
    """The columns of statement `insert`."""
    return (*_required_values(job), *[NULL if value is None else value for value in _nullable_values(job)])


class SqliteInserter:
    def __init__(self, sql: Statements, limits: Statements) -> None:
        self._sql = sql
        self._limits = limits

    def add(self, write: WriteContext, batch: SqliteInsertBatch) -> list[AddResult]:
        """Insert all or none; one answer for each."""
        jobs, now = batch.jobs, write.now
        if any(map(_UNIQUE, jobs)):
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
        if any(map(_LANE, jobs)):
            self._enter_lanes(write, [job for job in jobs if job.lane])
        if any(answer.created for answer in answers):
            if set(map(_RUN_AT, jobs)) == {None}:
                write.notify(now + min(map(_DELAY, jobs)))
            else:
                write.notify(min(now + job.delay if job.run_at is None else job.run_at for job in jobs))
        return answers

    def add_all(self, write: WriteContext, batches: Sequence[SqliteInsertBatch]) -> list[list[AddResult]]:
        """Insert several calls by one statement: those of a thousand coroutines that each enqueue one job."""
        jobs = [job for batch in batches for job in batch.jobs]
        if any(map(_UNIQUE, jobs)):
            return [self.add(write, batch) for batch in batches]
        answers = iter(self.add(write, SqliteInsertBatch(jobs)))
        return [[next(answers) for _ in batch.jobs] for batch in batches]

    def add_follow_ups(self, write: WriteContext, jobs: Sequence[NewJob]) -> None:
        """Store on_dead and on_success jobs, in the transaction that ends their jobs."""
        if jobs:
            self.add(write, SqliteInsertBatch(jobs))

    def add_nodes(self, write: WriteContext, jobs: Sequence[NewJob], nodes: Mapping[JobId, Row]) -> None:
        """Insert jobs that are new, and of whose keys none is held. `nodes`: open_parents, is_parent and binds of those that
        have parents or children."""
        plain = [job for job in jobs if job.id not in nodes]
        if plain:
            self._insert_rows(write, group_similar(plain))
        for group in group_similar([job for job in jobs if job.id in nodes]):
            inserted = [(*row, *nodes[cast("JobId", row[0])]) for row in group.rows]
            statement, width = self._sql.insert_nodes, INSERT_WIDTH
            fixed: Row = (write.now,)
            if group.shared is not None:
                statement, width = self._sql.insert_similar_nodes, INSERT_SIMILAR_WIDTH
                fixed = (write.now, *group.shared)
            write.db.run_rows(statement, width + len(NODE_COLUMNS), inserted, fixed)
        if any(map(_LANE, jobs)):
            self._enter_lanes(write, [job for job in jobs if job.lane])

    def enter_lanes(self, write: WriteContext, ids: Sequence[JobId]) -> None:
        """These jobs are live again: those that are pending enter their lanes."""
        facts = {"ids": as_json(ids), "now": write.now}
        write.db.run(self._limits.set_places, facts)
        write.db.run(self._limits.enter_lanes, facts)

    def _enter_lanes(self, write: WriteContext, jobs: Sequence[NewJob]) -> None:
        """As `enter_lanes` for jobs that are new. One that was not inserted after all costs its lane a look."""
        heads: dict[tuple[str, str], tuple[int, int]] = {}
        for job in jobs:
            place = (job.queue, job.lane)
            run_at = write.now + job.delay if job.run_at is None else job.run_at
            head_at, levels = heads.get(place, (run_at, 0))
            heads[place] = (min(head_at, run_at), levels | 1 << job.priority)
        entered = [(*place, split_lane(place[1])[0], *head) for place, head in heads.items()]
        write.db.run_rows(self._limits.enter_new_lanes, _LANE_WIDTH, entered, (write.now,))
        ordered = set(_read_lines(write.db.value(self._limits.ordered_lines)))
        if placed := [job.id for job in jobs if (job.queue, split_lane(job.lane)[0]) in ordered]:
            write.db.run(self._limits.set_places, {"ids": as_json(placed), "now": write.now})

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
        return answers


def load_unique_keys(sql: Statements, write: WriteContext, keys: Sequence[tuple[str, str]]) -> UniqueKeys:
    if not keys:
        return UniqueKeys()
    found = rows.holders(write.db, sql.unique_holders, {"keys": as_json(keys)})
    return UniqueKeys((each.task, each.key, each.id, each.state) for each in found)
