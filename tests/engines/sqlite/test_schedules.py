"""Schedules by their plans, and by what a look costs behind a hundred thousand of them."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from drumbeat.store.sqlite import SqliteStore, schema
from drumbeat.store.sqlite.connection import SqliteConnection
from drumbeat.store.sqlite.statements import SQL
from tests.contract.making import claim, worker
from tests.contract.scheduling import after, fire, got, new_schedule, put

MANY = 100_000
NOW = 1_800_000_000_000_000
NAMES = (
    "names",
    "fire_times",
    "jobs",
    "records",
    "advanced",
    "name",
    "before",
    "limit",
    "now",
    "old",
    "silent_since",
    "after",
)
FILL = """
INSERT INTO drumbeat_schedule (name, task, kind, rule, queue, args, signature, tz, priority, crash_limit, catch_up,
                               catch_up_limit, overlap, jitter, origin, app, version, every, state, revision, next_at,
                               current, created_at, changed_at, declared_at, changed_by, reason)
VALUES (?, 'noop', 'grid', '1', 'default', '{}', 's', 'UTC', 5, 3, 'latest', 100, 'skip', 0, 'code', 'a', '1', ?, 'active',
        1, ?, NULL, 1, 1, 99, '', '')"""


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("empty") / "schedules.db"
    db = SqliteConnection(path, read_only=False)
    schema.upgrade(db, "drumbeat")
    db.close()
    return path


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100,000 schedules, half of them series, and none is due."""
    path = tmp_path_factory.mktemp("filled") / "schedules.db"
    db = SqliteConnection(path, read_only=False)
    schema.upgrade(db, "drumbeat")
    db.close()
    raw = sqlite3.connect(path)
    rows = ((f"s{number:06}", number if number % 2 else None, NOW + 1 + number) for number in range(1, MANY + 1))
    raw.executemany(FILL, rows)
    raw.execute("ANALYZE")
    raw.commit()
    raw.close()
    return path


@pytest.fixture(params=["empty", "filled"])
def raw(request: pytest.FixtureRequest) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(request.getfixturevalue(request.param))
    yield connection
    connection.close()


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        (SQL.schedules.due, "drumbeat_schedule_by_next_at (next_at>? AND next_at<?)"),
        (SQL.schedules.next_at, "drumbeat_schedule_by_next_at (next_at>? AND next_at<?)"),
        (SQL.schedules.shortest_interval, "drumbeat_schedule_running"),
        (SQL.schedules.stalled, "drumbeat_schedule_running"),
        (SQL.schedules.snapshots, "plan USING INDEX sqlite_autoindex_drumbeat_schedule_1 (name=?)"),
        (SQL.schedules.snapshots, "drumbeat_job_blocked (blocked_on=?)"),
        (SQL.schedules.recorded_fires, "fire USING PRIMARY KEY (schedule=? AND at=? AND skipped=?)"),
        (SQL.schedules.insert_jobs, "plan USING INDEX sqlite_autoindex_drumbeat_schedule_1 (name=?)"),
        (SQL.schedules.advance, "drumbeat_schedule USING INDEX sqlite_autoindex_drumbeat_schedule_1 (name=?)"),
        (SQL.schedules.promote_next, "drumbeat_job_blocked_since (blocked_on=? AND blocked_since>?)"),
        (SQL.schedules.orphaned, "(blocked_on>? AND blocked_on<?)"),
        (SQL.schedules.fires, "PRIMARY KEY (schedule=? AND at<?)"),
        (SQL.schedules.has_old_fires, "drumbeat_fire_by_age (last<?)"),
        (SQL.schedules.delete_fires, "drumbeat_fire_by_age (last<?)"),
        (SQL.schedules.has_undeclared, "drumbeat_schedule_of_code (declared_at<?)"),
    ],
)
def test_statements_use_their_index(raw: sqlite3.Connection, statement: str, index: str) -> None:
    steps = [row[3] for row in raw.execute(f"EXPLAIN QUERY PLAN {statement}", dict.fromkeys(NAMES))]
    assert any(index in step for step in steps), steps


@pytest.mark.parametrize(
    "statement",
    [
        SQL.schedules.due,
        SQL.schedules.next_at,
        SQL.schedules.shortest_interval,
        SQL.schedules.fires,
        SQL.schedules.promote_next,
    ],
)
def test_nothing_is_sorted(raw: sqlite3.Connection, statement: str) -> None:
    steps = [row[3] for row in raw.execute(f"EXPLAIN QUERY PLAN {statement}", dict.fromkeys(NAMES))]
    assert not any("TEMP B-TREE" in step for step in steps), steps


def test_a_look_behind_100_000_schedules_that_are_not_due_costs_what_it_costs_behind_none(
    filled: Path, empty: Path
) -> None:
    """Counted in SQLite's own steps, so that a busy machine does not matter."""

    def cost(path: Path) -> int:
        raw = sqlite3.connect(path, isolation_level=None)
        count = 0

        def tick() -> int:
            nonlocal count
            count += 1
            return 0

        raw.set_progress_handler(tick, 10)
        given = {"now": NOW, "limit": 200, "silent_since": 50, "id": "me"}
        for statement in (
            *(SQL.schedules.due, SQL.schedules.next_at, SQL.schedules.shortest_interval, SQL.schedules.stalled),
            *(SQL.schedules.orphaned, SQL.schedules.has_undeclared, SQL.instances.heartbeat_reply),
        ):
            raw.execute(statement, given).fetchall()
        raw.close()
        return count

    assert cost(filled) < cost(empty) + 50


async def test_a_job_that_another_program_deletes_frees_its_schedule_and_the_sweep_sets_the_next_fire(
    sqlite: SqliteStore, path: Path
) -> None:
    """A trigger does not know the store's clock, so only the store sets the next fire of an interval."""
    await put(sqlite, after())
    await fire(sqlite, "sweep", 10)
    me = await worker(sqlite)
    [job] = await claim(sqlite, me)
    raw = sqlite3.connect(path)
    columns = "id, task, queue, state, priority, args, signature, created_at, due_at, run_at, token, finished_at"
    raw.execute(
        f"INSERT INTO drumbeat_history ({columns}) SELECT {columns.rpartition(', ')[0]}, 1000 FROM drumbeat_job"
    )
    raw.execute("DELETE FROM drumbeat_job WHERE id = ?", (job.id,))
    raw.commit()
    raw.close()
    found = await got(sqlite, "sweep")
    assert (found.current, found.next_at) == (None, None)
    before = await sqlite.inspect.now()
    assert await sqlite.schedules.advance_stalled() == 1
    found = await got(sqlite, "sweep")
    assert found.current is None and found.next_at is not None and found.next_at >= before


async def test_a_series_whose_job_vanished_is_set_going_by_the_sweep(sqlite: SqliteStore, path: Path) -> None:
    await put(sqlite, after())
    await fire(sqlite, "sweep", 10)
    raw = sqlite3.connect(path)
    raw.execute("UPDATE drumbeat_job SET schedule = NULL")
    raw.execute("DELETE FROM drumbeat_job")
    raw.commit()
    raw.close()
    assert await sqlite.schedules.advance_stalled() == 1
    assert (await got(sqlite, "sweep")).next_at is not None


async def test_a_series_with_an_end_whose_job_was_deleted_is_set_going_by_the_sweep(
    sqlite: SqliteStore, path: Path
) -> None:
    """The trigger of the schema clears `current`."""
    await put(sqlite, after(end=await sqlite.inspect.now() + 3_600_000_000))
    await fire(sqlite, "sweep", 10)
    raw = sqlite3.connect(path)
    raw.execute("DELETE FROM drumbeat_job")
    raw.commit()
    raw.close()
    found = await got(sqlite, "sweep")
    assert (found.current, found.next_at) == (None, None)
    assert await sqlite.schedules.advance_stalled() == 1
    assert (await got(sqlite, "sweep")).next_at is not None


async def test_a_second_job_for_a_fire_time_is_refused_by_the_table_itself(sqlite: SqliteStore, path: Path) -> None:
    """Two leaders that both fire: whatever their code believes, one of them rolls back."""
    await put(sqlite, new_schedule())
    await fire(sqlite, "nightly", 10)
    with closing(sqlite3.connect(path)) as raw, pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        raw.execute("INSERT INTO drumbeat_fire SELECT * FROM drumbeat_fire")
