"""The signature of a task: encodes its arguments to JSON and decodes them.

Built once, when the task is registered. Annotations that name classes defined later in the module are resolved at first use.
The JSON is an object of the given arguments, by name: defaults are not stored, those of the worker apply.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, Self

import msgspec
from msgspec import UNSET

from drumbeat.codec import hints
from drumbeat.codec.argument_errors import binding_error, changed_value_error, encoding_error, size_error, type_error
from drumbeat.codec.fidelity import ALWAYS_SAME, LONG_NUMBER, LONG_NUMBER_DIGITS, find_difference, is_equal
from drumbeat.codec.hints import Parameter
from drumbeat.codec.json_codec import PLAIN, JsonCodec, Undecodable, decode_bounded, encoder
from drumbeat.codec.limits import MAX_DEPTH, MAX_PAYLOAD, has_nul, is_deeper
from drumbeat.codec.parent_values import ParentReference
from drumbeat.core.edge import Binding
from drumbeat.errors import ConfigError, InvalidArguments

_Kind = inspect.Parameter
_KINDS: dict[Any, str] = {
    _Kind.POSITIONAL_ONLY: "positional",
    _Kind.POSITIONAL_OR_KEYWORD: "any",
    _Kind.KEYWORD_ONLY: "keyword",
}
# Without float, whose NaN is null in JSON.
_PLAIN = (int, str, bool)
# The object of all arguments is one level more.
_DEPTH = MAX_DEPTH + 1


class _ResolvedSignature(msgspec.Struct, frozen=True, kw_only=True):
    """What is derived from the resolved types."""

    hints: dict[str, Any]
    shape: type[Any]
    """A record with a field for each parameter: binds a call as Python does, faster than inspect."""
    decoder: msgspec.json.Decoder[Any]
    by_equality: tuple[bool, ...]
    """For each parameter, whether equality proves that the value survived the round trip."""
    plain_types: tuple[type, ...] | None
    """The types of the parameters, if all can be positional and values of exactly these types survive the round trip."""
    min_long_length: int
    """JSON shorter than this contains no integer beyond 64 bits."""
    hash: str
    has_codec: bool
    """Whether a parameter contains a type for which the app has a codec."""


class Signature:
    """The parameters of a task, and the stored form of its calls."""

    def __init__(
        self,
        name: str,
        parameters: Iterable[Parameter],
        function: Callable[..., Any] | None = None,
        codec: JsonCodec = PLAIN,
    ) -> None:
        self.name = name
        self.codec = codec
        self._encode = codec.encoder.encode
        self.parameters = tuple(parameters)
        self._function = function
        self._resolved_signature: _ResolvedSignature | None = None
        self._returns: Any = None
        """Resolved at first use: by then all codecs are registered."""
        self._max_positional = sum(p.kind != "keyword" for p in self.parameters)
        self._positional_only = frozenset(p.name for p in self.parameters if p.kind == "positional")
        self._is_plain = all(p.required and p.kind != "keyword" for p in self.parameters)
        self._values = _getter([p.name for p in self.parameters])
        self._partial: dict[frozenset[str], Signature] = {}
        """Without these parameters, which are bound to results of other jobs."""

    @classmethod
    def of(cls, function: Callable[..., Any], codec: JsonCodec = PLAIN) -> Self:
        """The signature of a function.

        Raises:
            ConfigError: a parameter cannot be stored; the message names it.
        """
        name = getattr(function, "__qualname__", None) or repr(function)
        parameters = (_parameter(name, p) for p in inspect.signature(function).parameters.values())
        signature = cls(name, parameters, function, codec)
        try:
            signature._resolved_signature = signature._resolve()
        except (NameError, AttributeError):
            pass  # not defined yet; resolved at first use
        return signature

    @classmethod
    def of_value(cls, name: str, type: Any, codec: JsonCodec = PLAIN) -> Self:
        """The signature of a batch task, which is enqueued with one value and called with many."""
        signature = cls(name, [Parameter(name="value", kind="any", required=True, annotation=type)], codec=codec)
        signature._resolved_signature = signature._resolve()
        return signature

    @property
    def hash(self) -> str:
        """12 hexadecimal characters that change when the stored form of the arguments does."""
        return self._ensure_resolved().hash

    @property
    def hints(self) -> Mapping[str, Any]:
        """The type of each parameter."""
        return self._ensure_resolved().hints

    @property
    def returns(self) -> Any:
        """The type that results are decoded to; `Any` without an annotation, or if JSON cannot represent it."""
        if self._returns is None:
            self._returns = self._resolve_returns()
        return self._returns

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, limit: int = MAX_PAYLOAD) -> str:
        """The JSON of a call.

        Raises:
            InvalidArguments: which argument would not survive the round trip, and why.
        """
        plan = self._resolved_signature or self._ensure_resolved()
        if plan.plain_types is not None and not kwargs and tuple(map(type, args)) == plan.plain_types:
            # Most calls: strings and numbers, which always survive the round trip.
            try:
                raw = self._encode(plan.shape(*args))
            except UnicodeEncodeError:
                raw = b""
            is_small = len(raw) < plan.min_long_length or LONG_NUMBER.search(raw) is None
            if is_small and 0 < len(raw) <= limit and b"\\u0000" not in raw:
                return raw.decode()
        call = self._bind(plan.shape, args, kwargs)
        try:
            raw = self._encode(call)
        except Exception as error:  # a model's own serializers run in there, and may raise anything
            raise encoding_error(self.name, self.codec, self._given_arguments(call), error) from error
        if len(raw) > limit:
            raise size_error(self.name, self.codec, self._given_arguments(call), len(raw), limit)
        if b"\\u0000" in raw or len(raw) > 2 * MAX_DEPTH:
            self._check_text(raw, call)
        try:
            back = plan.decoder.decode(raw)
        except Exception as error:
            raise type_error(self.name, self._given_arguments(call), plan.hints, error) from error
        # Equal lengths, because both are of one record type; `strict=` would cost a seventh of the whole.
        for value, arrived, by_equality in zip(self._values(call), self._values(back), plan.by_equality):  # noqa: B905
            # The usual arguments, without the cost of a function call.
            if value is arrived or (type(value) is type(arrived) and type(value) in ALWAYS_SAME):
                continue
            if not (by_equality and is_equal(value, arrived, raw)) and find_difference(value, arrived) is not None:
                self._raise_for_changed(plan, call, back)
        if plan.has_codec and not self.codec.is_same_json(call, back):
            self._raise_for_codec(call, back)
        return raw.decode()

    def encode_bound(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, limit: int = MAX_PAYLOAD
    ) -> tuple[str, dict[str, ParentReference]]:
        """As `encode`, and the arguments that are results of other jobs: they are not stored. Of `Results` their number is.

        Raises:
            InvalidArguments: as `encode`.
        """
        given = self._given_arguments(self._bind(self._ensure_resolved().shape, args, kwargs))
        references = {name: value for name, value in given.items() if type(value) is ParentReference}
        names = frozenset(references)
        if (rest := self._partial.get(names)) is None:
            kept = [msgspec.structs.replace(p, kind="keyword") for p in self.parameters if p.name not in names]
            rest = self._partial[names] = Signature(self.name, kept, self._function, self.codec)
        text = rest.encode((), {name: value for name, value in given.items() if name not in names}, limit=limit)
        counts = {name: len(each.parents) for name, each in references.items() if each.binding is Binding.RESULTS}
        if counts:
            text = encoder.encode(msgspec.json.decode(text, type=dict[str, msgspec.Raw]) | counts).decode()
        return text, references

    def decode(self, raw: str | bytes, *, limit: int = MAX_PAYLOAD) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and the keyword arguments of a stored call.

        Raises:
            Undecodable: it is no JSON, or not the JSON of these parameters.
        """
        plan = self._resolved_signature or self._ensure_resolved()
        call = decode_bounded(plan.decoder, raw, limit=limit, depth=_DEPTH)
        return (self._values(call), {}) if self._is_plain else self._split(call)

    def _bind(self, shape: type[Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if len(args) > self._max_positional or not self._positional_only.isdisjoint(kwargs):
            raise binding_error(self.name, self.parameters, args, kwargs)
        try:
            return shape(*args, **kwargs)
        except TypeError:
            raise binding_error(self.name, self.parameters, args, kwargs) from None

    def _given_arguments(self, call: Any) -> dict[str, Any]:
        names = (parameter.name for parameter in self.parameters)
        return {name: value for name, value in zip(names, self._values(call), strict=True) if value is not UNSET}

    def _split(self, call: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for place, parameter in enumerate(self.parameters):
            value = getattr(call, parameter.name)
            if value is UNSET:
                continue
            if parameter.kind != "positional":
                kwargs[parameter.name] = value
            elif len(args) == place:
                args.append(value)
            else:
                raise Undecodable(f"{parameter.name} cannot be given without those before it", json=True)
        return tuple(args), kwargs

    def _ensure_resolved(self) -> _ResolvedSignature:
        if self._resolved_signature is None:
            try:
                self._resolved_signature = self._resolve()
            except (NameError, AttributeError) as error:
                raise ConfigError(f"{self.name}: an annotation cannot be resolved: {error}") from error
        return self._resolved_signature

    def _resolve(self) -> _ResolvedSignature:
        types = {parameter.name: self._resolve_hint(parameter) for parameter in self.parameters}
        shape = self._build_struct(types)
        by_position = self._max_positional == len(self.parameters)
        is_plain = by_position and all(hint in _PLAIN for hint in types.values())
        return _ResolvedSignature(
            hints=types,
            shape=shape,
            decoder=self.codec.decoder_of(shape),
            by_equality=tuple(map(hints.can_compare_by_equality, types.values())),
            plain_types=tuple(types.values()) if is_plain else None,
            min_long_length=len(encoder.encode(dict.fromkeys(types, 0))) - len(types) + LONG_NUMBER_DIGITS,
            hash=hints.fingerprint([(p.name, p.kind, p.required, types[p.name]) for p in self.parameters], self.codec),
            has_codec=any(hints.has_codec(hint, self.codec) for hint in types.values()),
        )

    def _build_struct(self, types: dict[str, Any]) -> type[Any]:
        # UNSET is not encoded, and stands for absent arguments.
        fields = {p.name: (p.name, types[p.name], *(() if p.required else (UNSET,))) for p in self.parameters}
        by_keyword = [fields[p.name] for p in self.parameters if p.kind == "keyword"]
        by_position = [fields[p.name] for p in self.parameters if p.kind != "keyword"]
        base = msgspec.defstruct("ByKeyword", by_keyword, kw_only=True, gc=False)
        return msgspec.defstruct("Arguments", by_position, bases=(base,), forbid_unknown_fields=True, gc=False)

    def _resolve_hint(self, parameter: Parameter) -> Any:
        try:
            hint = parameter.annotation
            if self._function is not None:
                hint = hints.resolve_hint(hint, self._function)
            self.codec.decoder_of(hint)
            unknown = hints.find_unsupported(hint, self.codec)
        except (NameError, AttributeError) as error:
            error.args = (f"of parameter {parameter.name!r}: {error}",)
            raise
        except (TypeError, SyntaxError) as error:
            reason = hints.describe_refused_union(error) or error
            raise ConfigError(f"{self.name}: parameter {parameter.name!r}: {reason}", parameter.name) from error
        if unknown is not None:
            raise ConfigError(
                f"{self.name}: parameter {parameter.name!r} is annotated {hints.format_hint(hint)}, "
                f"but {hints.format_hint(unknown)} cannot be stored as JSON: "
                "use a plain type, a dataclass, a msgspec.Struct, a TypedDict or a pydantic model, "
                f"or register @app.codec({hints.format_hint(unknown)}) before this task",
                parameter.name,
            )
        return hint

    def _resolve_returns(self) -> Any:
        if self._function is None:
            return Any
        try:
            hint = hints.resolve_hint(inspect.signature(self._function).return_annotation, self._function)
            self.codec.decoder_of(hint)
            return Any if hints.find_unsupported(hint, self.codec) else hint
        except (NameError, AttributeError, TypeError, SyntaxError):
            return Any  # the type of a result must not keep a task from being registered

    def _check_text(self, raw: bytes, call: Any) -> None:
        if has_nul(raw):
            self._raise_for_first(call, has_nul, "contains a NUL character")
        if is_deeper(raw, _DEPTH):
            reason = f"is nested deeper than {MAX_DEPTH} levels"
            self._raise_for_first(call, lambda part: is_deeper(part, MAX_DEPTH), reason)

    def _raise_for_first(self, call: Any, is_bad: Callable[[bytes], bool], reason: str) -> None:
        for name, value in self._given_arguments(call).items():
            if is_bad(self._encode(value)):
                raise InvalidArguments(f"{self.name}: argument {name!r} {reason}", name)

    def _raise_for_codec(self, call: Any, back: Any) -> None:
        for name, value in self._given_arguments(call).items():
            if not self.codec.is_same_json(value, getattr(back, name)):
                raise InvalidArguments(f"{self.name}: argument {name!r} would arrive changed by its codec", name)

    def _raise_for_changed(self, plan: _ResolvedSignature, call: Any, back: Any) -> None:
        for name, value in self._given_arguments(call).items():
            if (found := find_difference(value, getattr(back, name))) is not None:
                raise changed_value_error(self.name, name, value, plan.hints[name], found)


def return_type(function: Callable[..., Any], codec: JsonCodec = PLAIN) -> Any:
    """The type that a result of this function is decoded to; `Any` without an annotation, or if JSON cannot represent it."""
    while isinstance(function, functools.partial):
        function = function.func
    try:
        return Signature("", (), function, codec).returns
    except ValueError:
        return Any  # a builtin without a signature


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    match names:
        case []:
            return lambda record: ()
        case [only]:
            return lambda record: (getattr(record, only),)
        case _:
            return attrgetter(*names)


def _parameter(function: str, parameter: inspect.Parameter) -> Parameter:
    kind = _KINDS.get(parameter.kind)
    if kind is None:
        raise ConfigError(
            f"{function}: parameter {str(parameter).partition(':')[0]} cannot be stored: "
            "a task's parameters have names of their own; use a list or a dict instead of * and **",
            parameter.name,
        )
    required = parameter.default is inspect.Parameter.empty
    return Parameter(name=parameter.name, kind=kind, required=required, annotation=parameter.annotation)
