"""What tasks and rooms have in common: a function of the program under a name, which can still be called directly."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Generic, ParamSpec, TypeVar

from drumbeat.errors import ConfigError
from drumbeat.names import check_name, short_repr
from drumbeat.protocols import Enqueuer

P = ParamSpec("P")
R = TypeVar("R")
AsyncCallable = Callable[P, Coroutine[Any, Any, R]]


class RegisteredFunction(Generic[P, R]):
    def __init__(self, enqueuer: Enqueuer, function: Callable[..., Any], name: str) -> None:
        self._enqueuer = enqueuer
        self.function = function
        self.name = name
        self.source_location = source_location_of(function)
        self.is_async = inspect.iscoroutinefunction(function)
        functools.update_wrapper(self, function, updated=())  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class AsyncFunction(RegisteredFunction[P, R]):
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call the function itself; nothing is enqueued or sent."""
        called: Coroutine[Any, Any, R] = self.function(*args, **kwargs)
        return called


class SyncFunction(RegisteredFunction[P, R]):
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself; nothing is enqueued or sent."""
        returned: R = self.function(*args, **kwargs)
        return returned


def check_function(kind: str, function: Any, name: str | None) -> str:
    """The name of a `kind`, such as `task`. Refuses what cannot be one: classes, generators, and other tasks and rooms."""
    if not callable(function) or isinstance(function, type) or hasattr(function, "source_location"):
        raise ConfigError(f"a {kind} must be a function, not {short_repr(function)}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(f"{function.__qualname__} is a generator: a {kind} must return, not yield")
    return check_name(kind, getattr(function, "__name__", "") if name is None else name, ConfigError)


def source_location_of(function: Callable[..., Any]) -> str:
    """file:line of a function."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return "an unknown location" if code is None else f"{code.co_filename}:{code.co_firstlineno}"
