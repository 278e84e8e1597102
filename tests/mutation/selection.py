"""A plugin of pytest for runs with a mutant: only the engines that were asked for, no long search for a smaller example."""

import importlib
import os

import pytest

ENGINES_VARIABLE = "DRUMBEAT_MUTATION_ENGINES"
ALL_ENGINES = frozenset({"sqlite", "postgres", "postgres16", "valkey", "redis", "redis6", "pair"})
MAX_SHRINKING_SECONDS = 1


def pytest_configure() -> None:
    engine = importlib.import_module("hypothesis.internal.conjecture.engine")
    vars(engine)["MAX_SHRINKING_SECONDS"] = MAX_SHRINKING_SECONDS


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = frozenset(os.environ[ENGINES_VARIABLE].split(","))
    kept = [item for item in items if is_wanted(item, wanted)]
    config.hook.pytest_deselected(items=[item for item in items if not is_wanted(item, wanted)])
    items[:] = kept


def is_wanted(item: pytest.Item, wanted: frozenset[str]) -> bool:
    named = {word.lower() for word in (*_parameters(item), *_names(item))} & ALL_ENGINES
    return not named or bool(named & wanted)


def _parameters(item: pytest.Item) -> set[str]:
    callspec = getattr(item, "callspec", None)
    return {value for value in callspec.params.values() if isinstance(value, str)} if callspec is not None else set()


def _names(item: pytest.Item) -> set[str]:
    """State machines have a class for each engine: TestPostgres16."""
    return {node.name.removeprefix("Test") for node in item.listchain() if isinstance(node, pytest.Class)}
