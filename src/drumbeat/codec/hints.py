"""Resolves, checks and fingerprints the types of a function's parameters.

A type is accepted if msgspec, or the type itself, can decode it from JSON. The fingerprint tells whether two programs, or two
versions of one, use the same arguments; it depends on the shapes of types, not on class names.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
import sys
import types
import typing
from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from types import SimpleNamespace
from typing import Any

import msgspec

from drumbeat.codec.json_codec import JsonCodec
from drumbeat.codec.parent_values import is_results, item_type
from drumbeat.codec.stored_types import is_model, is_stored, shape_of

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


_REFUSED_UNION = re.compile(r"union.* - type `(.*)` is not supported")
_PRIVATE_MODULE = re.compile(r"\b([^\W\d_]\w*(?:\.[^\W\d_]\w*)*)\._\w+\.(\w+)")
"""A class of a private module within a package that may export it: `pathlib._local.Path`."""
_CHOOSE = "choose one of them"
_UNION_REASONS = (
    ("str-like", "they are all stored as text", f"{_CHOOSE}, or put each into a field of its own"),
    ("array-like", "they are all stored as lists", _CHOOSE),
    ("custom type", "models, and types that JSON does not know itself, may stand only beside None", _CHOOSE),
    ("must be tagged", "they are all stored as objects", "give each a tag: class Cat(msgspec.Struct, tag=True)"),
    ("dict-like", "they are all stored as objects", "make them msgspec.Structs with tag=True, or choose one"),
    ("dataclass", "they are all stored as objects", "make them msgspec.Structs with tag=True, or choose one"),
)
"""Words of msgspec's refusal, what they mean, and what to do."""


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


def find_unsupported(hint: Any, codec: JsonCodec) -> type | None:
    """The class within the type that cannot be decoded from JSON; None if there is none."""
    reader = _ShapeReader(codec)
    reader.describe_hint(hint)
    return reader.unsupported[0] if reader.unsupported else None


def has_codec(hint: Any, codec: JsonCodec) -> bool:
    """Whether the type contains one for which the app has a codec."""
    reader = _ShapeReader(codec)
    reader.describe_hint(hint)
    return reader.has_codec


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


def fingerprint(parts: list[tuple[str, str, bool, Any]], codec: JsonCodec) -> str:
    """12 hexadecimal characters from (name, kind, required, type) of each parameter, the same in every process."""
    shapes = [[name, kind, required, _ShapeReader(codec).describe_hint(hint)] for name, kind, required, hint in parts]
    return blake2b(json.dumps(shapes, sort_keys=True).encode(), digest_size=6).hexdigest()


class _ShapeReader:
    """Describes types as plain JSON values, and notes classes that cannot be decoded."""

    def __init__(self, codec: JsonCodec) -> None:
        self._codec = codec
        self._seen: dict[int, int] = {}
        self._nodes: list[Any] = []  # kept, so that no id is used twice
        self.unsupported: list[type] = []
        self.has_codec = False

    def describe_hint(self, hint: Any) -> Any:
        """The shape of a type."""
        return self._describe(msgspec.inspect.type_info(_without_deques(hint)))

    def _describe(self, node: Any) -> Any:
        if isinstance(node, tuple):
            return [self._describe(item) for item in node]
        if isinstance(node, msgspec.inspect.Field):
            return [node.encode_name, node.required, self._describe(node.type)]
        if not isinstance(node, msgspec.inspect.Type):
            return node if isinstance(node, str | int | float | bool | None) else str(node)
        if id(node) in self._seen:
            return ["again", self._seen[id(node)]]
        self._seen[id(node)] = len(self._seen)
        self._nodes.append(node)
        match node:
            case msgspec.inspect.CustomType():
                return self._describe_custom(node.cls)
            case msgspec.inspect.EnumType():
                return ["enum", sorted((member.value for member in node.cls), key=repr)]
            case msgspec.inspect.UnionType():
                shapes = [self._describe(member) for member in node.types]
                return ["union", sorted(shapes, key=json.dumps)]
            case msgspec.inspect.Metadata():
                return self._describe(node.type)
            case _:
                names = [name for name in node.__struct_fields__ if name != "cls"]
                return [type(node).__name__, *(self._describe(getattr(node, name)) for name in names)]

    def _describe_custom(self, kind: Any) -> Any:
        if kind is object:
            return "any"
        if is_results(kind):
            return ["results", self.describe_hint(item_type(kind))]
        if (own := self._codec.find(kind)) is not None:
            self.has_codec = True
            return ["codec", self.describe_hint(own.stored)]
        if is_model(kind):
            return ["model", _strip_titles(kind.model_json_schema())]
        if is_stored(kind):
            return shape_of(kind)
        self.unsupported.append(kind)
        return "unknown"


def _without_deques(hint: Any) -> Any:
    """With lists in their place, which is how they are stored: msgspec does not tell what is in a deque."""
    if hint is deque:
        return list
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is deque:
        return list[_without_deques(inner[0])]  # type: ignore[misc]
    if origin in (list, dict, set, frozenset, tuple):
        return origin[tuple(map(_without_deques, inner))]
    if origin in (typing.Union, types.UnionType):
        return typing.Union[tuple(map(_without_deques, inner))]  # noqa: UP007 - made at run time
    return hint


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


def describe_refused_union(error: BaseException) -> str | None:
    """Why msgspec refuses a union, in words for whoever wrote the annotation; None: it refuses something else."""
    found = _REFUSED_UNION.search(str(error))
    if found is None:
        return None
    union = _as_written(found[1]).replace("__main__.", "")
    for words, kind, advice in _UNION_REASONS:
        if words in str(error):
            return f"JSON cannot tell the members of {union} apart: {kind}; {advice}"
    return f"JSON cannot tell the members of {union} apart: choose one of them"


def format_hint(hint: Any) -> str:
    """The type as it is written in code."""
    if isinstance(hint, type) and not typing.get_args(hint):
        return hint.__name__
    return _as_written(str(hint))


def _as_written(text: str) -> str:
    """Types as programs import them: Python 3.13 itself calls Path `pathlib._local.Path`."""
    return _PRIVATE_MODULE.sub(_to_public_name, text).replace("typing.", "")


def _to_public_name(found: re.Match[str]) -> str:
    public, name = found.groups()
    return f"{public}.{name}" if name in vars(sys.modules.get(public, object)) else found[0]
