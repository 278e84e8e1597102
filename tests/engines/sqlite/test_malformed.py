"""Damaged rows on the paths that only SQLite has: one JSON text for all rows, and row by row when that cannot be made."""

import sqlite3
from contextlib import closing
from pathlib import Path

from drumbeat.core.job import CancelAnswer
from drumbeat.store.sqlite import SqliteStore
from tests.contract.making import add, claim, new_job, worker


def run_raw(path: Path, statement: str, *parameters: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement, parameters)


def count_running(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        [[count]] = db.execute("SELECT count(*) FROM drumbeat_job WHERE state = 'running'")
    return int(count)


async def test_jobs_without_a_valid_due_time_are_claimed_up_to_the_limit(sqlite: SqliteStore, path: Path) -> None:
    instance = await worker(sqlite)
    await add(sqlite, *(new_job() for _ in range(3)))
    run_raw(path, "UPDATE drumbeat_job SET run_at = 'soon'")
    await claim(sqlite, instance, limit=1)
    assert count_running(path) == 1
    await claim(sqlite, instance, limit=2)
    assert count_running(path) == 3


async def test_a_damaged_state_does_not_change_what_is_told_of_the_other_jobs(sqlite: SqliteStore, path: Path) -> None:
    """SQLite makes no JSON of a blob, so the states are read row by row."""
    bad, good = await add(sqlite, new_job(), new_job())
    run_raw(path, "UPDATE drumbeat_job SET state = x'ff' WHERE id = ?", bad)
    assert (await sqlite.jobs.cancel([bad, good]))[1] is CancelAnswer.CANCELLED


async def test_the_search_for_damaged_records_looks_at_the_newest(sqlite: SqliteStore, path: Path) -> None:
    _, new = await add(sqlite, new_job(), new_job())
    run_raw(path, "UPDATE drumbeat_job SET crashes = 'many'")
    assert [(fault.id, fault.field) for fault in await sqlite.inspect.find_malformed(1)] == [(new, "crashes")]
