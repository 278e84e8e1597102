"""Types of the standard library and of numpy that msgspec does not support: how they are stored as JSON.

Path, addresses and networks, ZoneInfo and Fraction are texts, a deque is a list, a scalar of numpy is what its `item()` is.
numpy and pydantic are never imported: their types exist only where the program has imported them.
"""

from __future__ import annotations

import ipaddress
import math
import re
import sys
import typing
from collections import deque
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any
from zoneinfo import ZoneInfo

NOT_FINITE = "is NaN or infinite, which JSON cannot keep"
TOO_LARGE = "is an integer beyond 64 bits"
MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1

Convert = Callable[[Any, Any], Any]
"""From a JSON value and a type to a value of that type."""

# Nothing else: "1e999999999" would be computed.
_FRACTION = re.compile(r"-?[0-9]+(/[0-9]+)?")


class Unkeepable(Exception):
    """A value that has no place in JSON. The message follows its name in a sentence: `is NaN ...`."""


def is_model(kind: Any) -> bool:
    """Whether this class encodes and decodes its own JSON, as pydantic models do."""
    return isinstance(kind, type) and hasattr(kind, "model_validate_json") and hasattr(kind, "model_dump_json")


def is_numpy_scalar(kind: Any) -> bool:
    """Whether this is a type of numpy's scalars, such as `numpy.int64`."""
    generic = getattr(sys.modules.get("numpy"), "generic", None)
    return isinstance(generic, type) and isinstance(kind, type) and issubclass(kind, generic)


def is_stored(kind: Any) -> bool:
    """Whether this module knows how values of this type are stored."""
    plain = typing.get_origin(kind) or kind
    return plain is deque or plain in _TEXTS or (is_numpy_scalar(plain) and plain.__name__ in _NUMPY)


def shape_of(kind: Any) -> list[str]:
    """The stored form of such a type, for a fingerprint."""
    return ["numpy" if is_numpy_scalar(kind) else "type", kind.__name__]


def stored_as(kind: type) -> type:
    """The type that stands for it in JSON."""
    return str if kind in _TEXTS else list if kind is deque else _NUMPY[kind.__name__]


def to_stored(value: Any) -> Any:
    """The JSON value of an instance of such a type; NotImplemented: it is of another type.

    Raises:
        Unkeepable: it is, but this value cannot be stored.
    """
    kind = type(value)
    if is_numpy_scalar(kind):
        return _numpy_to_stored(value)
    if isinstance(value, deque):
        return list(value)
    if isinstance(value, ZoneInfo):
        if value.key is None:
            raise Unkeepable("is a ZoneInfo without a key")
        return value.key
    if isinstance(value, _TEXT_BASES):
        return str(value)
    return NotImplemented


def from_stored(kind: Any, stored: Any, convert: Convert) -> Any:
    """A value of such a type.

    Raises:
        ValueError, TypeError: it is not the JSON of one.
    """
    plain = typing.get_origin(kind) or kind
    if plain is deque:
        inner = typing.get_args(kind)
        return deque(convert(stored, list[inner[0]] if inner else list))  # type: ignore[valid-type]
    if is_numpy_scalar(plain):
        return _numpy_from_stored(plain, stored, convert)
    text = convert(stored, str)
    if plain is Fraction and not _FRACTION.fullmatch(text):
        raise ValueError(f"not a fraction: {text!r:.60}")
    try:
        return plain(text)
    except (ValueError, KeyError, OSError, ZeroDivisionError) as error:
        raise ValueError(f"not a {plain.__name__}: {' '.join(str(error).split())}") from error


def _numpy_to_stored(value: Any) -> Any:
    kind = type(value).__name__
    if kind not in _NUMPY:
        raise Unkeepable(f"is numpy.{kind}, which cannot be stored without @app.codec(numpy.{kind})")
    item = str(value) if kind == "datetime64" else value.item()
    if isinstance(item, float) and not math.isfinite(item):
        raise Unkeepable(NOT_FINITE)
    if isinstance(item, int) and not MIN_INT64 <= item <= MAX_INT64:
        raise Unkeepable(TOO_LARGE)
    return item


def _numpy_from_stored(kind: Any, stored: Any, convert: Convert) -> Any:
    item = convert(stored, _NUMPY[kind.__name__])
    try:
        made = kind(item)
    except OverflowError as error:
        raise ValueError(str(error)) from error
    if type(item) is int and made != item:
        raise ValueError(f"{item} is beyond {kind.__name__}")
    return made


_NUMPY: dict[str, type] = {
    **dict.fromkeys(("bool", "bool_"), bool),
    **dict.fromkeys(("int8", "int16", "int32", "int64", "intc", "longlong"), int),
    **dict.fromkeys(("uint8", "uint16", "uint32", "uint64", "uintc", "ulonglong"), int),
    **dict.fromkeys(("float16", "float32", "float64"), float),
    "str_": str,
    "bytes_": bytes,
    "datetime64": str,
}
"""What stands in JSON for numpy's scalar types. The others (complex, longdouble, timedelta64) have nothing exact there."""
_ADDRESSES = (ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network, ipaddress.IPv6Network)
_TEXT_BASES = (PurePath, *_ADDRESSES, Fraction)
_TEXTS: frozenset[type] = frozenset(
    {
        *(PurePath, Path, PurePosixPath, PureWindowsPath, type(Path())),
        *(*_ADDRESSES, ipaddress.IPv4Interface, ipaddress.IPv6Interface),
        *(ZoneInfo, Fraction),
    }
)
