"""docs/records.md: the fields of every record that the public API gives, read from the records themselves.

python -m tests.meta.record_page        writes the page
"""

import ast
import dataclasses
import inspect
import re
import sys
import typing
from collections.abc import Iterator
from enum import Enum
from types import ModuleType, UnionType
from typing import Any, get_args, get_origin

import msgspec

import drumbeat
from drumbeat import Drumbeat, Event
from drumbeat.context import ClaimedField
from drumbeat.core.claim import ClaimedJob
from tests.meta.project import ROOT

PAGE = ROOT / "docs" / "records.md"
HEADER = """# Records

What the API gives: each record, and its fields. Records are immutable. This page is made from the records (`python -m
tests.meta.record_page`; a test compares them). Times are `datetime` with UTC, lengths of time seconds.
"""


def to_markdown() -> str:
    """The content of the page."""
    found = sorted(find_records(), key=lambda kind: kind.__name__)
    events = [kind for kind in found if issubclass(kind, Event)]
    others = [kind for kind in found if kind not in events]
    parts = [HEADER, *map(_section, others), "## Events\n\nOf `@app.on_event`; see [workers](workers.md#events).\n"]
    return "\n".join([*parts, *(_section(kind, level=3) for kind in events)])


def find_records() -> set[type]:
    """The records among the public names, those that the methods of `app.jobs` and the others give, and what is in them."""
    found: set[type] = set()
    todo: list[Any] = [getattr(drumbeat, name) for name in drumbeat.__all__]
    for part in vars(Drumbeat()).values():
        for name, method in inspect.getmembers(type(part), inspect.iscoroutinefunction):
            if not name.startswith("_"):
                names = vars(sys.modules[method.__module__]) | {"builtins": __import__("builtins")}
                todo.append(_evaluate(method.__annotations__["return"], names))
    while todo:
        hint = todo.pop()
        todo += get_args(hint)
        kind = get_origin(hint) or hint
        if _is_record(kind) and kind not in found:
            found.add(kind)
            todo += [hint for _, hint, _ in _fields(kind)]
    return found


def _evaluate(annotation: Any, names: dict[str, Any]) -> Any:
    try:
        return eval(annotation, names) if isinstance(annotation, str) else annotation
    except NameError:  # imported for type checkers only: no record of ours
        return None


def _is_record(kind: Any) -> bool:
    return (
        isinstance(kind, type)
        and kind.__module__.startswith("drumbeat.")
        and (issubclass(kind, msgspec.Struct) or dataclasses.is_dataclass(kind))
        and not issubclass(kind, BaseException)
    )


def _section(kind: type, level: int = 2) -> str:
    meaning = " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())
    if not kind.__doc__ or meaning.startswith(f"{kind.__name__}("):
        meaning = ""
    rows = [f"| `{name}` | `{_format(hint)}` | {_escape(text)} |" for name, hint, text in _fields(kind)]
    rows += [f"| `{name}` | `{_format(hint)}` | {_escape(text)} |" for name, hint, text in _properties(kind)]
    head = f"{'#' * level} {kind.__name__}\n"
    table = "\n".join(["| field | type | |", "|---|---|---|", *rows]) + "\n" if rows else "No fields.\n"
    return "\n".join([head, *([_escape(meaning) + "\n"] if meaning else []), table])


def _fields(kind: type) -> Iterator[tuple[str, Any, str]]:
    texts = _docstrings(kind)
    for name, hint in _types(kind).items():
        if not name.startswith("_"):
            yield name, hint, _description(hint) or texts.get(name, "")


def _types(kind: type) -> dict[str, Any]:
    if issubclass(kind, msgspec.Struct):
        return {field.name: field.type for field in msgspec.structs.fields(kind)}
    hints = typing.get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}  # type: ignore[arg-type]


def _properties(kind: type) -> Iterator[tuple[str, Any, str]]:
    texts = _docstrings(kind)
    for name, value in inspect.getmembers_static(kind):
        if isinstance(value, property) and not name.startswith("_"):
            hint = typing.get_type_hints(value.fget).get("return", Any)
            yield name, hint, " ".join((inspect.getdoc(value) or "").split())
    for name, value in vars(kind).items():
        if isinstance(value, ClaimedField):
            hint = _types(ClaimedJob).get(name, int)  # the others are numbers
            yield name, hint, texts.get(name, "")


def _description(hint: Any) -> str:
    return next(
        (each.description or "" for each in getattr(hint, "__metadata__", ()) if isinstance(each, msgspec.Meta)), ""
    )


def _docstrings(kind: type) -> dict[str, str]:
    """The texts below the fields of a class, and those of its bases."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        module = sys.modules.get(each.__module__)
        if module is not None and each.__module__.startswith("drumbeat."):
            found |= _docstrings_in(module).get(each.__qualname__, {})
    return found


def _docstrings_in(module: ModuleType) -> dict[str, dict[str, str]]:
    classes: dict[str, dict[str, str]] = {}
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ClassDef):
            texts = classes.setdefault(node.name, {})
            for field, text in zip(node.body, node.body[1:], strict=False):
                is_text = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
                target: ast.expr | None = field.target if isinstance(field, ast.AnnAssign) else None
                target = field.targets[0] if isinstance(field, ast.Assign) else target
                if is_text and isinstance(target, ast.Name):
                    texts[target.id] = " ".join(str(text.value.value).split())  # type: ignore[attr-defined]
    return classes


def _format(hint: Any) -> str:
    if hint is None or hint is type(None):
        return "None"
    if hasattr(hint, "__metadata__"):
        return _format(hint.__origin__)
    if hasattr(hint, "__supertype__"):
        return _format(hint.__supertype__)
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (typing.Union, UnionType):
        return " \\| ".join(dict.fromkeys(map(_format, inner)))
    if inner and origin is not None and origin is not typing.Literal:
        words = ", ".join("..." if each is Ellipsis else _format(each) for each in inner)
        return f"{getattr(origin, '__name__', origin)}[{words}]"
    if isinstance(hint, typing.TypeVar):
        return "Any"
    if isinstance(hint, type) and issubclass(hint, Enum):
        return " \\| ".join(repr(member.value) for member in hint)
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")


def _escape(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", text)


if __name__ == "__main__":
    PAGE.write_text(to_markdown(), encoding="utf-8")
