"""What the code of an app declares: schedules and start-up calls. Checked where it is written, completed when a worker starts.

The decorators of an app (`app.cron`, `app.every`, `app.on_start`) are here; nothing here talks to a store. What becomes of the
declarations is the business of `controller/schedule_declarations.py` and `controller/startup.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Literal, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

import msgspec

from drumbeat.core.schedule import NewSchedule, Origin
from drumbeat.durations import Duration
from drumbeat.errors import ConfigError
from drumbeat.names import check_name, short_repr
from drumbeat.schedules.rules import check_definition
from drumbeat.settings import Settings

from .options import TaskOptions
from .schedule_options import (
    Args,
    Fields,
    ScheduleJobOptions,
    TimingOptions,
    build_definition,
    check_args,
    encode_args,
    parse_args,
    parse_job_options,
    parse_rule,
    parse_timing,
)
from .task import AsyncTask, SyncTask, Task

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=Task[..., Any])
Role = Literal["worker", "controller", "both"]


class ScheduleOptions(TaskOptions, TimingOptions, total=False):
    """What `@app.cron` and `@app.every` take beside their rule. `name` is the schedule's; the task's is the function's."""

    args: Args


class StartOptions(TaskOptions, total=False):
    """What `@app.on_start` takes beside its own words. `name` is what it is done once under."""

    args: Args


class ScheduleDecorator(Protocol):
    """What `@app.cron(...)` is: a function becomes a task, a task stays what it is."""

    @overload
    def __call__(self, task: T, /) -> T: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...


class DeclaredSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A declared schedule."""

    task: Task[..., Any]
    definition: NewSchedule
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def to_definition(self, settings: Settings) -> NewSchedule:
        """The definition with what only a running program knows."""
        task = self.task
        return msgspec.structs.replace(
            self.definition,
            args=encode_args(task, self.args, self.kwargs, settings.payload_limit),
            signature=task.signature.hash,
            crash_limit=settings.crash_limit if task.options.on_crash == "retry" else 1,
            on_dead=None if task.on_dead_task is None else task.on_dead_task.name,
            origin=Origin.CODE,
            app=settings.name,
            version=settings.version,
        )


class DeclaredStartupCall(msgspec.Struct, frozen=True, kw_only=True):
    """A declared start-up call."""

    name: str
    task: Task[..., Any]
    role: Role
    once: bool
    lock: str | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Declarations:
    """Everything that an app's code declares, in the order in which it does."""

    def __init__(self) -> None:
        self._schedules: dict[str, DeclaredSchedule] = {}
        self._startup_calls: dict[str, DeclaredStartupCall] = {}

    def add(self, declared: DeclaredSchedule) -> None:
        name = declared.definition.name
        if (other := self._schedules.get(name)) is not None:
            raise ConfigError(
                f"there are two schedules named {name!r}: one for {other.task.source_location}, one for {declared.task.source_location}; "
                "give one of them another name=",
                "name",
            )
        self._schedules[name] = declared

    def add_startup_call(self, call: DeclaredStartupCall) -> None:
        if (other := self._startup_calls.get(call.name)) is not None:
            raise ConfigError(
                f"there are two start-up tasks named {call.name!r}: one at {other.task.source_location}, "
                f"one at {call.task.source_location}; give one of them another name=",
                "name",
            )
        self._startup_calls[call.name] = call

    def __iter__(self) -> Iterator[DeclaredSchedule]:
        return iter(self._schedules.values())

    @property
    def startup_calls(self) -> list[DeclaredStartupCall]:
        return list(self._startup_calls.values())


class ScheduleDecorators(ABC):
    """The decorators of an app that declare when something runs."""

    declarations: Declarations

    @property
    @abstractmethod
    def settings(self) -> Settings:
        """Resolved at the first use; no decorator uses it."""

    @abstractmethod
    def _make_task(self, function: Any, options: TaskOptions) -> Task[..., Any]:
        """Register a function, with its options."""

    @abstractmethod
    def _owns_task(self, task: Task[..., Any]) -> bool:
        """Whether it is a task of this app."""

    @abstractmethod
    def _known_queues(self) -> frozenset[str]: ...

    def cron(self, expression: str, *, tz: str = "UTC", **options: Unpack[ScheduleOptions]) -> ScheduleDecorator:
        """Decorator: run it at the moments of a cron expression, each once in the whole cluster.

        Five fields, or six with the seconds first; names, L, #, H (a value chosen by the schedule's name) and @daily and the
        like. On days when the clocks of `tz` change, a time of day is still run once.

        Raises:
            ConfigError: which option, and what it may be.
        """
        return self._schedule_decorator(parse_rule(expression, None, False, tz), options)

    def every(self, interval: Duration, *, grid: bool = False, **options: Unpack[ScheduleOptions]) -> ScheduleDecorator:
        """Decorator: run it again and again, with a pause of `interval` from the end of one run to the next.

        grid: at fixed moments instead, so many apart, counted from `start` or from 1970, however long it runs.

        Raises:
            ConfigError: which option, and what it may be.
        """
        return self._schedule_decorator(parse_rule(None, interval, grid, "UTC"), options)

    @overload
    def on_start(self, task: T, /) -> T: ...
    @overload
    def on_start(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
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

        role: only in instances that work, or that control. once: only in one of them, for each version of the app. lock: one
        at a time, under a lock of this name.

        Raises:
            ConfigError: which option, and what it may be.
        """
        if role not in ("worker", "controller", "both"):
            raise ConfigError(f"role must be 'worker', 'controller' or 'both', not {short_repr(role)}", "role")
        if not isinstance(once, bool):
            raise ConfigError(f"once must be True or False, not {short_repr(once)}", "once")
        if lock is not None:
            check_name("lock", lock, ConfigError)
        args, kwargs = parse_args(options.pop("args", ()))
        name = options.pop("name", None)

        def declare(decorated: Any) -> Any:
            task = self._to_task(decorated, options, frozenset())
            check_args(task, args, kwargs)
            named = check_name("name", task.name if name is None else name, ConfigError)
            self.declarations.add_startup_call(
                DeclaredStartupCall(name=named, task=task, role=role, once=once, lock=lock, args=args, kwargs=kwargs)
            )
            return task

        return declare(*function) if function else declare

    def declared_schedules(self) -> list[NewSchedule]:
        """All schedules that the code declares, complete.

        Raises:
            ConfigError: one that no worker of this program could run.
        """
        known = self._known_queues()
        complete = [declared.to_definition(self.settings) for declared in self.declarations]
        for definition in complete:
            if definition.queue not in known:
                raise ConfigError(
                    f"schedule {definition.name!r}: queue {definition.queue!r} is declared by no task and no setting, "
                    f"so no worker would take it; known are {', '.join(sorted(known))}",
                    "queue",
                )
        return complete

    @property
    def startup_calls(self) -> list[DeclaredStartupCall]:
        """All start-up calls that the code declares."""
        return self.declarations.startup_calls

    def _schedule_decorator(self, rule: Fields, options: ScheduleOptions) -> ScheduleDecorator:
        _check_option_names(options)
        fields = rule | parse_timing(options)
        args, kwargs = parse_args(options.get("args", ()))
        others = {key: value for key, value in options.items() if key not in TimingOptions.__annotations__}
        others.pop("args", None)
        name = others.pop("name", None)

        def declare(decorated: Any) -> Any:
            is_task = isinstance(decorated, Task)
            task = self._to_task(decorated, others, frozenset(ScheduleJobOptions.__annotations__))
            named = task.name if name is None else cast("str", name)
            # On a function the options are the new task's; on a task they are for the jobs of this schedule.
            definition = build_definition(named, task, fields | (parse_job_options(others) if is_task else {}))
            check_definition(definition)
            check_args(task, args, kwargs)
            self.declarations.add(DeclaredSchedule(task=task, definition=definition, args=args, kwargs=kwargs))
            return task

        return cast("ScheduleDecorator", declare)

    def _to_task(self, decorated: Any, options: dict[str, Any], allowed: frozenset[str]) -> Task[..., Any]:
        if not isinstance(decorated, Task):
            return self._make_task(decorated, cast("TaskOptions", options))
        if not self._owns_task(decorated):
            raise ConfigError(f"task {decorated.name!r} belongs to another app: schedule it there")
        if wrong := options.keys() - allowed:
            raise ConfigError(
                f"{min(wrong)} belongs to the task: give it to the decorator that makes {decorated.name!r} a task",
                min(wrong),
            )
        return decorated


def _check_option_names(options: ScheduleOptions) -> None:
    if unknown := set(options) - set(ScheduleOptions.__annotations__):
        raise ConfigError(f"a schedule has no option {min(unknown)!r}", min(unknown))
