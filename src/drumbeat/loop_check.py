"""Async calls need an event loop, sync calls must not be made on one. Whoever mixes them up is told the right name."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, TypeVar, cast

from drumbeat.errors import WrongContext

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def check_no_loop(api_name: str, instead: str) -> None:
    """Raise in the thread of a running event loop: a blocking call there would wait for itself."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise WrongContext(api_name, instead, loop_runs=True)


def awaited_on_loop(call: Coroutine[Any, Any, T], api_name: str, instead: str) -> Coroutine[Any, Any, T]:
    """The call itself where a loop runs. Else it may be on its way to one, as in `asyncio.run(task.enqueue(1))`; if it is
    dropped instead, the error says so."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _CallWithoutLoop(call, api_name, instead)
    return call


def mark_as_async(function: F) -> F:
    """Decorator: a plain function that returns a coroutine counts as a coroutine function, as for asgiref's async_to_sync."""
    if hasattr(inspect, "markcoroutinefunction"):  # Python 3.12
        return cast("F", inspect.markcoroutinefunction(function))
    function._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]
    return function


class _CallWithoutLoop(Coroutine[Any, Any, T]):
    def __init__(self, call: Coroutine[Any, Any, T], api_name: str, instead: str) -> None:
        self._call = call
        self._error = WrongContext(api_name, instead, loop_runs=False)
        self._has_begun = False

    def send(self, value: Any) -> Any:
        self._has_begun = True
        return self._call.send(value)

    def throw(self, kind: Any, value: Any = None, trace: TracebackType | None = None) -> Any:
        self._has_begun = True
        return self._call.throw(kind if value is None else value)

    def close(self) -> None:
        self._has_begun = True
        self._call.close()

    def __await__(self) -> Generator[Any, Any, T]:
        self._has_begun = True
        return self._call.__await__()

    def __del__(self) -> None:
        if not self._has_begun:
            self._call.close()
            raise self._error  # nobody can catch it here: Python prints it
