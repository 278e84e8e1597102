"""Statements for batches: how their parameters are bound, on every Python."""

import re
import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from drumbeat.core.claim import ClaimRef, WriteStatus
from drumbeat.core.job import OutcomeKind
from drumbeat.store.sqlite import SqliteStore
from drumbeat.store.sqlite.connection import SqliteConnection, batch_statement
from drumbeat.store.sqlite.statements import SQL
from tests.contract.making import add, claim, new_job, outcome, report, worker

STATEMENTS = [
    pytest.param(text, id=f"{topic} {name}")
    for topic, texts in msgspec.structs.asdict(SQL).items()
    for name, text in vars(texts).items()
    if re.search(r"\?\d", text)
]
TABLE = "CREATE TABLE note (first, second, third, fourth)"
PUT = """
INSERT INTO note
SELECT column1, ?2, column2, ?1
  FROM (VALUES (?, ?))
 WHERE column1 <> -1
   AND column2 <> ?2
"""


def test_there_are_statements_to_look_at() -> None:
    assert STATEMENTS


@pytest.mark.parametrize("text", STATEMENTS)
@pytest.mark.parametrize("count", [1, 8])
def test_no_parameter_has_what_python_may_take_for_a_name(text: str, count: int) -> None:
    statement = batch_statement(text, count)
    assert re.findall(r"\?\d|[:@$][a-z]", statement.text) == []
    width = re.split(r"VALUES \(", text)[1].split(")")[0].count("?")
    assert statement.text.count("?") == len(statement.before) + count * width + len(statement.after)


@pytest.fixture
def db(path: Path) -> Iterator[SqliteConnection]:
    with closing(SqliteConnection(path, read_only=False)) as db:
        db.run(TABLE)
        yield db


@pytest.mark.parametrize("count", [0, 1, 2, 8, 9, 512, 1_100])
def test_every_row_meets_its_values_and_the_fixed_ones(db: SqliteConnection, count: int) -> None:
    rows: list[tuple[Any, ...]] = [(number, f"of {number}") for number in range(count)]
    assert db.run_rows(PUT, 2, rows, ("one", "two")) == count
    wanted = [(number, "two", text, "one") for number, text in rows]
    assert db.rows("SELECT * FROM note ORDER BY first") == wanted
    assert db.last_rowid == count


def test_a_fixed_value_behind_the_rows_counts(db: SqliteConnection) -> None:
    assert db.run_rows(PUT, 2, [(1, "two")], ("one", "two")) == 0
    assert db.run_rows(PUT, 2, [(1, "two"), (2, "three")], ("one", "two")) == 1
    assert db.rows("SELECT first FROM note") == [(2,)]


@pytest.mark.parametrize("count", [1, 20], ids=lambda count: f"{count} jobs")
async def test_a_store_works_where_warnings_are_errors(sqlite: SqliteStore, count: int) -> None:
    """Python 3.12.1 warned of ?1 (python/cpython#117995), and a worker ended whose handler had made errors of warnings."""
    kinds = (OutcomeKind.SUCCEEDED, OutcomeKind.RETRY, OutcomeKind.DEAD, OutcomeKind.CANCELLED)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        instance = await worker(sqlite)
        await add(sqlite, *(new_job() for _ in range(count * len(kinds))))
        jobs = await claim(sqlite, instance)
        await sqlite.jobs.save_progress(instance, [(ClaimRef(job.id, job.token), "1") for job in jobs])
        for number, kind in enumerate(kinds):
            part = jobs[number * count : (number + 1) * count]
            statuses = await report(sqlite, instance, *(outcome(job, kind) for job in part))
            assert statuses == [WriteStatus.APPLIED] * count


async def test_jobs_join_a_transaction_of_a_program_whose_warnings_are_errors(sqlite: SqliteStore, path: Path) -> None:
    with closing(sqlite3.connect(path)) as conn, warnings.catch_warnings():
        warnings.simplefilter("error")
        added = await sqlite.transactional.add(conn, [new_job() for _ in range(3)])
        conn.commit()
    assert [each.created for each in added] == [True] * 3
