"""`@app.around`: context managers of the program around each run of a handler, in the handler's own thread, process or task.

Here they are registered and checked; `worker/around_call.py` enters them.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from drumbeat.errors import ConfigError
from drumbeat.names import short_repr

from .registered_function import source_location_of

if TYPE_CHECKING:
    from drumbeat.internals import AppInternals

AroundFunction = (
    Callable[[], Iterator[Any]]
    | Callable[[], AsyncIterator[Any]]
    | Callable[[], AbstractContextManager[Any]]
    | Callable[[], AbstractAsyncContextManager[Any]]
)
F = TypeVar("F", bound=AroundFunction)
HandlerKind = Literal["async", "def"]
KINDS = ("async", "def")


@dataclass(frozen=True, kw_only=True)
class Around:
    """One registered function. `open` makes a context manager, for one run."""

    function: Callable[..., Any]
    open: Callable[[], Any]
    is_async: bool
    handlers: HandlerKind | None
    """The kind of handlers that it surrounds; None: all."""

    @property
    def name(self) -> str:
        return getattr(self.function, "__qualname__", "around")

    @property
    def source_location(self) -> str:
        return source_location_of(self.function)

    def surrounds(self, *, is_async: bool) -> bool:
        """Whether it is entered around handlers of this kind."""
        return self.handlers is None or (self.handlers == "async") is is_async

    def check_handler(self, name: str, *, is_async: bool) -> None:
        """
        Raises:
            ConfigError: it is async and would have to surround a `def` handler, whose thread has no event loop.
        """
        if self.is_async and not is_async and self.surrounds(is_async=False):
            raise ConfigError(
                f"task {name!r} is a `def`, and {self.name} ({self.source_location}) is async: a thread has no event loop "
                "to run it on; write it as a `def` with one `yield`, which surrounds both kinds, "
                'or say @app.around(handlers="async")'
            )


def parse_around(function: Any, handlers: Any) -> Around:
    """
    Raises:
        ConfigError: it is no context manager function without parameters.
    """
    if handlers is not None and handlers not in KINDS:
        raise ConfigError(
            f'@app.around takes handlers="async", handlers="def" or nothing, not {short_repr(handlers)}', "handlers"
        )
    wrapped = inspect.unwrap(function) if callable(function) else function
    is_async = inspect.isasyncgenfunction(wrapped)
    if not is_async and not inspect.isgeneratorfunction(wrapped):
        raise ConfigError(
            "around takes a function with one `yield`, `def` or `async def`, or such a function decorated with "
            f"contextlib.contextmanager or asynccontextmanager, not {short_repr(function)}"
        )
    try:
        inspect.signature(function).bind()
    except TypeError:
        raise ConfigError(
            f"{source_location_of(function)}: a function that surrounds jobs takes no arguments: "
            "ask drumbeat.current_job() for the job"
        ) from None
    if is_async and handlers == "def":
        raise ConfigError(
            f'{source_location_of(function)}: a `def` handler has no event loop; with handlers="def" write a `def`'
        )
    if wrapped is not function:
        open_manager = function  # a context manager function already
    else:
        open_manager = (contextlib.asynccontextmanager if is_async else contextlib.contextmanager)(function)
    return Around(function=function, open=open_manager, is_async=is_async, handlers=handlers)


class AroundDecorators:
    """The part of `Drumbeat` that registers what surrounds jobs."""

    _internals: AppInternals

    @overload
    def around(self, function: F, /) -> F: ...
    @overload
    def around(self, *, handlers: HandlerKind) -> Callable[[F], F]: ...
    def around(self, *function: Any, handlers: HandlerKind | None = None) -> Any:
        """Decorator: a function with one `yield` that surrounds each run of a handler, in its own thread, process or task.

        Several nest in the order of their registration. What it raises, before or after the `yield`, is the failure of the
        attempt. An exception of the handler is thrown into it: it may raise another instead, but cannot make a success of it.
        A `def` surrounds handlers of both kinds, an `async def` only async ones: if the app has others too, say
        handlers="async".

        Raises:
            ConfigError: it cannot surround the handlers of this app; the message says which, and what to do.
        """
        if not function:
            return functools.partial(self._register_around, handlers=handlers)
        return self._register_around(*function, handlers=handlers)

    def _register_around(self, function: Any, *, handlers: HandlerKind | None) -> Any:
        self._internals.registry.add_around(parse_around(function, handlers))
        return function
