"""Checks whether a value survives the round trip through JSON.

A comparison of the given value with the decoded one needs no types: the decoder has applied them. A value alone is checked for
numbers that JSON cannot hold. Both traverse only values that have been encoded, which are finite and not too deep.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Collection, Mapping, MutableMapping, Sequence, Set
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary
from zoneinfo import ZoneInfo

from drumbeat.codec.stored_types import MAX_INT64, MIN_INT64, NOT_FINITE, TOO_LARGE, is_model, is_numpy_scalar

Difference = tuple[str, str]
"""Where in the value (`[3].name`, or empty), and what is wrong there."""

# Of one type before and after: then they are equal as well.
ALWAYS_SAME: frozenset[type] = frozenset({str, bool, type(None), bytes, date, time, UUID})
# A subclass may be given for these if it is equal: StrEnum for str, a pendulum DateTime for datetime.
_MAY_BE_SUBCLASSED = frozenset(
    {str, int, float, Decimal, date, datetime, time, timedelta, UUID, PurePosixPath, PureWindowsPath}
)
_BYTES = (bytes, bytearray, memoryview)
# Asked at every record of a list: finding out takes longer than comparing one. Classes that come and go are let go.
_fields: MutableMapping[type, Collection[str] | None] = WeakKeyDictionary()

LONG_NUMBER_DIGITS = 19
"""The minimum number of digits of an integer beyond 64 bits."""
LONG_NUMBER = re.compile(rb"[0-9]{%d}" % LONG_NUMBER_DIGITS)


def is_equal(given: Any, got: Any, raw: bytes) -> bool:
    """A quick yes for values of types that `hints.is_told_by_equality`; a no means nothing yet."""
    return bool(given == got) and LONG_NUMBER.search(raw) is None


def find_difference(given: Any, got: Any) -> Difference | None:
    """The first difference between the given and the decoded value; None if there is none."""
    kind = type(given)
    if kind is type(got):
        if kind in ALWAYS_SAME:
            return None
        if kind is int:
            return None if MIN_INT64 <= given <= MAX_INT64 else ("", TOO_LARGE)
        if kind is float:
            return None if math.isfinite(given) else ("", NOT_FINITE)
        if kind is list:
            return _compare_sequences(given, got)
        if kind is dict:
            return _compare_mappings(given, got)
        if (fields := fields_of(kind)) is not None:
            return _compare_fields(given, got, fields)
    return _compare_others(given, got)


def _compare_others(given: Any, got: Any) -> Difference | None:
    match got:
        case float() if isinstance(given, int) and not isinstance(given, bool):
            if not MIN_INT64 <= given <= MAX_INT64:
                return "", TOO_LARGE
            return None if given == got else ("", f"is {given}, which a float cannot hold exactly: annotate it as int")
        case None:
            return ("", NOT_FINITE) if isinstance(given, float) else _describe_change(given, got)
        case Decimal() if isinstance(given, Decimal):
            return None if given.is_finite() and given == got else ("", NOT_FINITE)
        case dict() if isinstance(given, Mapping):
            return _compare_mappings(given, got)
        case list() | tuple() if isinstance(given, Sequence) and not isinstance(given, str | bytes | bytearray):
            # Only named tuples of one type are the same, as other records are.
            is_named = hasattr(given, "_fields") or hasattr(got, "_fields")
            return _describe_change(given, got) if is_named else _compare_sequences(given, got)
        case deque() if isinstance(given, deque):
            if given.maxlen is not None:
                return "", f"is a deque with maxlen={given.maxlen}, which would be lost"
            return _compare_sequences(given, got)
        case ZoneInfo() if isinstance(given, ZoneInfo):
            return None if given.key == got.key else _describe_change(given, got)
        case set() | frozenset() if isinstance(given, Set):
            return _compare_sets(given, got)
        case bytes() | bytearray() | memoryview() if isinstance(given, _BYTES):
            return None if bytes(given) == bytes(got) else _describe_change(given, got)
    same_kind = type(given) is type(got) or (type(got) in _MAY_BE_SUBCLASSED and isinstance(given, type(got)))
    if not same_kind and is_numpy_scalar(type(given)) and not is_numpy_scalar(type(given.item())):
        return find_difference(given.item(), got)
    compare: Any = type(given).__eq__
    if same_kind and compare is object.__eq__ and not isinstance(given, Enum):
        return None  # of a type with a codec: `Signature` compares what is stored
    if not same_kind or given != got or (type(given).__name__ == "datetime64" and given.dtype != got.dtype):
        return _describe_change(given, got)
    return ("", TOO_LARGE) if isinstance(given, int) and not MIN_INT64 <= given <= MAX_INT64 else None


def _describe_change(given: Any, got: Any) -> Difference:
    before, after = type(given).__name__, type(got).__name__
    if before == after:
        return "", f"would arrive changed: {given!r:.60} as {got!r:.60}"
    return "", f"is {before}, but would arrive as {after}: annotate it as {before}, or convert it"


def _compare_sequences(given: Sequence[Any], got: Sequence[Any]) -> Difference | None:
    if len(given) != len(got):
        return "", f"would arrive with {len(got)} items instead of {len(given)}"
    if len(given) > 8 and _are_plain(given, got):
        return None
    for place, (one, other) in enumerate(zip(given, got, strict=True)):
        if (found := find_difference(one, other)) is not None:
            return f"[{place}]{found[0]}", found[1]
    return None


def _are_plain(given: Collection[Any], got: Collection[Any]) -> bool:
    """Whether all items are of plain types, before and after; checked without a Python loop."""
    kinds = set(map(type, given))
    if kinds != set(map(type, got)):
        return False
    if kinds == {int}:
        return bool(min(given) >= MIN_INT64 and max(given) <= MAX_INT64)
    # A float that came back as one was finite: others are null in JSON.
    return kinds <= ALWAYS_SAME or kinds == {float}


def _compare_mappings(given: Mapping[Any, Any], got: Mapping[Any, Any]) -> Difference | None:
    if len(given) != len(got):
        lost = [key for key in given if key not in got]
        return "", f"would arrive without {lost[0]!r:.60}" if lost else "has keys that are the same text in JSON"
    # JSON keeps the order of keys, and so does the decoder: the n-th belongs to the n-th.
    for (key, one), (got_key, other) in zip(given.items(), got.items(), strict=True):
        if not (type(key) is str is type(got_key)) and (found := find_difference(key, got_key)) is not None:
            return "", f"has a key that {found[1]}"
        if type(one) is type(other) and type(one) in ALWAYS_SAME:
            continue
        if (found := find_difference(one, other)) is not None:
            return f"[{key!r:.60}]{found[0]}", found[1]
    return None


def _compare_sets(given: Set[Any], got: Set[Any]) -> Difference | None:
    by_value = {item: item for item in got}
    if len(by_value) != len(given):
        return "", "has items that are the same in JSON"
    for item in given:
        if item not in by_value:
            return "", f"has an item that would be lost: {item!r:.60}"
        if (found := find_difference(item, by_value[item])) is not None:
            return "", f"has an item that {found[1]}"
    return None


def fields_of(kind: type) -> Collection[str] | None:
    """The field names of a record type; None for other types."""
    try:
        return _fields[kind]
    except KeyError:
        return _fields.setdefault(kind, _find_fields(kind))


def _find_fields(kind: type) -> Collection[str] | None:
    if is_model(kind):
        return kind.model_fields  # type: ignore[attr-defined, no-any-return]
    for listed in ("__struct_fields__", "__dataclass_fields__", "_fields"):
        if (fields := getattr(kind, listed, None)) is not None:
            return fields  # type: ignore[no-any-return]
    attributes = getattr(kind, "__attrs_attrs__", None)
    return None if attributes is None else [attribute.name for attribute in attributes]


def _compare_fields(given: Any, got: Any, fields: Collection[str]) -> Difference | None:
    for name in fields:
        one, other = getattr(given, name, None), getattr(got, name, None)
        if (found := find_difference(one, other)) is not None:
            return f".{name}{found[0]}", found[1]
    extra = getattr(given, "__pydantic_extra__", None)
    return _compare_mappings(extra, got.__pydantic_extra__ or {}) if extra else None


def find_unkeepable(value: Any) -> Difference | None:
    """The first number in the value that JSON or a store cannot hold."""
    match value:
        case None | bool() | str() | bytes():
            return None
        case int():
            return None if MIN_INT64 <= value <= MAX_INT64 else ("", TOO_LARGE)
        case float():
            return None if math.isfinite(value) else ("", NOT_FINITE)
        case Decimal():
            return None if value.is_finite() else ("", NOT_FINITE)
        case Mapping():
            items = [(f"[{key!r:.60}]", part) for key, item in value.items() for part in (key, item)]
        case Sequence() | Set():
            items = [(f"[{place}]", item) for place, item in enumerate(value)]
        case _:
            items = [(f".{name}", getattr(value, name, None)) for name in fields_of(type(value)) or ()]
    for where, item in items:
        if (found := find_unkeepable(item)) is not None:
            return where + found[0], found[1]
    return None
