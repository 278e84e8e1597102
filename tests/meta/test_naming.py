"""What a machine can see of how we name: CONTRIBUTING.md, "Names"."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.meta.project import SOURCE, shown

MODULES = sorted(SOURCE.rglob("*.py"))
GERUND = re.compile(r"(\w+_)?[a-z]{2,}ing(_\w+)?")
NOT_GERUNDS = {
    "event_logging": "logging is the noun",
    "formatting": "the noun",
    "logging": "the noun, as in the standard library",
    "parsing": "the noun",
    "tracing": "the noun, as in OpenTelemetry",
    "setting_parsers": "parsers of settings",
    "timing": "the noun",
}
LIMIT_WORDS = re.compile(r"_?(MOST|LEAST|LONGEST|SHORTEST|FEWEST|LARGEST|SMALLEST|OLDEST)_\w+")


def classes() -> Iterator[tuple[str, Path]]:
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                yield node.name.lstrip("_"), path


def test_a_class_name_is_used_once() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for name, path in classes():
        places[name].append(shown(path))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_modules_are_nouns() -> None:
    gerunds = [shown(path) for path in MODULES if GERUND.fullmatch(path.stem) and path.stem not in NOT_GERUNDS]
    assert gerunds == []


def test_limits_are_called_max_and_min() -> None:
    found = {
        f"{shown(path)}: {node.id}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and LIMIT_WORDS.fullmatch(node.id)
    }
    assert found == set()


def test_constructors_take_few_parameters() -> None:
    """A part that needs more is given a record of them."""
    long = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                count = len(node.args.posonlyargs + node.args.args + node.args.kwonlyargs) - 1
                if count > 8:
                    long[f"{shown(path)}:{node.lineno}"] = count
    assert long == {}


def test_reasons_are_called_reasons() -> None:
    found = {
        f"{shown(path)}:{node.lineno}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.arg) and node.arg == "why") or (isinstance(node, ast.Name) and node.id == "why")
    }
    assert found == set()
