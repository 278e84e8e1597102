"""JSON encoding and decoding by msgspec, extended by types that it does not support itself.

Those are the types of `stored_types.py`, pydantic models (recognised by their methods: pydantic is never imported), subclasses
of plain types, and the types for which an app has a codec. Each app has a `JsonCodec` of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec

from drumbeat.codec.fidelity import find_unkeepable
from drumbeat.codec.limits import is_deeper
from drumbeat.codec.parent_values import REFERENCE_INSIDE, ParentReference, Results, is_results, results_of_count
from drumbeat.codec.stored_types import Unkeepable, from_stored, is_model, to_stored
from drumbeat.codec.type_codec import TypeCodec
from drumbeat.errors import ConfigError


class Undecodable(Exception):
    """Stored text that cannot be decoded: not JSON (`json` is false), or JSON of another shape."""

    def __init__(self, reason: str, *, json: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.json = json


# msgspec writes these by itself, and asks about them only where it meets one as a key.
_ONLY_AS_KEYS = frozenset({bool, list, tuple, dict, set, frozenset, type(None)})


class JsonCodec:
    """Encodes and decodes the values of one app."""

    def __init__(self) -> None:
        self._codecs: dict[type, TypeCodec] = {}
        self.encoder = msgspec.json.Encoder(enc_hook=self._to_builtin)
        self._sorting_encoder = msgspec.json.Encoder(enc_hook=self._to_builtin, order="deterministic")
        self._result_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}

    def add(self, codec: TypeCodec) -> None:
        """
        Raises:
            ConfigError: the type has another codec already.
        """
        other = self._codecs.get(codec.kind)
        if other is not None and other.source_location != codec.source_location:
            raise ConfigError(
                f"there are two codecs of {codec.kind.__name__}: one at {other.source_location}, "
                f"one at {codec.source_location}"
            )
        self._codecs[codec.kind] = codec
        self._result_decoders.clear()

    def find(self, kind: Any) -> TypeCodec | None:
        """The app's own codec of exactly this type."""
        return self._codecs.get(kind) if isinstance(kind, type) else None

    def decoder_of(self, hint: Any) -> msgspec.json.Decoder[Any]:
        """A decoder for this type.

        Raises:
            TypeError: msgspec cannot decode this type, or cannot distinguish its variants in JSON.
            NameError: the type has fields of types that are not defined yet.
        """
        return msgspec.json.Decoder(hint, dec_hook=self._from_builtin)

    def result_decoder_of(self, hint: Any) -> msgspec.json.Decoder[Any]:
        """As `decoder_of`, and kept for the next result."""
        try:
            decoder = self._result_decoders.get(hint)
        except TypeError:  # not hashable, as Annotated[int, [...]] is not
            return self.decoder_of(hint)
        if decoder is None:
            decoder = self._result_decoders[hint] = self.decoder_of(hint)
        return decoder

    def is_same_json(self, one: Any, other: Any) -> bool:
        """Whether both are stored in the same way: for types that do not say when their values are equal."""
        return self._sorting_encoder.encode(one) == self._sorting_encoder.encode(other)

    def _to_builtin(self, value: Any) -> Any:
        """The JSON value of a type that msgspec does not support."""
        if type(value) is ParentReference:
            raise Unkeepable(REFERENCE_INSIDE)
        if type(value) is Results:
            raise Unkeepable("is given by chord(...) or task.map(..., then=...), not by a caller")
        if self._codecs and (codec := self._find_for_value(type(value))) is not None:
            return _encode_by(codec, value)
        if is_model(type(value)):
            return msgspec.Raw(value.model_dump_json(by_alias=True, round_trip=True, warnings=False).encode())
        if type(value) in _ONLY_AS_KEYS:
            raise NotImplementedError(f"the keys of a dict in JSON are texts and numbers, not {type(value).__name__}")
        if (stored := to_stored(value)) is not NotImplemented:
            return stored
        return _to_plain(value)

    def _find_for_value(self, kind: type) -> TypeCodec | None:
        return next((codec for base in kind.__mro__ if (codec := self._codecs.get(base)) is not None), None)

    def _from_builtin(self, kind: Any, value: Any) -> Any:
        """The value of a type that msgspec does not support, from plain JSON values."""
        if kind is object:
            return value
        if is_results(kind):
            return results_of_count(value)
        if (codec := self.find(kind)) is not None:
            return self._decode_by(codec, value)
        if is_model(kind):
            # By its own JSON, not by its Python rules: a strict model takes the text of a date from JSON only.
            return kind.model_validate_json(msgspec.json.encode(value))
        return from_stored(kind, value, self._convert)

    def _decode_by(self, codec: TypeCodec, value: Any) -> Any:
        try:
            stored = value if codec.stored is Any else self._convert(value, codec.stored)
        except ValueError as error:
            raise ValueError(f"not what the codec of {codec.kind.__name__} stores: {error}") from error
        try:
            return codec.decode(stored)
        except Exception as error:  # the program's own code
            told = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise ValueError(f"the codec of {codec.kind.__name__} cannot read it: {told}") from error

    def _convert(self, value: Any, hint: Any) -> Any:
        try:
            return msgspec.convert(value, hint, dec_hook=self._from_builtin, str_keys=True)
        except msgspec.ValidationError as error:
            # The decoder that called the hook adds the path to other errors only.
            raise ValueError(str(error).rpartition(" - at `$`")[0] or str(error)) from error


def _encode_by(codec: TypeCodec, value: Any) -> Any:
    try:
        stored = codec.encode(value)
    except Exception as error:  # the program's own code
        told = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise Unkeepable(f"cannot be stored: the codec of {codec.kind.__name__} raised {told}") from error
    if (found := find_unkeepable(stored)) is not None:
        raise Unkeepable(f"cannot be stored: what the codec of {codec.kind.__name__} gives{found[0]} {found[1]}")
    return stored


def _to_plain(value: Any) -> Any:
    """A subclass of a plain type as that type."""
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
            name = type(value).__name__
            hint = "" if type(value) is object else f" without @app.codec({name})"
            raise Unkeepable(f"cannot be stored: {name} cannot be written as JSON{hint}")


PLAIN = JsonCodec()
"""Without codecs of an app."""
encoder = PLAIN.encoder
decoder_of = PLAIN.decoder_of


def describe_encoding_problem(error: Exception) -> str:
    """Why a value cannot be encoded, to follow the value's name in a sentence."""
    match error:
        case UnicodeEncodeError():
            return "contains a lone surrogate, which is not valid Unicode"
        case RecursionError():
            return "is nested too deeply, or contains itself"
        case Unkeepable():
            return str(error)
        case _ if "surrogates not allowed" in str(error):  # as pydantic says it
            return "contains a lone surrogate, which is not valid Unicode"
        case _:
            return f"cannot be written as JSON: {' '.join(str(error).split())}"


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
