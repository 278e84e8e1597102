"""`@app.task`: registers a function as a task, and checks it where it is written."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, cast, overload

from drumbeat.errors import ConfigError
from drumbeat.names import check_name

from .batch import BatchDecorator, BatchTask
from .limits import DeclaredQueue, QueueOptions, parse_queue_policy
from .options import TaskOptions, parse_task_options
from .registered_function import AsyncCallable, check_function
from .task import FOLLOW_UPS, AsyncTask, SyncTask, Task, TaskDecorator, check_follow_up

if TYPE_CHECKING:
    from drumbeat.internals import AppInternals

P = ParamSpec("P")
R = TypeVar("R")


class TaskDecorators:
    """The part of `Drumbeat` that registers tasks."""

    _internals: AppInternals

    @overload
    def task(self, function: AsyncCallable[P, R], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def task(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...
    @overload
    def task(self, *, batch: int, **options: Unpack[TaskOptions]) -> BatchDecorator: ...
    @overload
    def task(self, **options: Unpack[TaskOptions]) -> TaskDecorator: ...
    def task(self, *function: Callable[..., Any], batch: int | None = None, **options: Any) -> Any:
        """Register a function whose calls can be enqueued. With or without options; see `TaskOptions`.

        Raises:
            ConfigError: an option or a parameter is not acceptable, or the name is taken; the message says where.
        """
        given = cast("TaskOptions", options)
        if not function:
            return functools.partial(self._register_task, batch=batch, options=given)
        return self._register_task(*function, batch=batch, options=given)

    def queue(self, name: str, **options: Unpack[QueueOptions]) -> None:
        """Declare the policy of a queue, for those of its jobs whose task has none of its own; see `QueueOptions`.

        Limits without per_group, fair= and weights= hold for the others too. Without options it takes back what was declared.

        Raises:
            ConfigError: an option is not acceptable, or contradicts a task; the message names both places.
        """
        caller = sys._getframe(1)
        declared = DeclaredQueue(
            name=check_name("queue", name, ConfigError),
            policy=parse_queue_policy(options),
            source_location=f"{caller.f_code.co_filename}:{caller.f_lineno}",
        )
        self._internals.registry.add_queue(declared)

    def _register_task(self, function: Any, *, batch: int | None, options: TaskOptions) -> Task[..., Any]:
        name = check_function("task", function, options.get("name"))
        is_async = inspect.iscoroutinefunction(function)
        parsed = parse_task_options(options, batch=batch, is_async=is_async)
        kind: type[Task[..., Any]] = BatchTask if batch is not None else AsyncTask if is_async else SyncTask
        task = kind(self._internals.client, function, name, parsed)
        for follow_up in FOLLOW_UPS:
            if follow_up in options:
                check_follow_up(follow_up, options[follow_up])
        self._internals.registry.add(task)
        if "on_dead" in options:
            task.on_dead(options["on_dead"])
        if "on_success" in options:
            task.on_success(options["on_success"])
        return task
