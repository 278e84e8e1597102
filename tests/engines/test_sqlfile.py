"""Statements by name, checked when they are loaded."""

import pytest

from drumbeat.store import sqlfile
from drumbeat.store.sqlfile import Columns, Source
from drumbeat.store.sqlite.statements import statements

FILE = """\
-- What this file is about.

-- name: first
-- Why it is so.
SELECT a  -- a column
  FROM drumbeat_job;

-- name: second
DELETE FROM drumbeat_job;
"""


def test_statements_are_found_by_name_without_comment_lines() -> None:
    assert sqlfile.parse(FILE, "x.sql") == {
        "first": "SELECT a  -- a column\n  FROM drumbeat_job",
        "second": "DELETE FROM drumbeat_job",
    }


@pytest.mark.parametrize("text", ["-- name: a\n-- only words\n", "-- name: a\nSELECT 1;\n-- name: a\nSELECT 2;\n"])
def test_an_empty_statement_or_one_that_is_there_twice_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"x\.sql: statement 'a'"):
        sqlfile.parse(text, "x.sql")


def test_a_statement_that_is_not_there_is_named() -> None:
    loaded = sqlfile.load("drumbeat.store.sqlite.sql", "schema.sql")
    with pytest.raises(AttributeError, match="there is no SQL statement 'forgotten'"):
        _ = loaded.forgotten


def test_the_prefix_is_the_namespace() -> None:
    other = statements("shop").schema
    assert "shop_meta" in other.version
    assert "drumbeat" not in "".join(vars(other).values())


def test_a_row_of_placeholders_is_repeated() -> None:
    statement = "INSERT INTO t SELECT column1, ?1 FROM (VALUES (?, ?)) WHERE true"
    assert sqlfile.repeat_row(statement, 1) == statement
    assert (
        sqlfile.repeat_row(statement, 3)
        == "INSERT INTO t SELECT column1, ?1 FROM (VALUES (?, ?), (?, ?), (?, ?)) WHERE true"
    )
    with pytest.raises(ValueError, match="no row"):
        sqlfile.repeat_row("SELECT 1", 2)


def test_a_part_is_put_where_it_is_included_and_is_no_statement_itself() -> None:
    text = "-- name: _some\n-- Why.\nid, task\n\n-- name: one\nSELECT\n    -- include: _some\n  FROM job;\n"
    assert sqlfile.parse(text, "here") == {"one": "SELECT\nid, task\n  FROM job"}


def test_a_part_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="here: statement 'one' includes _none, which is not there"):
        sqlfile.parse("-- name: one\nSELECT\n-- include: _none\n;", "here")


COLUMNS = Columns(
    {"all": ("id", "unique", "at")}, {"parameters": Source({"id": "?1", "at": "?2"}), "row": Source({}, "new")}
)


@pytest.mark.parametrize(
    ("written", "expanded"),
    [
        ("SELECT {{all}} FROM t", 'SELECT id, "unique", at FROM t'),
        ("SELECT {{all from job}} FROM job", 'SELECT job.id, job."unique", job.at FROM job'),
        ("SELECT {{all from row}} FROM new", 'SELECT new.id, new."unique", new.at FROM new'),
        ("VALUES ({{all from parameters, unique = coalesce(?3, '')}})", "VALUES (?1, coalesce(?3, ''), ?2)"),
        ("SELECT {{all from t,\n  at = max(a, b), id = 'x'}}", "SELECT 'x', t.\"unique\", max(a, b)"),
    ],
)
def test_a_list_of_columns_and_values_for_it_are_put_where_they_are_named(written: str, expanded: str) -> None:
    assert sqlfile.expand(written, COLUMNS) == expanded


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("SELECT {{none}}", "there is no list of columns 'none'"),
        ("SELECT {{all from parameters}}", "no value for the column 'unique'"),
        ("SELECT {{all from t, key = 1}}", "'key' is no column of 'all'"),
        ("SELECT {{all from t, garbage}}", "not a list of `column = expression`"),
    ],
)
def test_a_list_without_a_value_for_each_column_is_refused(written: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^here: {reason}"):
        sqlfile.expand(written, COLUMNS, "here")


def test_parts_of_several_files_may_include_each_other() -> None:
    text = "-- name: _a\nid\n\n-- name: _b\n-- include: _a\n, task\n\n-- name: one\nSELECT\n-- include: _b\n;\n"
    assert sqlfile.parse(text, "here") == {"one": "SELECT\nid\n, task"}


def test_an_include_may_say_what_stands_in_its_place() -> None:
    text = """
-- name: _counted
SELECT count(*) FROM {{here}}
-- name: _old
-- include: _counted with {{here}} WHERE at < 1

-- name: jobs
-- include: _counted with job
;
-- name: old_jobs
-- include: _old with job
;
"""
    found = sqlfile.parse(text, "here")
    assert found == {"jobs": "SELECT count(*) FROM job", "old_jobs": "SELECT count(*) FROM job WHERE at < 1"}
