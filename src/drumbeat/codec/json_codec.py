"""JSON encoding and decoding by msgspec, extended by types that it does not support itself.

Those are pydantic models (recognised by their methods: pydantic is never imported) and subclasses of plain types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec

from drumbeat.codec.limits import is_deeper


class Undecodable(Exception):
    """Stored text that cannot be decoded: not JSON (`json` is false), or JSON of another shape."""

    def __init__(self, reason: str, *, json: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.json = json


def is_model(kind: Any) -> bool:
    """Whether this class encodes and decodes its own JSON, as pydantic models do."""
    return isinstance(kind, type) and hasattr(kind, "model_validate_json") and hasattr(kind, "model_dump_json")


# msgspec writes these by itself, and asks about them only where it meets one as a key.
_ONLY_AS_KEYS = frozenset({bool, list, tuple, dict, set, frozenset, type(None)})


def _to_builtin(value: Any) -> Any:
    """The JSON value of a type that msgspec does not support."""
    if is_model(type(value)):
        return msgspec.Raw(value.model_dump_json(by_alias=True, round_trip=True, warnings=False).encode())
    if type(value) in _ONLY_AS_KEYS:
        raise NotImplementedError(f"the keys of a dict in JSON are texts and numbers, not {type(value).__name__}")
    match value:
        case str():
            return str.__str__(value)
        case int():
            return int.__index__(value)
        case float():
            return float.__float__(value)
        case Decimal():
            return Decimal(value)
        case datetime():
            return datetime.combine(date(value.year, value.month, value.day), value.timetz())
        case date():
            return date(value.year, value.month, value.day)
        case timedelta():
            return timedelta(value.days, value.seconds, value.microseconds)
        case Mapping():
            return dict(value)
        case Sequence() | Set():
            return list(value)
        case _:
            raise NotImplementedError(f"{type(value).__name__} cannot be written as JSON")


def _from_builtin(kind: Any, value: Any) -> Any:
    """The value of a type that msgspec does not support, from plain JSON values."""
    if kind is object:
        return value
    # By its own JSON, not by its Python rules: a strict model takes the text of a date from JSON only.
    return kind.model_validate_json(msgspec.json.encode(value))


encoder = msgspec.json.Encoder(enc_hook=_to_builtin)


def describe_encoding_problem(error: Exception) -> str:
    """Why a value cannot be encoded, to follow the value's name in a sentence."""
    match error:
        case UnicodeEncodeError():
            return "contains a lone surrogate, which is not valid Unicode"
        case RecursionError():
            return "is nested too deeply, or contains itself"
        case _ if "surrogates not allowed" in str(error):  # as pydantic says it
            return "contains a lone surrogate, which is not valid Unicode"
        case _:
            return f"cannot be written as JSON: {' '.join(str(error).split())}"


def decoder_of(hint: Any) -> msgspec.json.Decoder[Any]:
    """A decoder for this type.

    Raises:
        TypeError: msgspec cannot decode this type, or cannot distinguish its variants in JSON.
        NameError: the type has fields of types that are not defined yet.
    """
    return msgspec.json.Decoder(hint, dec_hook=_from_builtin)


def decode_bounded(decoder: msgspec.json.Decoder[Any], raw: str | bytes, *, limit: int, depth: int) -> Any:
    """Decode untrusted text, bounded in size and depth before it is parsed.

    Raises:
        Undecodable: for any reason.
    """
    try:
        text = raw.encode() if isinstance(raw, str) else raw
    except UnicodeEncodeError:
        raise Undecodable("not JSON: the text has lone surrogates", json=False) from None
    if len(text) > limit:
        raise Undecodable(f"{len(text):,} bytes are over the limit of {limit:,}", json=False)
    if is_deeper(text, depth):
        raise Undecodable(f"nested deeper than {depth} levels, or broken", json=False)
    try:
        return decoder.decode(text)
    except Exception as error:  # a model's own validators run in there, and may raise anything
        raise _decode_error(text, error) from error


def _decode_error(text: bytes, error: Exception) -> Undecodable:
    # A wrong type may come before the position where the text stops being JSON: only a second parse tells.
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
        msgspec.json.decode(text)
    except msgspec.ValidationError:
        pass  # a number too large for a float: well-formed all the same
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as broken:
        return Undecodable(f"not JSON: {broken}", json=False)
    reason = " ".join(str(error).split())
    return Undecodable(
        reason if isinstance(error, msgspec.ValidationError) else f"{type(error).__name__}: {reason}", json=True
    )
