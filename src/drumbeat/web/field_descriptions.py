"""What the source says below a field of a record, for the OpenAPI document: one text for readers of the code and of the API."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec


def add_descriptions(components: dict[str, Any], types: Iterable[Any]) -> None:
    """Put the text below each field into the schemas of these types, and of all that they are made of."""
    records = {each.__name__: each for each in _records(types)}
    for schema in components.values():
        # A generic record is titled Page[Job].
        record = records.get(str(schema.get("title", "")).partition("[")[0])
        if record is None:
            continue
        for name, text in field_descriptions(record).items():
            if name in schema.get("properties", {}):
                schema["properties"][name].setdefault("description", text)


def require_all_fields(components: dict[str, Any], responses: Iterable[Any], requests: Iterable[Any]) -> None:
    """A response has all of its fields, also those that have a default in Python."""
    names = {each.__name__ for each in _records(responses) - _records(requests)}
    for schema in components.values():
        if str(schema.get("title", "")).partition("[")[0] in names and "properties" in schema:
            schema["required"] = list(schema["properties"])


def field_descriptions(record: type) -> dict[str, str]:
    """The text below each field, also of the records it is derived from."""
    found: dict[str, str] = {}
    for kind in reversed(record.__mro__):
        if issubclass(kind, msgspec.Struct) and kind is not msgspec.Struct:
            found |= _own(kind)
    return found


def _own(record: type) -> dict[str, str]:
    [tree] = ast.parse(textwrap.dedent(inspect.getsource(record))).body
    assert isinstance(tree, ast.ClassDef)
    found: dict[str, str] = {}
    for field, below in zip(tree.body, tree.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str() as text)):
                found[name] = inspect.cleandoc(text).replace("\n", " ")
            case _:
                pass
    return found


def _records(types: Iterable[Any]) -> set[type]:
    found: set[type] = set()
    for info in msgspec.inspect.multi_type_info(list(types)):
        _walk(info, found)
    return found


def _walk(info: Any, found: set[type]) -> None:
    if isinstance(info, msgspec.inspect.StructType):
        kind = getattr(info.cls, "__origin__", info.cls)
        # A generic record holds other things each time.
        if kind in found and kind is info.cls:
            return
        found.add(kind)
    for part in _parts(info):
        _walk(part, found)


def _parts(info: Any) -> Iterator[Any]:
    if isinstance(info, msgspec.inspect.StructType):
        yield from (field.type for field in info.fields)
    elif isinstance(info, msgspec.inspect.UnionType):
        yield from info.types
    elif isinstance(info, msgspec.inspect.TupleType):
        yield from info.item_types
    elif isinstance(info, msgspec.inspect.DictType):
        yield info.value_type
    elif isinstance(info, msgspec.inspect.Metadata):
        yield info.type
    elif hasattr(info, "item_type"):
        yield info.item_type
