"""The tests keep to their own rules: none sleeps, and none is forgotten."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.meta.project import ROOT, TESTS, shown

SLEEPY = {"time", "asyncio"}


def may_sleep(path: Path) -> bool:
    return path == TESTS / "waiting.py" or TESTS / "apps" in path.parents


def sleeps(source: str) -> Iterator[int]:
    """The lines that sleep, whatever name the module was imported under."""
    tree = ast.parse(source)
    modules, functions = set[str](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.asname or alias.name for alias in node.names if alias.name in SLEEPY}
        elif isinstance(node, ast.ImportFrom) and node.module in SLEEPY:
            functions |= {alias.asname or alias.name for alias in node.names if alias.name == "sleep"}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr="sleep") if module in modules:
                yield node.lineno
            case ast.Name(id=name) if name in functions:
                yield node.lineno


@pytest.mark.parametrize(
    "source",
    ["import time\ntime.sleep(1)", "import asyncio as a\nawait a.sleep(0)", "from time import sleep as s\ns(1)"],
)
def test_a_sleep_is_found_under_any_name(source: str) -> None:
    assert list(sleeps(source)) == [2]


def test_no_test_sleeps() -> None:
    found = [
        f"{shown(path)}:{line}"
        for path in sorted(TESTS.rglob("*.py"))
        if not may_sleep(path)
        for line in sleeps(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_every_folder_with_tests_is_run() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["testpaths"]
    holding = {shown(path.parent) for path in TESTS.rglob("test_*.py")}
    assert {folder for folder in holding if not any(f"{folder}/".startswith(f"{path}/") for path in listed)} == set()
