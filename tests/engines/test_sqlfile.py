"""Statements by name, checked when they are loaded."""

import pytest

from drumbeat.store import sqlfile

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
    loaded = sqlfile.load("drumbeat.store.sqlite.sql", "schema.sql")
    other = sqlfile.with_namespace(loaded, "shop")
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
