"""A handler with its `@app.around` functions: one function that enters them, calls the handler and leaves them.

Made once for each task when a worker starts; with none registered it is the handler itself. The worker calls it in the
handler's place, so that it runs in the handler's thread, process or task, within its timeout and with its context variables.
"""

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

from drumbeat.errors import ConfigError
from drumbeat.tasks import Task
from drumbeat.tasks.around import Around
from drumbeat.worker.fork_detector import FORKS


def surround(task: Task[..., Any], arounds: Sequence[Around]) -> Callable[..., Any]:
    """The function of this task inside those that surround it, the first one outermost."""
    call = task.function
    if not task.runs_user_code:
        return call
    for around in reversed(arounds):
        if around.surrounds(is_async=task.is_async):
            call = _surround_async(call, around) if task.is_async else _surround_sync(call, around)
    return call


def _surround_sync(handler: Callable[..., Any], around: Around) -> Callable[..., Any]:
    @functools.wraps(handler)
    def call(*args: Any, **kwargs: Any) -> Any:
        forks, manager = FORKS.count, around.open()
        try:
            manager.__enter__()
            try:
                value = handler(*args, **kwargs)
            except BaseException as error:
                _end_forked_copy(forks, error)
                # It may raise another instead. If it swallows this one, the attempt has failed all the same.
                manager.__exit__(type(error), error, error.__traceback__)
                raise
            _end_forked_copy(forks)
            manager.__exit__(None, None, None)
        except RuntimeError as error:
            _check_yields(error, around)
            raise
        return value

    return call


def _surround_async(handler: Callable[..., Any], around: Around) -> Callable[..., Any]:
    @functools.wraps(handler)
    async def call(*args: Any, **kwargs: Any) -> Any:
        forks, manager = FORKS.count, around.open()
        try:
            if around.is_async:
                await manager.__aenter__()
            else:
                manager.__enter__()
            try:
                value = await handler(*args, **kwargs)
            except BaseException as error:
                _end_forked_copy(forks, error)
                if around.is_async:
                    await manager.__aexit__(type(error), error, error.__traceback__)
                else:
                    manager.__exit__(type(error), error, error.__traceback__)
                raise
            _end_forked_copy(forks)
            if around.is_async:
                await manager.__aexit__(None, None, None)
            else:
                manager.__exit__(None, None, None)
        except RuntimeError as error:
            _check_yields(error, around)
            raise
        return value

    return call


def _check_yields(error: RuntimeError, around: Around) -> None:
    """
    Raises:
        ConfigError: this is how contextlib says, by itself, that a function did not yield exactly once.
    """
    trace = error.__traceback__ and error.__traceback__.tb_next
    if trace is None or trace.tb_next is not None or trace.tb_frame.f_globals.get("__name__") != contextlib.__name__:
        return  # raised by code of the program, maybe about a context manager of its own
    fault = "ended without a `yield`" if str(error) == "generator didn't yield" else "yielded a second time"
    raise ConfigError(
        f"{around.source_location}: {around.name} {fault}: a function that surrounds jobs yields exactly once in each run"
    ) from error.__context__


def _end_forked_copy(forks: int, error: BaseException | None = None) -> None:
    """A copy that the handler forked must not close, or commit, what it shares with the worker."""
    if FORKS.count != forks:
        FORKS.exit_forked_copy(error)
