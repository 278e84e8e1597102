"""The mutators find each kind of place, skip what cannot matter, and leave a text that still parses."""

import ast
import textwrap

import pytest

from tests.mutation import lua_mutators, python_mutators, sql_mutators
from tests.mutation.__main__ import FIND_EDITS
from tests.mutation.mutants import apply, name_mutants
from tests.mutation.nearest import find_nearest, is_mutated
from tests.mutation.survivors import SURVIVORS, read_explanations
from tests.planting import PACKAGE, ROOT


def mutate(source: str, kind: str) -> list[str]:
    return [apply(edit, source) for edit in python_mutators.find_edits(source) if edit.kind == kind]


def mutate_sql(source: str, kind: str) -> list[str]:
    return [" ".join(apply(edit, source).split()) for edit in sql_mutators.find_edits(source) if edit.kind == kind]


def mutate_lua(source: str, kind: str) -> list[str]:
    return [apply(edit, source) for edit in lua_mutators.find_edits(source) if edit.kind == kind]


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("comparison", "x = a == b", ["x = a != b"]),
        ("comparison", "x = a not in b", ["x = a in b"]),
        ("comparison", "x = é < b is not c", ["x = é >= b is not c", "x = é < b is c"]),
        ("boundary", "x = a <= b", ["x = a < b"]),
        ("boundary", "x = a == b", []),
        ("off_by_one", "x = a + 1", ["x = a + 0"]),
        ("off_by_one", "x = a[:n]", ["x = a[:(n) + 1]"]),
        ("off_by_one", "x = a[0]", ["x = a[1]"]),
        ("off_by_one", "x = range(2, n)", ["x = range(2, (n) + 1)"]),
        ("and_or", "x = a and (b or c)", ["x = a or (b or c)", "x = a and (b and c)"]),
        ("removed_not", "x = not (a and b)", ["x = (a and b)"]),
        ("dropped_call", "f(\n  x)\n", ["pass\n"]),
        ("dropped_await", "async def f(): return await (g())", ["async def f(): return (g())"]),
        ("swapped_branch", "x = a if f(b) else c", ["x = a if not (f(b)) else c"]),
        ("swapped_branch", "if a == b: f()", []),
        ("order", "f()\ng()\n", ["g()\nf()\n"]),
        ("order", "self.a = f()\nself.b()\n", ["self.b()\nself.a = f()\n"]),
    ],
)
def test_python(kind: str, before: str, after: list[str]) -> None:
    assert mutate(before, kind) == after


@pytest.mark.parametrize(
    "source",
    [
        '"""a < b"""',
        "log.info('x', a == b)",
        "self._log.warning(f(a) + 1)",
        "def __repr__(self):\n    return a if a == b else f()",
        "if TYPE_CHECKING:\n    f()",
        "assert a == b, f(a)",
        "raise ValueError(f'{a + 1}')",
        "x: a[0] = None",
        "super().__init__()",
    ],
)
def test_what_cannot_matter_is_skipped(source: str) -> None:
    assert list(python_mutators.find_edits(source)) == []


@pytest.mark.parametrize(
    "source", ["x = f()\nx.g()", "self.a = a\nself.b = b", "f()\nreturn_ = 1", "f()\nlog.info('x')"]
)
def test_an_order_that_nothing_observes_stays(source: str) -> None:
    assert mutate(source, "order") == []


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("dropped_predicate", "SELECT a FROM t WHERE b = 1;", ["SELECT a FROM t WHERE true;"]),
        (
            "dropped_predicate",
            "SELECT a FROM t WHERE b = 1 AND (c OR d) ORDER BY a",
            ["SELECT a FROM t WHERE (c OR d) ORDER BY a", "SELECT a FROM t WHERE b = 1 ORDER BY a"],
        ),
        ("dropped_predicate", "SELECT (SELECT 1 WHERE a) FROM t", ["SELECT (SELECT 1 WHERE true) FROM t"]),
        (
            "dropped_predicate",
            "DELETE FROM t WHERE a BETWEEN 1 AND 2 AND CASE WHEN b AND c THEN d END RETURNING a",
            [
                "DELETE FROM t WHERE CASE WHEN b AND c THEN d END RETURNING a",
                "DELETE FROM t WHERE a BETWEEN 1 AND 2 RETURNING a",
                "DELETE FROM t WHERE a BETWEEN 1 AND 2 AND CASE WHEN b THEN d END RETURNING a",
            ],
        ),
        ("dropped_predicate", "CREATE INDEX i ON t (a) WHERE b AND c; SELECT 1", []),
        (
            "dropped_predicate",
            "CREATE UNIQUE INDEX i ON t (a) WHERE b; SELECT 1",
            ["CREATE UNIQUE INDEX i ON t (a) WHERE true; SELECT 1"],
        ),
        ("dropped_predicate", "-- WHERE it stands AND falls\nSELECT ' AND '", []),
        ("boundary", "SELECT a <= b, c -> d, e <> f, g <@ h", ["SELECT a < b, c -> d, e <> f, g <@ h"]),
        ("dropped_lock", "SELECT a FROM t FOR NO KEY UPDATE OF t SKIP LOCKED;", ["SELECT a FROM t ;"]),
        ("dropped_skip_locked", "SELECT a FROM t FOR UPDATE SKIP LOCKED;", ["SELECT a FROM t FOR UPDATE;"]),
        ("reversed_order", "SELECT a ORDER BY f(a, b), c LIMIT 1", ["SELECT a ORDER BY f(a, b) DESC, c LIMIT 1"]),
        ("reversed_order", "SELECT a ORDER BY b DESC, c", ["SELECT a ORDER BY b ASC, c"]),
        ("limit", "SELECT a LIMIT :most", ["SELECT a LIMIT :most + 1"]),
        ("off_by_one", "SET token = token + 1, b = 1 + 10", ["SET token = token + 0, b = 1 + 10"]),
    ],
)
def test_sql(kind: str, before: str, after: list[str]) -> None:
    assert mutate_sql(before, kind) == after


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("comparison", "if a ~= 'x == y' then", ["if a == 'x == y' then"]),
        ("boundary", "while a < b do -- c < d", ["while a <= b do -- c < d"]),
        ("dropped_call", "  call('DEL', key(id))\n", ["  do end\n"]),
        ("dropped_call", "  local a = call('GET', k)\n  f(a).b = 1\n", []),
        ("off_by_one", "a[#a + 1] = b", ["a[#a + 0] = b"]),
        ("swapped_branch", "if a and b == c then", ["if not (a and b == c) then"]),
        ("swapped_branch", "if a == b then", []),
        ("removed_not", "return not a", ["return a"]),
        ("and_or", "local a = b or 'and'", ["local a = b and 'and'"]),
    ],
)
def test_lua(kind: str, before: str, after: list[str]) -> None:
    assert mutate_lua(before, kind) == after


def test_an_id_survives_changes_elsewhere_and_tells_equal_lines_apart() -> None:
    source = "if a:\n    f()\n    x = 1\n    f()\n"
    named = [mutant.id for mutant in name_mutants("m.py", source, python_mutators.find_edits(source))]
    moved = textwrap.indent(source, "    ").join(["def g():\n    y = 2\n", ""])
    assert [mutant.id for mutant in name_mutants("m.py", moved, python_mutators.find_edits(moved))] == named
    assert len(set(named)) == len(named) == 3


@pytest.mark.parametrize("file", ["core/turns.py", "worker/store_loop.py", "controller/firer.py"])
def test_mutants_of_python_still_parse(file: str) -> None:
    source = (ROOT / "src" / "drumbeat" / file).read_text()
    mutants = list(python_mutators.find_edits(source))
    assert len(mutants) > 20
    for edit in mutants:
        ast.parse(apply(edit, source))


def test_the_nearest_tests_of_every_mutated_file_exist() -> None:
    files = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.*") if path.suffix in FIND_EDITS}
    files = {file for file in files if is_mutated(file)}
    assert {"core/turns.py", "store/postgres/sql/claim.sql", "store/redis/lua/_locks.lua", "web/access.py"} <= files
    assert not is_mutated("cli/acts.py")
    for file in files:
        nearest = find_nearest(file)
        assert nearest.tests and all((ROOT / test).exists() for test in nearest.tests)
        assert nearest.engines


def test_every_line_of_the_list_of_survivors_is_read() -> None:
    text = SURVIVORS.read_text()
    assert len(read_explanations(text)) == sum(line.startswith("- ") for line in text.splitlines())
    assert read_explanations("- `a/b.py:order:0123abcd`: no reader\n") == {"a/b.py:order:0123abcd": "no reader"}
