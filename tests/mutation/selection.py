"""A plugin of pytest for runs with a mutant: only the tests, or the engines, that were asked for; each test is ended when it
takes far longer than it should; no long search for a smaller example."""

import faulthandler
import importlib
import os
from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

ENGINES_VARIABLE = "DRUMBEAT_MUTATION_ENGINES"
TESTS_VARIABLE = "DRUMBEAT_MUTATION_TESTS"
"""A file: `TestOrder` as JSON."""
ALL_ENGINES = frozenset({"sqlite", "postgres", "postgres16", "valkey", "redis", "redis6", "pair"})
MAX_SHRINKING_SECONDS = 1


class TestOrder(msgspec.Struct, frozen=True):
    """What is run, in this order, and how long each may take."""

    __test__ = False

    limits: dict[str, float]
    current: str
    """The file that says which test runs: one that hangs cannot."""


class ChosenTests:
    def __init__(self, order: TestOrder) -> None:
        self._order = order

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        known = {item.nodeid: item for item in items}
        wanted = [known[id] for id in self._order.limits if id in known]
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in self._order.limits])
        items[:] = wanted

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        Path(self._order.current).write_text(item.nodeid)
        faulthandler.dump_traceback_later(self._order.limits[item.nodeid], exit=True)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()


class WantedEngines:
    def __init__(self, engines: frozenset[str]) -> None:
        self._engines = engines

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        kept = [item for item in items if is_wanted(item, self._engines)]
        config.hook.pytest_deselected(items=[item for item in items if not is_wanted(item, self._engines)])
        items[:] = kept


def pytest_configure(config: pytest.Config) -> None:
    engine = importlib.import_module("hypothesis.internal.conjecture.engine")
    vars(engine)["MAX_SHRINKING_SECONDS"] = MAX_SHRINKING_SECONDS
    if file := os.environ.get(TESTS_VARIABLE):
        order = msgspec.json.decode(Path(file).read_bytes(), type=TestOrder)
        config.pluginmanager.register(ChosenTests(order))
    else:
        config.pluginmanager.register(WantedEngines(frozenset(os.environ[ENGINES_VARIABLE].split(","))))


def is_wanted(item: pytest.Item, wanted: frozenset[str]) -> bool:
    named = {word.lower() for word in (*_parameters(item), *_names(item))} & ALL_ENGINES
    return not named or bool(named & wanted)


def _parameters(item: pytest.Item) -> set[str]:
    callspec = getattr(item, "callspec", None)
    return {value for value in callspec.params.values() if isinstance(value, str)} if callspec is not None else set()


def _names(item: pytest.Item) -> set[str]:
    """State machines have a class for each engine: TestPostgres16."""
    return {node.name.removeprefix("Test") for node in item.listchain() if isinstance(node, pytest.Class)}
