"""Resolves, checks and fingerprints the types of a function's parameters.

A type is accepted if msgspec, or the type itself, can decode it from JSON. The fingerprint tells whether two programs, or two
versions of one, use the same arguments; it depends on the shapes of types, not on class names.
"""

from __future__ import annotations

import functools
import inspect
import json
import typing
from collections.abc import Callable
from hashlib import blake2b
from types import SimpleNamespace
from typing import Any

import msgspec

from drumbeat.codec.json_codec import is_model

_JSON_ITSELF = (
    msgspec.inspect.AnyType,
    msgspec.inspect.NoneType,
    msgspec.inspect.BoolType,
    msgspec.inspect.IntType,
    msgspec.inspect.FloatType,
    msgspec.inspect.StrType,
)


_MAY_BE_LARGE = (
    msgspec.inspect.AnyType,
    msgspec.inspect.ListType,
    msgspec.inspect.DictType,
    msgspec.inspect.UnionType,
)


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter of a task."""

    name: str
    kind: str
    """`positional`, `keyword`, or `any`."""
    required: bool
    annotation: Any = Any


def resolve_hint(annotation: Any, function: Callable[..., Any]) -> Any:
    """The type of an annotation of this function.

    Raises:
        NameError, AttributeError: a name in it is not defined yet.
    """
    if annotation is inspect.Parameter.empty:
        return Any
    while isinstance(function, functools.partial):
        function = function.func
    module_names = getattr(inspect.unwrap(function), "__globals__", {})
    holder = SimpleNamespace(__annotations__={"it": annotation})
    return typing.get_type_hints(holder, module_names, include_extras=True)["it"]


def find_unsupported(hint: Any) -> type | None:
    """The class within the type that cannot be decoded from JSON; None if there is none."""
    found: list[type] = []
    _describe(msgspec.inspect.type_info(hint), {}, found)
    return found[0] if found else None


def can_compare_by_equality(hint: Any) -> bool:
    """Whether a list or dict of this type that is decoded as equal is also of the same types, as JSON's own types are.

    Not for Decimal (equal to a float), string enums, and types that contain them.
    """
    node = msgspec.inspect.type_info(hint)
    return isinstance(node, _MAY_BE_LARGE) and _is_json_itself(node)


def _is_json_itself(node: msgspec.inspect.Type) -> bool:
    match node:
        case msgspec.inspect.ListType():
            return _is_json_itself(node.item_type)
        case msgspec.inspect.DictType():
            return isinstance(node.key_type, msgspec.inspect.StrType) and _is_json_itself(node.value_type)
        case msgspec.inspect.UnionType():
            return all(map(_is_json_itself, node.types))
        case _:
            return isinstance(node, _JSON_ITSELF)


def fingerprint(parts: list[tuple[str, str, bool, Any]]) -> str:
    """12 hexadecimal characters from (name, kind, required, type) of each parameter, the same in every process."""
    shapes = [
        [name, kind, required, _describe(msgspec.inspect.type_info(hint), {}, [])]
        for name, kind, required, hint in parts
    ]
    return blake2b(json.dumps(shapes, sort_keys=True).encode(), digest_size=6).hexdigest()


def _describe(node: Any, seen: dict[int, int], unknown: list[type]) -> Any:
    """The shape of a type as plain JSON values; classes that cannot be decoded are added to `unknown`."""
    if isinstance(node, tuple):
        return [_describe(item, seen, unknown) for item in node]
    if isinstance(node, msgspec.inspect.Field):
        return [node.encode_name, node.required, _describe(node.type, seen, unknown)]
    if not isinstance(node, msgspec.inspect.Type):
        return node if isinstance(node, str | int | float | bool | None) else str(node)
    if id(node) in seen:
        return ["again", seen[id(node)]]
    seen[id(node)] = len(seen)
    match node:
        case msgspec.inspect.CustomType():
            return _describe_custom(node.cls, unknown)
        case msgspec.inspect.EnumType():
            return ["enum", sorted((member.value for member in node.cls), key=repr)]
        case msgspec.inspect.UnionType():
            shapes = [_describe(member, seen, unknown) for member in node.types]
            return ["union", sorted(shapes, key=json.dumps)]
        case msgspec.inspect.Metadata():
            return _describe(node.type, seen, unknown)
        case _:
            names = [name for name in node.__struct_fields__ if name != "cls"]
            return [type(node).__name__, *(_describe(getattr(node, name), seen, unknown) for name in names)]


def _describe_custom(kind: Any, unknown: list[type]) -> Any:
    if kind is object:
        return "any"
    if is_model(kind):
        return ["model", _strip_titles(kind.model_json_schema())]
    unknown.append(kind)
    return "unknown"


def _strip_titles(schema: Any) -> Any:
    match schema:
        case dict():
            # A title in text is prose; a field that is called "title" has an object there.
            prose = [key for key in ("title", "description") if isinstance(schema.get(key), str)]
            return {key: _strip_titles(item) for key, item in schema.items() if key not in prose}
        case list():
            return [_strip_titles(item) for item in schema]
        case _:
            return schema


def format_hint(hint: Any) -> str:
    """The type as it is written in code."""
    if isinstance(hint, type) and not typing.get_args(hint):
        return hint.__name__
    return str(hint).replace("typing.", "")
