"""Each known bug still has its place in the source, and its tests are there. `make mutate` plants them and runs these."""

import ast
from functools import cache

import pytest

from tests.mutation.known_bugs import ALL, KNOWN_BUGS, KnownBug
from tests.planting import PACKAGE, ROOT


@cache
def names_of_tests(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("bug", KNOWN_BUGS, ids=lambda bug: bug.name)
def test_a_known_bug_has_its_place_and_its_tests(bug: KnownBug) -> None:
    source = (PACKAGE / bug.file).read_text()
    assert bug.apply(source) != source
    assert bug.tests and set(bug.engines) <= set(ALL)
    for test in bug.tests:
        file, _, name = test.partition("::")
        assert name in names_of_tests(file), test


def test_no_name_is_used_twice() -> None:
    assert len({bug.name for bug in KNOWN_BUGS}) == len(KNOWN_BUGS)
