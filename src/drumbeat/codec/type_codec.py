"""`@app.codec(Type)`: how values of a program's own type are stored, and the checks of such a codec where it is registered."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import msgspec

from drumbeat.codec.stored_types import is_model, is_stored
from drumbeat.errors import ConfigError
from drumbeat.names import short_repr

T = TypeVar("T")


class ValueCodec(Protocol[T]):
    """What `@app.codec(Type)` decorates: a class with these two methods, static or not, and a constructor without arguments."""

    def encode(self, value: T, /) -> Any:
        """What is stored for it: any value that JSON has, or of a type that can be stored itself."""

    def decode(self, stored: Any, /) -> T:
        """The value again. If the parameter is annotated, what was stored is converted to that type before."""


class CodecDecorator(Protocol[T]):
    """The type of `@app.codec(Type)`."""

    def __call__(self, codec: type[ValueCodec[T]], /) -> type[ValueCodec[T]]: ...


@dataclass(frozen=True, kw_only=True)
class TypeCodec:
    """The codec of one type."""

    kind: type
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]
    stored: Any
    """The annotation of what `decode` takes."""
    source_location: str


def parse_codec(kind: Any, codec: Any, source_location: str) -> TypeCodec:
    """
    Raises:
        ConfigError: the type needs no codec, or this is none.
    """
    check_kind(kind)
    try:
        made = codec() if isinstance(codec, type) else codec
    except TypeError as error:
        raise ConfigError(f"the codec of {kind.__name__} is made without arguments: {error}") from error
    for name, parameter in (("encode", "value"), ("decode", "stored")):
        method = getattr(made, name, None)
        if not callable(method) or not _takes_one(method):
            raise ConfigError(
                f"the codec of {kind.__name__} must be a class with encode(value) and decode(stored): "
                f"{short_repr(codec)} has no {name}({parameter})"
            )
    return TypeCodec(
        kind=kind,
        encode=made.encode,
        decode=made.decode,
        stored=_stored_type(kind, made.decode),
        source_location=source_location,
    )


def check_kind(kind: Any) -> None:
    """
    Raises:
        ConfigError: this is no class, or one whose values are stored without a codec.
    """
    if not isinstance(kind, type) or typing.get_args(kind):
        raise ConfigError(f"@app.codec takes a class, not {short_repr(kind)}")
    is_custom = isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType)
    if not is_custom or is_model(kind) or is_stored(kind) or kind is object:
        raise ConfigError(f"{kind.__name__} needs no codec: its values are stored as they are")


def _takes_one(method: Callable[..., Any]) -> bool:
    try:
        inspect.signature(method).bind(None)
    except TypeError:
        return False
    except ValueError:
        pass  # of the C library: it does not say
    return True


def _stored_type(kind: type, decode: Callable[..., Any]) -> Any:
    try:
        parameter = next(iter(inspect.signature(decode).parameters))
        stored = typing.get_type_hints(decode).get(parameter, Any)
        msgspec.json.Decoder(stored)
        return stored
    except (StopIteration, ValueError):
        return Any
    except (NameError, AttributeError, TypeError) as error:
        raise ConfigError(f"the codec of {kind.__name__}: the annotation of decode: {error}") from error
