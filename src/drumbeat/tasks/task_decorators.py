"""`@app.task`: a function becomes a task of the app. Everything about it is checked here, where it is written."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar, Unpack, cast, overload

from drumbeat.errors import ConfigError
from drumbeat.names import check_name, short_repr

from .batch import BatchDecorator, BatchTask
from .options import TaskOptions, parse_task_options
from .registry import Registry
from .task import AsyncTask, Enqueuer, SyncTask, Task, TaskDecorator

P = ParamSpec("P")
R = TypeVar("R")


class TaskDecorators(ABC):
    """The decorator of an app that makes tasks."""

    registry: Registry

    @abstractmethod
    def _get_enqueuer(self) -> Enqueuer:
        """What its tasks are enqueued by."""

    @overload
    def task(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...
    @overload
    def task(self, *, batch: int, **options: Unpack[TaskOptions]) -> BatchDecorator: ...
    @overload
    def task(self, **options: Unpack[TaskOptions]) -> TaskDecorator: ...
    def task(self, *function: Callable[..., Any], batch: int | None = None, **options: Any) -> Any:
        """Register a function whose calls can be queued. With or without options; see `tasks.Options`.

        Raises:
            ConfigError: an option or a parameter is not acceptable, or the name is taken; it says by whom.
        """
        given = cast("TaskOptions", options)
        if not function:
            return functools.partial(self._register_task, batch=batch, options=given)
        return self._register_task(*function, batch=batch, options=given)

    def _register_task(self, function: Any, *, batch: int | None, options: TaskOptions) -> Task[..., Any]:
        if not callable(function) or isinstance(function, type | Task):
            raise ConfigError(f"a task must be a function, not {short_repr(function)}")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigError(f"{function.__qualname__} is a generator: a task must return, not yield")
        name = check_name("task", options.get("name", getattr(function, "__name__", "")), ConfigError)
        is_async = inspect.iscoroutinefunction(function)
        read = parse_task_options(options, batch=batch, is_async=is_async)
        kind: type[Task[..., Any]] = BatchTask if batch is not None else AsyncTask if is_async else SyncTask
        task = kind(self._get_enqueuer(), function, name, read)
        self.registry.add(task)
        return task

    def _make_task(self, function: Any, options: TaskOptions) -> Task[..., Any]:
        return self._register_task(function, batch=None, options=options)

    def _owns_task(self, task: Task[..., Any]) -> bool:
        return self.registry.find(task.name) is task
