"""Batch tasks, whose function gets many calls at once, for work that is cheaper in bulk: a broker, a bulk insert.

Each call is its own job, enqueued with one value; only the function sees a list of them.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar, Union, get_args, get_origin, overload

import msgspec

from drumbeat.codec import Signature
from drumbeat.errors import ConfigError
from drumbeat.ids import JobId
from drumbeat.protocols import Enqueuer

from .options import Options
from .task import Task

T = TypeVar("T")
R = TypeVar("R")
Results = Sequence[R | Exception] | None
"""What the function of a batch task returns."""


class Call(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One call in a batch."""

    value: T
    id: JobId
    key: str | None
    attempt: int
    scheduled_for: datetime
    token: int


class BatchTask(Task[[T], R], Generic[T, R]):
    """A task whose function gets a list of calls, and returns a result or an exception for each, or None for all."""

    def __init__(self, enqueuer: Enqueuer, function: Callable[..., Any], name: str, options: Options) -> None:
        value_type, self._returns = _types_of(function, name)
        super().__init__(enqueuer, function, name, options, Signature.of_value(name, value_type, enqueuer.codec))

    @property
    def returns(self) -> Any:
        return self._returns

    def __call__(self, calls: list[Call[T]]) -> Any:
        """Call the function itself; nothing is enqueued."""
        return self.function(calls)


class BatchDecorator(Protocol):
    """The type of `@app.task(batch=...)`."""

    @overload
    def __call__(
        self, function: Callable[[list[Call[T]]], Coroutine[Any, Any, None] | None], /
    ) -> BatchTask[T, None]: ...
    @overload
    def __call__(
        self, function: Callable[[list[Call[T]]], Coroutine[Any, Any, Results[R]] | Results[R]], /
    ) -> BatchTask[T, R]: ...


def _types_of(function: Callable[..., Any], name: str) -> tuple[Any, Any]:
    """The type of a call's value, and that of its result."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, AttributeError, TypeError) as error:
        raise ConfigError(f"task {name!r}: an annotation cannot be resolved: {error}") from error
    returns = hints.pop("return", None)
    return _value_type(next(iter(hints.values()), Any), name), _result_type(returns)


def _value_type(hint: Any, name: str) -> Any:
    if hint is Any or hint is list:
        return Any
    inner = get_args(hint)
    if get_origin(hint) in (list, Sequence) and inner and (inner[0] is Call or get_origin(inner[0]) is Call):
        return (get_args(inner[0]) or (Any,))[0]
    raise ConfigError(f"task {name!r} has batch=, so its function takes list[Call[...]], not {hint}", "batch")


def _result_type(hint: Any) -> Any:
    """`R` of `list[R | Exception] | None`; Any for other annotations."""
    lists = [part for part in _members(hint) if get_origin(part) in (list, Sequence) and get_args(part)]
    if len(lists) != 1:
        return Any
    kept = [part for part in _members(get_args(lists[0])[0]) if not _is_exception(part)]
    return Union[tuple(kept)] if kept else Any  # noqa: UP007 - made at run time


def _members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _is_exception(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, BaseException)
