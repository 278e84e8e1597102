"""What may be NULL in a new row, and what never is."""

import sqlite3

import msgspec
import pytest

from drumbeat.core.job import NewJob
from drumbeat.store.job_columns import NEW, may_be_null
from drumbeat.store.sqlite import SqliteStore
from tests.contract.making import new_job

REQUIRED = [name for name in NEW if name != "id" and not may_be_null(name)]


def without(field: str) -> NewJob:
    return msgspec.structs.replace(new_job(), **{field: None})


@pytest.mark.parametrize("count", [1, 3, 20], ids=lambda count: f"{count} jobs")
@pytest.mark.parametrize("field", [name for name in REQUIRED if name != "unique"])
async def test_a_job_without_a_value_that_every_job_has_is_refused(sqlite: SqliteStore, field: str, count: int) -> None:
    jobs = [*(new_job() for _ in range(count - 1)), without(field)]
    with pytest.raises(sqlite3.IntegrityError, match="NOT NULL"):
        await sqlite.jobs.add(jobs)
    assert await sqlite.inspect.get_jobs([each.id for each in jobs]) == {}


@pytest.mark.parametrize("count", [1, 3, 20], ids=lambda count: f"{count} jobs")
async def test_what_may_be_missing_is_null(sqlite: SqliteStore, count: int) -> None:
    jobs = [new_job() for _ in range(count)]
    await sqlite.jobs.add(jobs)
    statement = "SELECT count(*) FROM drumbeat_job WHERE " + " AND ".join(
        f"{name} IS NULL"
        for name in NEW
        if may_be_null(name) and name not in ("run_at", "expires")  # given, not stored
    )
    assert await sqlite._parts.worker_reader.read(lambda db: db.value(statement)) == count
