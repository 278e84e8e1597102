"""Each `.sql` file of an engine holds named statements, one statement to a name."""

import ast
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


ENGINES = ["sqlite", "postgres"]


def statement_names(engine: str) -> set[str]:
    texts = (path.read_text(encoding="utf-8") for path in (SOURCE / "store" / engine / "sql").glob("*.sql"))
    return {name for text in texts for name in NAME.findall(text) if not name.startswith("_")}


def python_trees(engine: str) -> list[ast.Module]:
    shared = [SOURCE / "store" / name for name in ("job_search.py", "records.py")]
    paths = [*(SOURCE / "store" / engine).glob("*.py"), *shared]
    return [ast.parse(path.read_text(encoding="utf-8")) for path in paths]


def is_statements(node: ast.expr) -> bool:
    """Whether this expression is called like an object of statements: `sql`, `self._sql`."""
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name.endswith("sql")


@pytest.mark.parametrize("engine", ENGINES)
def test_every_statement_is_used(engine: str) -> None:
    nodes = [node for tree in python_trees(engine) for node in ast.walk(tree)]
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    unused = {
        name for name in statement_names(engine) - used if not any(name.startswith(text) for text in texts if text)
    }
    assert unused == set()


@pytest.mark.parametrize("engine", ENGINES)
def test_every_statement_that_is_named_is_there(engine: str) -> None:
    named = {
        node.attr
        for tree in python_trees(engine)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and is_statements(node.value)
    }
    parts = {
        "jobs",
        "steps",
        "dependencies",
        "workflows",
        "instances",
        "inspect",
        "search",
        "limits",
        "locks",
        "schedules",
        "rooms",
        "audit",
        "health",
        "stats",
    }
    assert len(named) > 50
    assert named - statement_names(engine) - parts - {"malformed", "schema"} - set(dir(str)) == set()


def limited_subqueries(sql: str) -> list[str]:
    """Subqueries behind IN that have a LIMIT."""
    found = []
    for match in re.finditer(r"\bIN\s*\(\s*(?=SELECT\b)", sql):
        depth, end = 1, match.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(sql[end], 0)
            end += 1
        if re.search(r"\bLIMIT\b", body := sql[match.end() : end - 1]):
            found.append(body)
    return found


@pytest.mark.parametrize("path", sorted(SOURCE.glob("store/postgres/**/*.sql")), ids=shown)
def test_postgres_has_no_limit_behind_in(path: Path) -> None:
    """A plan may run such a subquery for each row: ARRAY(SELECT ...) runs once (engines/postgres/test_limited_deletes.py)."""
    assert limited_subqueries(without_comments(path.read_text(encoding="utf-8"))) == []


def test_a_limit_behind_in_is_found() -> None:
    assert limited_subqueries("id IN (SELECT id FROM a WHERE (b) LIMIT 2) AND id IN (SELECT 1) LIMIT 3") == [
        "SELECT id FROM a WHERE (b) LIMIT 2"
    ]
    assert limited_subqueries("id IN (\n  SELECT 1 LIMIT 1)") == ["SELECT 1 LIMIT 1"]
