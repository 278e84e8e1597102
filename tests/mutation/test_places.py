"""A mutant's place is found in words of the map, and the tests that touch it are chosen, the nearest and cheapest first."""

import msgspec
import pytest

from tests.mutation.choice import choose_tests
from tests.mutation.mutants import Edit, Mutant
from tests.mutation.places import find_place
from tests.mutation.touch_map import TestTouches, TouchMap, digest_of
from tests.planting import PACKAGE


def mutant_at(file: str, text: str) -> Mutant:
    """At the only place with this text."""
    source = (PACKAGE / file).read_text()
    assert source.count(text) == 1
    start = source.index(text)
    line = source.count("\n", 0, start) + 1
    return Mutant(id="", file=file, line=line, edit=Edit("order", start, start + len(text), ""), before=text, after="")


def touches(seconds: float, file: str, *lines: int, names: frozenset[str] = frozenset()) -> TestTouches:
    return TestTouches(seconds=seconds, lines={file: list(lines)}, names=names)


def test_a_place_in_python_is_the_innermost_statement() -> None:
    mutant = mutant_at("core/observer.py", "before = self._seen.get(peer.id)")
    assert find_place(mutant).lines == {mutant.line}


def test_what_is_run_by_import_may_be_noticed_by_all_that_touch_the_file() -> None:
    assert find_place(mutant_at("store/redis/pool.py", 'T = TypeVar("T")')).lines == frozenset()


@pytest.mark.parametrize(
    ("file", "text", "some", "none"),
    [
        ("store/redis/lua/_claim.lua", "local function pop_due(", "lua report_and_claim", "lua list_locks"),
        ("store/redis/lua/list_locks.lua", "-- ARGV:", "lua list_locks", "lua add_jobs"),
        (
            "store/postgres/migrations/0001_schema/05_locks.sql",
            "CREATE FUNCTION drumbeat.lock_grant_free",
            "sql acquire",
            "sql report_and_claim",
        ),
        ("store/sqlite/sql/claim.sql", "-- name: next_due\n", "sql next_due", "sql pick"),
    ],
)
def test_a_place_in_sql_or_lua_is_the_statements_and_scripts_that_have_it(
    file: str, text: str, some: str, none: str
) -> None:
    names = find_place(mutant_at(file, text)).names
    assert some in names and none not in names


def test_what_a_trigger_calls_may_be_noticed_by_all_tests_of_the_engine() -> None:
    file = "store/postgres/migrations/0001_schema/03_schedules.sql"
    assert find_place(mutant_at(file, "ORDER BY job.blocked_since, job.id")).names == frozenset()


def test_where_no_test_touches_the_place_those_of_its_file_are_chosen() -> None:
    mutant = mutant_at("core/observer.py", "before = self._seen.get(peer.id)")
    tests = {"tests/a.py::test": touches(1, mutant.file, 1), "tests/a.py::test_other": touches(1, "core/turns.py", 1)}
    assert [test.id for test in choose_tests(mutant, _map_of(tests))] == ["tests/a.py::test"]


def test_tests_that_touch_the_place_are_chosen_the_nearest_first_one_case_of_each_before_the_second() -> None:
    mutant = mutant_at("core/observer.py", "before = self._seen.get(peer.id)")
    (line,) = find_place(mutant).lines
    file = mutant.file
    tests = {
        "tests/app/test_far.py::test_a": touches(0.1, file, line),
        "tests/unit/test_observer.py::test_b[1]": touches(1, file, line),
        "tests/unit/test_observer.py::test_b[2]": touches(2, file, line),
        "tests/unit/test_observer.py::test_c": touches(3, file, line),
        "tests/unit/test_observer.py::test_elsewhere": touches(0.1, file, line + 1),
        "tests/unit/test_observer.py::test_too_long": touches(1000, file, line),
        "tests/system/test_zombies.py::test_process": touches(5, file, names=frozenset({"process"})),
        "tests/app/test_far.py::test_process": touches(5, file, names=frozenset({"process"})),
    }
    chosen = [test.id.partition("::")[2] for test in choose_tests(mutant, _map_of(tests))]
    assert chosen == ["test_b[1]", "test_c", "test_b[2]", "test_a", "test_process"]


def test_an_engines_statement_is_touched_only_by_tests_on_that_engine() -> None:
    mutant = mutant_at("store/sqlite/sql/claim.sql", "-- name: next_due\n")
    name = frozenset({"sql next_due"})
    tests = {
        "tests/a.py::test_sqlite": touches(1, "store/sqlite/claim.py", 1, names=name),
        "tests/a.py::test_postgres": touches(1, "store/postgres/claim.py", 1, names=name),
    }
    assert [test.id for test in choose_tests(mutant, _map_of(tests))] == ["tests/a.py::test_sqlite"]


def test_lines_that_have_moved_since_they_were_traced_are_found_again() -> None:
    file = "core/observer.py"
    now = (PACKAGE / file).read_text()
    before = now.replace("\n", "\n# gone\n", 3)
    digest = digest_of(before)
    touch_map = _map_of({"tests/a.py::test": touches(1, file, 2, 20, 21)})
    traced = touch_map.files["tests/a.py"]
    touch_map.files["tests/a.py"] = msgspec.structs.replace(traced, sources={file: digest})
    touch_map.texts[digest] = before
    assert touch_map.tests["tests/a.py::test"].lines == {file: [17, 18]}


def _map_of(tests: dict[str, TestTouches]) -> TouchMap:
    touch_map = TouchMap(files={}, texts={})
    touch_map.add("tests/mutation/test_places.py", tests)
    touch_map.files["tests/a.py"] = touch_map.files.pop("tests/mutation/test_places.py")
    return touch_map
