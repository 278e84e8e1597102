"""The list of a job's fields (core/job_fields.py) is the same as the records, the columns of all tables and the Redis header.

A new field is one line there, one migration for each SQL engine, and whatever uses it.
These tests name the place that is missing.
"""

import re
import sqlite3
from collections.abc import Iterator

import msgspec
import pytest

from drumbeat.core.claim import ClaimedJob
from drumbeat.core.job import Job, NewJob
from drumbeat.core.job_fields import GIVEN_FIELDS, JOB_FIELDS
from drumbeat.store.job_columns import ENDED, LISTS, LIVE, NEW, ONLY_ENDED, ONLY_LIVE
from drumbeat.store.migrations import load_migrations
from drumbeat.store.postgres.copy_format import COLUMNS as COPY_COLUMNS
from drumbeat.store.postgres.statements import COLUMN_TYPES
from drumbeat.store.records import StoredJobRow
from drumbeat.store.redis.record_format import EndRecord, JobHeader, LiveState
from drumbeat.store.sqlite.schema import MIGRATIONS, split_statements
from drumbeat.web.api.records import JobRecord

ROW_ONLY = {"outcome", "blocked_since", "has_run", "is_parent", "binds", "place"}
"""Columns that no `Job` shows."""
TABLES = {"job": LIVE, "history": ENDED, "dead": ENDED}


@pytest.fixture(scope="module")
def sqlite() -> Iterator[sqlite3.Connection]:
    db = sqlite3.connect(":memory:")
    for migration in MIGRATIONS:
        for statement in split_statements(migration.sql):
            db.execute(statement)
    yield db
    db.close()


def test_the_records_are_made_from_the_list() -> None:
    assert Job.__struct_fields__ == JOB_FIELDS
    assert set(StoredJobRow.__struct_fields__) == {*JOB_FIELDS, *ROW_ONLY}
    assert set(JobRecord.__struct_fields__) == {*JOB_FIELDS, "view", "attempt", "truncated"}
    assert set(NewJob.__struct_fields__) == {*NEW, "after"}
    assert set(NEW) == {*GIVEN_FIELDS, "run_at", "delay", "expires_at", "expires"}
    assert set(ClaimedJob.__struct_fields__) < {*JOB_FIELDS, *ROW_ONLY}


@pytest.mark.parametrize("table", TABLES)
def test_the_tables_of_sqlite_have_these_columns_in_this_order(sqlite: sqlite3.Connection, table: str) -> None:
    """In the order of the list up to `seq`, the last column of the first migration: INSERTs are fastest in that order."""
    columns = [row[1] for row in sqlite.execute(f"PRAGMA table_info(drumbeat_{table})")]
    assert {*columns} - {"seq"} == {*TABLES[table]}
    first = columns[: columns.index("seq")] if "seq" in columns else []
    assert first == [name for name in TABLES[table] if name in first]


@pytest.mark.parametrize("table", TABLES)
def test_the_tables_of_postgresql_have_these_columns(table: str) -> None:
    """By the text of the migrations; tests/engines/postgres/test_schema.py compares the text with the catalog."""
    sql = "\n".join(migration.sql for migration in load_migrations("drumbeat.store.postgres.migrations"))
    [created] = re.findall(rf"CREATE TABLE drumbeat\.{table} \((.*?)\n\)", sql, re.DOTALL)
    for like in re.findall(r"^    LIKE drumbeat\.(\w+),", created, re.MULTILINE):
        created += re.findall(rf"CREATE TABLE drumbeat\.{like} \((.*?)\n\)", sql, re.DOTALL)[0]
    columns = re.findall(r'^    "?([a-z_]+)"? ', created, re.MULTILINE)
    columns += re.findall(rf'ALTER TABLE drumbeat\.{table}\s+ADD COLUMN "?([a-z_]+)"? ', sql)
    assert set(columns) == set(TABLES[table])


def test_postgresql_can_insert_and_copy_all_that_a_caller_gives() -> None:
    assert set(COLUMN_TYPES) == set(NEW)
    assert set(COPY_COLUMNS) == set(LISTS["inserted"])


def test_redis_stores_all_of_a_job() -> None:
    """`unique` is the flag before the header, `args` come after it; the rest is elsewhere: the keys of a running job."""
    stored = {*JobHeader.__struct_fields__, *LiveState.__struct_fields__, *EndRecord.__struct_fields__}
    assert set(JOB_FIELDS) - stored == {"id", "args", "unique", "cancel_requested", "progress"}
    assert set(GIVEN_FIELDS) - set(JobHeader.__struct_fields__) == {"id", "args", "unique"}
    claimed = [name for name in ClaimedJob.__struct_fields__ if name in JobHeader.__struct_fields__]
    *fields, has_run, binds = ClaimedJob.__struct_fields__
    assert (fields[-len(claimed) :], has_run, binds) == (claimed, "has_run", "binds"), "rows.py passes these last"


def test_a_column_that_not_all_tables_have_is_in_the_list() -> None:
    assert {*ONLY_LIVE, *ONLY_ENDED} < {*StoredJobRow.__struct_fields__}


def test_a_row_becomes_the_record_with_all_of_its_fields() -> None:
    """With a value in each field that is none of the defaults, so that a field which is lost shows."""
    values = {field.name: _example(field) for field in msgspec.structs.fields(StoredJobRow)}
    values |= {
        "state": "pending",
        "unique": "live",
        "outcome": "dead",
        "error": '{"type":"E","message":"m","traceback":""}',
    }
    job = msgspec.convert(list(values.values()), StoredJobRow).to_record()
    shown = {name: getattr(job, name) for name in JOB_FIELDS}
    assert [name for name, value in shown.items() if value in (None, "", 0)] == []
    assert (shown["timeout"], shown["due_at"].timestamp()) == (7e-06, 7e-06)


def _example(field: msgspec.structs.FieldInfo) -> object:
    try:
        return msgspec.convert("7", field.type)
    except msgspec.ValidationError:
        return 7
