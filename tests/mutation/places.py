"""Where a mutant is, in words of the map: lines of Python, statements of SQL, scripts of Lua. Pure functions of the source."""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import PurePosixPath

import msgspec

from tests.mutation.mutants import Mutant
from tests.planting import PACKAGE

STATEMENT = re.compile(r"^-- name: (\w+)[ \t]*$", re.MULTILINE)
LUA_FUNCTION = re.compile(r"^(?=(?:local )?function (\w+)|(\w+) = function).*?^end\b", re.MULTILINE | re.DOTALL)
SQL_FUNCTION = re.compile(r"^CREATE FUNCTION (?:\w+\.)?(\w+)\b.*?\$\$.*?\$\$", re.MULTILINE | re.DOTALL)
TRIGGER = re.compile(r"\bRETURNS trigger\b")
INCLUDE = re.compile(r"^-- include:[ \t]*(\w+)[ \t]*$", re.MULTILINE)


class Place(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    lines: frozenset[int] = frozenset()
    """One of these is run; empty: whatever touches the file, or the engine, may notice."""
    names: frozenset[str] = frozenset()
    """One of these is used: `sql <statement>`, `lua <script>`."""


def find_place(mutant: Mutant) -> Place:
    source = (PACKAGE / mutant.file).read_text()
    suffix = PurePosixPath(mutant.file).suffix
    if suffix == ".py":
        return Place(file=mutant.file, lines=_lines_of_statement(source, mutant.line))
    names = (
        _scripts_with(mutant.file, source, mutant.edit.start)
        if suffix == ".lua"
        else _statements_with(mutant.file, source, mutant.edit.start)
    )
    return Place(file=mutant.file, names=names)


def _lines_of_statement(source: str, line: int) -> frozenset[int]:
    """The lines of the innermost statement within a function; of one with a body, only its head. Empty: it is run by import."""
    found: frozenset[int] = frozenset()
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for statement in _statements_within(function):
            first, last = _head(statement)
            if first <= line <= last and (not found or last - first < len(found)):
                found = frozenset(range(first, last + 1))
    return found


def _statements_within(function: ast.AST) -> Iterator[ast.stmt | ast.excepthandler | ast.match_case]:
    for child in ast.walk(function):
        if child is not function and isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child


def _head(node: ast.stmt | ast.excepthandler | ast.match_case) -> tuple[int, int]:
    first = node.pattern.lineno if isinstance(node, ast.match_case) else node.lineno
    end = getattr(node, "end_lineno", None) or first
    body: list[ast.stmt] = getattr(node, "body", [])
    if not body:
        return first, end
    # `if x: y` on one line: the head and the body are the same.
    return first, max(first, body[0].lineno - 1)


def _statements_with(file: str, source: str, offset: int) -> frozenset[str]:
    """The statements whose text the edit changes. A function of a migration is in those that call it; a trigger in none."""
    folder = PACKAGE / PurePosixPath(file).parts[0] / PurePosixPath(file).parts[1] / "sql"
    if "/migrations/" in file:
        functions = {found[1]: found[0] for path in _migrations(file) for found in SQL_FUNCTION.finditer(path)}
        inside = next((found[1] for found in SQL_FUNCTION.finditer(source) if _is_within(found, offset)), None)
        if inside is None:
            return frozenset()
        changed = _callers_of(inside, functions)
        if any(TRIGGER.search(functions[name]) for name in changed):
            return frozenset()
        statements = _read_statements(str(folder))
        return frozenset(f"sql {name}" for name, text in statements.items() if _mentions(text, changed))
    before = [found[1] for found in STATEMENT.finditer(source) if found.start() <= offset]
    if not before:
        return frozenset()
    name = before[-1]
    if not name.startswith("_"):
        return frozenset({f"sql {name}"})
    parts = _callers_of(name, _read_statements(str(folder)))
    return frozenset(f"sql {part}" for part in parts if not part.startswith("_"))


def _scripts_with(file: str, source: str, offset: int) -> frozenset[str]:
    """The scripts whose text the edit changes; of those that include the file, the ones that call the changed function."""
    name = PurePosixPath(file).stem
    if not name.startswith("_"):
        return frozenset({f"lua {name}"})
    files = _read_files(str((PACKAGE / file).parent), "*.lua")
    including = _callers_of(name, {each: " ".join(INCLUDE.findall(text)) for each, text in files.items()})
    inside = next((found[1] or found[2] for found in LUA_FUNCTION.finditer(source) if _is_within(found, offset)), None)
    if inside is None:
        return frozenset(f"lua {each}" for each in including if not each.startswith("_"))
    functions = {
        f"{each}.{found[1] or found[2]}": found[0]
        for each, text in files.items()
        for found in LUA_FUNCTION.finditer(text)
    }
    changed = {inside}
    while more := {
        id.partition(".")[2]
        for id, text in functions.items()
        if id.partition(".")[0] in including and id.partition(".")[2] not in changed and _mentions(text, changed)
    }:
        changed |= more
    return frozenset(
        f"lua {each}" for each in including if not each.startswith("_") and _mentions(files[each], changed)
    )


def _callers_of(name: str, texts: Mapping[str, str]) -> frozenset[str]:
    """Itself, and all whose texts mention one of these."""
    found = {name}
    while more := {each for each, text in texts.items() if each not in found and _mentions(text, found)}:
        found |= more
    return frozenset(found)


def _mentions(text: str, names: set[str] | frozenset[str]) -> bool:
    return re.search(rf"\b(?:{'|'.join(map(re.escape, sorted(names)))})\b", text) is not None


def _is_within(found: re.Match[str], offset: int) -> bool:
    return found.start() <= offset <= found.end()


def _migrations(file: str) -> list[str]:
    return list(_read_files(str((PACKAGE / file).parent), "*.sql").values())


@cache
def _read_files(folder: str, pattern: str) -> dict[str, str]:
    return {path.stem: path.read_text() for path in sorted((PACKAGE / folder).glob(pattern))}


@cache
def _read_statements(folder: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in _read_files(folder, "*.sql").values():
        parts = STATEMENT.split(text)
        for name, body in zip(parts[1::2], parts[2::2], strict=True):
            found[name] = found.get(name, "") + body
    return found
