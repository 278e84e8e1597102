"""`@app.cron`, `@app.every`, `@app.on_start`: declarations of schedules and start-up calls.

They are checked where they are written and completed when a worker starts; nothing here talks to a store.
`controller/schedule_declarations.py` and `controller/startup.py` carry them out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

import msgspec

from drumbeat.core.schedule import NewSchedule, Origin
from drumbeat.durations import Duration
from drumbeat.errors import ConfigError
from drumbeat.names import check_name, check_option_names, short_repr
from drumbeat.schedules.rules import check_definition
from drumbeat.settings import Settings

from . import schedule_options
from .options import TaskOptions
from .registered_function import AsyncCallable
from .registry import add_unique
from .schedule_options import Args, Fields, TimingOptions
from .task import AsyncTask, SyncTask, Task
from .task_decorators import TaskDecorators

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=Task[..., Any])
Role = Literal["worker", "controller", "both"]


class ScheduleOptions(TaskOptions, TimingOptions, total=False):
    """What `@app.cron` and `@app.every` take besides their rule. `name` names the schedule; the function names the task."""

    args: Args


class StartOptions(TaskOptions, total=False):
    """What `@app.on_start` takes besides its own options. `name` identifies the call for once=."""

    args: Args


class ScheduleDecorator(Protocol):
    """The type of `@app.cron(...)`: makes a function a task, and returns a task unchanged."""

    @overload
    def __call__(self, task: T, /) -> T: ...
    @overload
    def __call__(self, function: AsyncCallable[P, R], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...


class DeclaredSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that the code declares."""

    task: Task[..., Any]
    definition: NewSchedule
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def function(self) -> Callable[..., Any]:
        return self.task.function

    @property
    def source_location(self) -> str:
        return self.task.source_location

    def to_definition(self, settings: Settings) -> NewSchedule:
        """The definition, completed with what only a running program knows."""
        made = schedule_options.complete_definition(self.definition, self.task, self.args, self.kwargs, settings)
        return msgspec.structs.replace(made, origin=Origin.CODE, version=settings.version)


class DeclaredStartupCall(msgspec.Struct, frozen=True, kw_only=True):
    """A start-up call that the code declares."""

    name: str
    task: Task[..., Any]
    role: Role = "both"
    """The instances that make it."""
    once: bool = False
    lock: str | None = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}

    @property
    def function(self) -> Callable[..., Any]:
        return self.task.function

    @property
    def source_location(self) -> str:
        return self.task.source_location


class Declarations:
    """All declarations of an app, in the order of the code."""

    def __init__(self) -> None:
        self.schedules: dict[str, DeclaredSchedule] = {}
        self.startup_calls: dict[str, DeclaredStartupCall] = {}

    def complete_schedules(self, settings: Settings, known_queues: Collection[str]) -> list[NewSchedule]:
        """The complete definitions of all schedules.

        Raises:
            ConfigError: a schedule whose queue no worker of this program takes.
        """
        complete = [declared.to_definition(settings) for declared in self.schedules.values()]
        for definition in complete:
            if definition.queue not in known_queues:
                raise ConfigError(
                    f"schedule {definition.name!r}: queue {definition.queue!r} is declared by no task and no setting, "
                    f"so no worker would take it; known are {', '.join(sorted(known_queues))}",
                    "queue",
                )
        return complete


class ScheduleDecorators(TaskDecorators):
    """The part of `Drumbeat` that declares schedules and start-up calls."""

    def cron(self, expression: str, *, tz: str = "UTC", **options: Unpack[ScheduleOptions]) -> ScheduleDecorator:
        """Decorator: run it at the fire times of a cron expression, each once in the whole cluster.

        Five fields, or six with seconds first; names, L, #, H (a value derived from the schedule's name), and macros such as
        @daily. On days when the clocks of `tz` change, each time of day still fires once.

        Raises:
            ConfigError: which option, and what it may be.
        """
        return self._schedule_decorator(schedule_options.parse_rule(expression, None, False, tz), options)

    def every(self, interval: Duration, *, grid: bool = False, **options: Unpack[ScheduleOptions]) -> ScheduleDecorator:
        """Decorator: run it repeatedly, with a pause of `interval` from the end of one run to the start of the next.

        grid: at fixed times instead, `interval` apart and counted from `start` or from 1970, however long a run takes.

        Raises:
            ConfigError: which option, and what it may be.
        """
        return self._schedule_decorator(schedule_options.parse_rule(None, interval, grid, "UTC"), options)

    @overload
    def on_start(self, task: T, /) -> T: ...
    @overload
    def on_start(self, function: AsyncCallable[P, R], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def on_start(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...
    @overload
    def on_start(
        self, *, role: Role = ..., once: bool = ..., lock: str | None = ..., **options: Unpack[StartOptions]
    ) -> ScheduleDecorator: ...
    def on_start(
        self, *function: Any, role: Role = "both", once: bool = False, lock: str | None = None, **options: Any
    ) -> Any:
        """Decorator: call it in every instance before its first claim.

        role: only in workers, or only in controllers. once: only in one instance, for each version of the app. lock: one
        instance at a time, under the lock of this name.

        Raises:
            ConfigError: which option, and what it may be.
        """
        if role not in ("worker", "controller", "both"):
            raise ConfigError(f"role must be 'worker', 'controller' or 'both', not {short_repr(role)}", "role")
        if not isinstance(once, bool):
            raise ConfigError(f"once must be True or False, not {short_repr(once)}", "once")
        if lock is not None:
            check_name("lock", lock, ConfigError)
        args, kwargs = schedule_options.parse_args(options.pop("args", ()))
        name = options.pop("name", None)

        def declare(decorated: Any) -> Any:
            task = self._to_task(decorated, options, frozenset())
            schedule_options.check_args(task, args, kwargs)
            named = check_name("name", task.name if name is None else name, ConfigError)
            call = DeclaredStartupCall(name=named, task=task, role=role, once=once, lock=lock, args=args, kwargs=kwargs)
            add_unique("start-up tasks", self._internals.declarations.startup_calls, call)
            return task

        return declare(*function) if function else declare

    def _schedule_decorator(self, rule: Fields, options: ScheduleOptions) -> ScheduleDecorator:
        check_option_names("a schedule", options, ScheduleOptions.__annotations__)
        fields = rule | schedule_options.parse_timing(options)
        args, kwargs = schedule_options.parse_args(options.get("args", ()))
        others = {key: value for key, value in options.items() if key not in TimingOptions.__annotations__}
        others.pop("args", None)
        name = others.pop("name", None)

        def declare(decorated: Any) -> Any:
            is_task = isinstance(decorated, Task)
            task = self._to_task(decorated, others, frozenset(schedule_options.ScheduleJobOptions.__annotations__))
            named = task.name if name is None else cast("str", name)
            # On a function the options are those of the new task; on a task they are for the jobs of this schedule.
            definition = schedule_options.build_definition(
                named, task, fields | (schedule_options.parse_job_options(others) if is_task else {})
            )
            check_definition(definition)
            schedule_options.check_args(task, args, kwargs)
            declared = DeclaredSchedule(task=task, definition=definition, args=args, kwargs=kwargs)
            add_unique("schedules", self._internals.declarations.schedules, declared)
            return task

        return cast("ScheduleDecorator", declare)

    def _to_task(self, decorated: Any, options: dict[str, Any], allowed: frozenset[str]) -> Task[..., Any]:
        if not isinstance(decorated, Task):
            return self._register_task(decorated, batch=None, options=cast("TaskOptions", options))
        if self._internals.registry.find(decorated.name) is not decorated:
            raise ConfigError(f"task {decorated.name!r} belongs to another app: schedule it there")
        if wrong := options.keys() - allowed:
            raise ConfigError(
                f"{min(wrong)} belongs to the task: give it to the decorator that makes {decorated.name!r} a task",
                min(wrong),
            )
        return decorated
