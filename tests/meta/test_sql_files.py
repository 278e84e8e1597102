"""Each `.sql` file of an engine holds named statements, one statement to a name."""

import re
import sqlite3
from pathlib import Path

import pytest

from tests.meta.project import SOURCE, shown

NAME = re.compile(r"^-- name:[ \t]*(.*?)[ \t]*$", re.MULTILINE)
FILES = sorted(SOURCE.glob("store/*/sql/*.sql"))


def without_comments(sql: str) -> str:
    return re.sub(r"--[^\n]*", "", sql).strip()


def statements(sql: str) -> list[str]:
    """Split where SQLite itself says that a statement is complete; what is left over counts as one."""
    found, rest = [], ""
    for piece in re.split(r"(?<=;)", without_comments(sql)):
        rest += piece
        if sqlite3.complete_statement(rest):
            found.append(rest.strip())
            rest = ""
    return [*found, rest.strip()] if rest.strip() else found


def test_there_are_statements_to_look_at() -> None:
    assert FILES


@pytest.mark.parametrize("path", FILES, ids=shown)
def test_every_statement_has_a_name_of_its_own(path: Path) -> None:
    head, *parts = NAME.split(path.read_text(encoding="utf-8"))
    names, bodies = parts[::2], parts[1::2]
    assert without_comments(head) == ""
    assert [name for name in names if not re.fullmatch(r"_?[a-z][a-z0-9_]*", name)] == []
    assert len(set(names)) == len(names)
    assert {name: len(statements(body)) for name, body in zip(names, bodies, strict=True)} == dict.fromkeys(names, 1)


def test_two_statements_under_one_name_are_told() -> None:
    assert len(statements("SELECT 1; -- one;\nSELECT ';';")) == 2


def test_migrations_are_numbered_without_a_gap() -> None:
    for folder in SOURCE.glob("store/*/migrations"):
        numbers = [int(path.name.split("_")[0]) for path in sorted(folder.glob("[0-9]*"))]
        assert numbers == list(range(1, len(numbers) + 1)), shown(folder)
