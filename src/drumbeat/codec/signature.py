"""The signature of a task: its arguments to JSON and back.

Built once, when the task is registered. Annotations that name what is defined further down in the module are resolved
at first use. The JSON is an object of what was given, by name: defaults are not stored, the worker's own apply.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, NoReturn, Self

import msgspec

from drumbeat.codec.fidelity import ALWAYS_SAME, difference
from drumbeat.codec.hints import fingerprint, hint_of, text_of, unsupported
from drumbeat.codec.limits import MAX_DEPTH, MAX_PAYLOAD, has_nul, is_deeper
from drumbeat.codec.refusal import misbound, too_large, unencodable, wrong_type
from drumbeat.codec.wire import Undecodable, decoder_of, encoder, read
from drumbeat.errors import ConfigError, InvalidArguments

_Kind = inspect.Parameter
_KINDS: dict[Any, str] = {
    _Kind.POSITIONAL_ONLY: "positional",
    _Kind.POSITIONAL_OR_KEYWORD: "any",
    _Kind.KEYWORD_ONLY: "keyword",
}
_ABSENT: Any = object()
# The object of all arguments is one level more.
_DEPTH = MAX_DEPTH + 1


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter of a task."""

    name: str
    kind: str
    """`positional`, `keyword`, or `any`."""
    required: bool
    annotation: Any = Any


class _Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is known once all types are."""

    hints: dict[str, Any]
    decoder: msgspec.json.Decoder[Any]
    hash: str
    returns: Any


class Signature:
    """How a task is called, and how such a call is stored."""

    def __init__(self, name: str, parameters: Iterable[Parameter], function: Callable[..., Any] | None = None) -> None:
        self.name = name
        self.parameters = tuple(parameters)
        self._function = function
        self._names_around: Mapping[str, Any] | None = None
        self._plan: _Plan | None = None
        self._positional = [p.name for p in self.parameters if p.kind != "keyword"]
        # Only if all of them can be: -1 is no number of arguments.
        self._all_by_position = len(self._positional) if len(self._positional) == len(self.parameters) else -1
        self._by_keyword = frozenset(p.name for p in self.parameters if p.kind != "positional")
        self._required = frozenset(p.name for p in self.parameters if p.required)
        self._taken_in_order = self._order_of_all()

    @classmethod
    def of(cls, function: Callable[..., Any], *, names: Mapping[str, Any] | None = None) -> Self:
        """The signature of a function; `names` may be the locals around its definition, for annotations in text.

        Raises:
            ConfigError: a parameter cannot be stored, and which.
        """
        name = getattr(function, "__qualname__", None) or repr(function)
        signature = cls(name, (_parameter(name, p) for p in inspect.signature(function).parameters.values()), function)
        signature._names_around = names
        try:
            signature._plan = signature._resolved()
        except (NameError, AttributeError):
            pass  # named but not defined yet; asked again at first use
        return signature

    @classmethod
    def of_value(cls, name: str, type: Any) -> Self:
        """The signature of a batch task, which is enqueued with one value and handed many."""
        signature = cls(name, [Parameter(name="value", kind="any", required=True, annotation=type)])
        signature._plan = signature._resolved()
        return signature

    @property
    def hash(self) -> str:
        """12 hexadecimal characters that change when the stored form of the arguments does."""
        return self._ready().hash

    @property
    def hints(self) -> Mapping[str, Any]:
        """The type of each parameter."""
        return self._ready().hints

    @property
    def returns(self) -> Any:
        """The type that results are read back by; `Any` if there is no annotation, or none that JSON can follow."""
        return self._ready().returns

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, limit: int = MAX_PAYLOAD) -> str:
        """The JSON of a call.

        Raises:
            InvalidArguments: which argument, and why it would not arrive as it was given.
        """
        plan = self._plan or self._ready()
        if len(args) == self._all_by_position and not kwargs:
            given = dict(zip(self._positional, args, strict=True))
        else:
            given = self._bound(args, kwargs)
        try:
            raw = encoder.encode(given)
        except Exception as error:  # a model's own serializers run in there, and may raise anything
            raise unencodable(self.name, given, error) from error
        if len(raw) > limit:
            raise too_large(self.name, given, len(raw), limit)
        self._check_text(raw, given)
        try:
            got = plan.decoder.decode(raw)
        except Exception as error:
            raise wrong_type(self.name, given, plan.hints, error) from error
        for name, value in given.items():
            kind = type(value)
            back = getattr(got, name)
            # The usual arguments, without the price of a call.
            if kind is type(back) and kind in ALWAYS_SAME:
                continue
            if (found := difference(value, back)) is not None:
                self._refuse_changed(name, value, plan.hints[name], found)
        return raw.decode()

    def decode(self, raw: str | bytes, *, limit: int = MAX_PAYLOAD) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and the keyword arguments of a stored call.

        Raises:
            Undecodable: it is no JSON, or not the JSON of these parameters.
        """
        plan = self._plan or self._ready()
        got = read(plan.decoder, raw, limit=limit, depth=_DEPTH)
        if self._taken_in_order is not None:
            return self._taken_in_order(got), {}
        return self._split(got)

    def _bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        given = dict(zip(self._positional, args, strict=False))
        given.update(kwargs)
        complete = len(given) == len(args) + len(kwargs) and self._required <= given.keys()
        if not complete or not self._by_keyword >= kwargs.keys():
            raise misbound(self.name, self.parameters, args, kwargs)
        return given

    def _split(self, got: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for place, parameter in enumerate(self.parameters):
            value = getattr(got, parameter.name)
            if value is _ABSENT:
                continue
            if parameter.kind != "positional":
                kwargs[parameter.name] = value
            elif len(args) == place:
                args.append(value)
            else:
                raise Undecodable(f"{parameter.name} cannot be given without those before it", json=True)
        return tuple(args), kwargs

    def _order_of_all(self) -> Callable[[Any], tuple[Any, ...]] | None:
        """How to take the arguments if there are only plain required ones; the hot path of most tasks."""
        if any(not p.required or p.kind == "keyword" for p in self.parameters):
            return None
        match [p.name for p in self.parameters]:
            case []:
                return lambda got: ()
            case [only]:
                return lambda got: (getattr(got, only),)
            case names:
                return attrgetter(*names)

    def _ready(self) -> _Plan:
        if self._plan is None:
            try:
                self._plan = self._resolved()
            except (NameError, AttributeError) as error:
                raise ConfigError(f"{self.name}: an annotation cannot be resolved: {error}") from error
        return self._plan

    def _resolved(self) -> _Plan:
        hints = {parameter.name: self._hint(parameter) for parameter in self.parameters}
        fields = [(p.name, hints[p.name], *(() if p.required else (_ABSENT,))) for p in self.parameters]
        shape = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
        return _Plan(
            hints=hints,
            decoder=decoder_of(shape),
            hash=fingerprint([(p.name, p.kind, p.required, hints[p.name]) for p in self.parameters]),
            returns=self._returns(),
        )

    def _hint(self, parameter: Parameter) -> Any:
        try:
            hint = parameter.annotation
            if self._function is not None:
                hint = hint_of(hint, self._function, self._names_around)
            decoder_of(hint)
            unknown = unsupported(hint)
        except (NameError, AttributeError) as error:
            error.args = (f"of parameter {parameter.name!r}: {error}",)
            raise
        except (TypeError, SyntaxError) as error:
            raise ConfigError(f"{self.name}: parameter {parameter.name!r}: {error}", parameter.name) from error
        if unknown is not None:
            raise ConfigError(
                f"{self.name}: parameter {parameter.name!r} is annotated {text_of(hint)}, but {text_of(unknown)} cannot be "
                "stored as JSON: use a plain type, a dataclass, a msgspec.Struct, a TypedDict or a pydantic model",
                parameter.name,
            )
        return hint

    def _returns(self) -> Any:
        if self._function is None:
            return Any
        try:
            hint = hint_of(inspect.signature(self._function).return_annotation, self._function, self._names_around)
            decoder_of(hint)
            return Any if unsupported(hint) else hint
        except (NameError, AttributeError, TypeError, SyntaxError):
            return Any  # a result is a courtesy: its type must not keep a task from being registered

    def _check_text(self, raw: bytes, given: dict[str, Any]) -> None:
        if b"\\u0000" in raw and has_nul(raw):
            self._refuse_first(given, has_nul, "contains a NUL character")
        if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and is_deeper(raw, _DEPTH):
            reason = f"is nested deeper than {MAX_DEPTH} levels"
            self._refuse_first(given, lambda part: is_deeper(part, MAX_DEPTH), reason)

    def _refuse_first(self, given: dict[str, Any], is_bad: Callable[[bytes], bool], reason: str) -> None:
        for name, value in given.items():
            if is_bad(encoder.encode(value)):
                raise InvalidArguments(f"{self.name}: argument {name!r} {reason}", name)

    def _refuse_changed(self, name: str, value: Any, hint: Any, found: tuple[str, str]) -> NoReturn:
        where, reason = found
        if not where and hint is not Any and "would arrive as" in reason:
            reason = f"must be {text_of(hint)}, not {type(value).__name__}"
        raise InvalidArguments(f"{self.name}: argument {name!r}{f' at {where}' if where else ''} {reason}", name)


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
