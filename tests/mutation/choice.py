"""Which tests a mutant has to pass: those that touch its place, the nearest and the cheapest first, within a budget."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import msgspec

from tests.mutation.mutants import Mutant
from tests.mutation.nearest import find_nearest
from tests.mutation.places import Place, find_place
from tests.mutation.touch_map import TestTouches, TouchMap

BUDGET_S = 30
"""What the tests of a mutant may take, by what they took when they were traced."""
LONG_BUDGET_S = 4 * BUDGET_S
"""Likewise, for one that these have not noticed and nobody has explained."""
ENGINE = re.compile(r"store/(?:sqlite|postgres|redis)/")


class ChosenTest(msgspec.Struct, frozen=True):
    id: str
    seconds: float


def choose_tests(mutant: Mutant, touch_map: TouchMap, *, budget: float = BUDGET_S) -> list[ChosenTest]:
    """Empty: no test touches it."""
    place = find_place(mutant)
    near = _files_near(mutant.file)
    touching = list(_list_tests(touch_map, lambda touches: _touches(place, touches)))
    if not touching:  # a function that runs when its module is imported, or a statement that is called in another way
        anywhere = Place(file=mutant.file)
        touching = list(_list_tests(touch_map, lambda touches: _touches(anywhere, touches)))
    # In processes that a test starts nothing is seen: those near to the module may reach it there.
    starting = [
        test
        for test in _list_tests(touch_map, lambda touches: "process" in touches.names)
        if near.get(test.id.partition("::")[0], 99) < 4
    ]
    chosen: dict[str, ChosenTest] = {}
    spent = 0.0
    for test in (*_rank(touching, near), *_rank(starting, near)):
        if test.id not in chosen and spent + test.seconds <= budget:
            spent += test.seconds
            chosen[test.id] = test
    return list(chosen.values())


def _list_tests(touch_map: TouchMap, matches: Callable[[TestTouches], bool]) -> Iterator[ChosenTest]:
    return (ChosenTest(id, test.seconds) for id, test in touch_map.tests.items() if matches(test))


def _touches(place: Place, test: TestTouches) -> bool:
    if place.lines:
        return not place.lines.isdisjoint(test.lines.get(place.file, ()))
    engine = ENGINE.match(place.file)
    if engine is not None and not any(file.startswith(engine[0]) for file in test.lines):
        return False
    if place.names:
        return not place.names.isdisjoint(test.names)
    return place.file in test.lines if place.file.endswith(".py") else engine is not None


def _files_near(file: str) -> dict[str, int]:
    """Files of tests and how far each is, by nearest.py."""
    return {test: number for number, test in enumerate(find_nearest(file).tests)}


def _rank(tests: Iterable[ChosenTest], near: dict[str, int]) -> list[ChosenTest]:
    """One case of each test function before the second of any, so that a table of a thousand cases does not use up the budget;
    files that stand near to the module before others; the cheapest first."""
    numbers = Counter[str]()
    ranked = []
    for test in sorted(tests, key=lambda test: test.seconds):
        function = test.id.partition("[")[0]
        distance = min(near.get(test.id.partition("::")[0], 99), 99)
        tier = 0 if distance < 4 else 1 if distance < 99 else 2
        ranked.append(((numbers[function] + 2 * tier, tier, test.seconds), test))
        numbers[function] += 1
    return [test for _, test in sorted(ranked, key=lambda each: each[0])]
