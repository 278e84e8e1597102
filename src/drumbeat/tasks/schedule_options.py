"""The options of `@app.cron`, `@app.every` and `app.schedules`, parsed into the fields of a schedule's definition.

Fire times are computed in `schedules/`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, TypedDict

import msgspec

from drumbeat.codec import MAX_PAYLOAD
from drumbeat.core.schedule import CatchUp, NewSchedule, Overlap, RuleKind
from drumbeat.durations import Duration, microseconds, to_us
from drumbeat.errors import ConfigError, InvalidArguments
from drumbeat.names import check_name, check_number, check_priority, short_repr
from drumbeat.schedules.rules import MAX_CATCH_UP
from drumbeat.settings import Settings

from .limits import compute_group
from .line_policies import check_overrides, find_lane
from .options import check_retries, check_timeout
from .task import Task

Args = Sequence[Any] | Mapping[str, Any]
"""The arguments of every call: by position, or by name."""
Fields = dict[str, Any]


class TimingOptions(TypedDict, total=False):
    """The options of a schedule besides its rule."""

    catch_up: Literal["latest", "none", "all"]
    """Which missed fires to run: the last one, none, or all of them. Default: latest."""
    catch_up_limit: int
    """With catch_up="all": the maximum number of missed fires to run, the latest ones. Default: 100."""
    max_late: Duration | None
    """Fires that are later than this are skipped, whatever catch_up says. Default: None, no limit."""
    overlap: Literal["skip", "queue", "allow", "cancel"]
    """What a fire does while the job of the one before has not ended: skip it, queue it, allow both, or cancel the old
    job. Default: skip."""
    jitter: Duration
    """Each job is delayed by up to this much; the delay of one fire time is always the same. Default: 0."""
    start: datetime | None
    end: datetime | None
    """No fire before `start`, none at or after `end`. Default: None."""


class ScheduleJobOptions(TypedDict, total=False):
    """The options in which the jobs of a schedule may differ from their task."""

    queue: str
    priority: int
    retries: int
    timeout: Duration | None


def parse_rule(cron: object, every: object, grid: object, tz: object) -> Fields:
    """The fields kind, rule and tz."""
    if not isinstance(grid, bool):
        raise ConfigError(f"grid must be True or False, not {short_repr(grid)}", "grid")
    if not isinstance(tz, str):
        raise ConfigError(f"tz must be the name of a time zone such as Europe/Berlin, not {short_repr(tz)}", "tz")
    if (cron is None) == (every is None):
        raise ConfigError("say when it runs: cron= or every=, one of them", "cron")
    if cron is not None:
        if not isinstance(cron, str):
            raise ConfigError(f"cron must be an expression such as '0 3 * * *', not {short_repr(cron)}", "cron")
        if grid:
            raise ConfigError("grid is for every=: a cron expression has its own fire times", "grid")
        return {"kind": RuleKind.CRON, "rule": cron, "tz": tz}
    step = microseconds(every, name="every", error=ConfigError)  # type: ignore[arg-type]
    return {"kind": RuleKind.GRID if grid else RuleKind.AFTER, "rule": str(step), "tz": tz}


def parse_timing(given: Mapping[str, Any]) -> Fields:
    """The fields of the options given; others keep their defaults."""
    readers: dict[str, Callable[[Any], Any]] = {
        "catch_up": lambda value: _parse_enum("catch_up", value, CatchUp),
        "catch_up_limit": lambda value: check_number("catch_up_limit", value, 1, MAX_CATCH_UP, ConfigError),
        "max_late": lambda value: None if value is None else microseconds(value, name="max_late"),
        "overlap": lambda value: _parse_enum("overlap", value, Overlap),
        "jitter": lambda value: microseconds(value, name="jitter"),
        "start": lambda value: None if value is None else to_us(value, name="start", error=ConfigError),
        "end": lambda value: None if value is None else to_us(value, name="end", error=ConfigError),
    }
    return {name: read(given[name]) for name, read in readers.items() if name in given}


def parse_job_options(given: Mapping[str, Any]) -> Fields:
    """The fields of the options in which the jobs differ from their task."""
    readers: dict[str, Callable[[Any], Any]] = {
        "queue": lambda value: check_name("queue", value, ConfigError),
        "priority": lambda value: check_priority(value, ConfigError),
        "retries": lambda value: check_retries(value, ConfigError),
        "timeout": lambda value: check_timeout(value, ConfigError),
    }
    return {name: read(given[name]) for name, read in readers.items() if name in given}


def parse_args(args: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments by position and by name."""
    match args:
        case dict() if all(isinstance(name, str) for name in args):
            return (), dict(args)
        case list() | tuple():
            return tuple(args), {}
        case _:
            raise ConfigError(f"args must be a tuple, or a dict by name, not {short_repr(args)}", "args")


def check_args(task: Task[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuse arguments that the task does not take; later, if its annotations name a class that is not defined yet."""
    try:
        task.signature.hash  # noqa: B018 - resolves the annotations, or raises
    except ConfigError:
        return
    encode_args(task, args, kwargs, MAX_PAYLOAD)


def encode_args(task: Task[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], limit: int) -> str:
    try:
        return task.signature.encode(args, kwargs, limit=limit)
    except InvalidArguments as error:
        raise ConfigError(f"args: {error}", "args") from error


def build_definition(name: str, task: Task[..., Any], fields: Fields, *, args: str = "{}") -> NewSchedule:
    """A definition from parsed fields, without what only a running program knows."""
    base = NewSchedule(
        name=name, task=task.name, kind=RuleKind.CRON, rule="", queue=task.options.queue, args=args, signature=""
    )
    return msgspec.structs.replace(base, **{"priority": task.options.priority, **fields})


def complete_definition(
    made: NewSchedule, task: Task[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], settings: Settings
) -> NewSchedule:
    """The definition, completed with what only a running program knows."""
    check_overrides(task, queue=made.queue, priority=made.priority, error=ConfigError)
    group = _compute_group(task, args, kwargs)
    return msgspec.structs.replace(
        made,
        args=encode_args(task, args, kwargs, settings.payload_limit),
        signature=task.signature.hash,
        crash_limit=settings.crash_limit if task.options.on_crash == "retry" else 1,
        on_dead=None if task.on_dead_task is None else task.on_dead_task.name,
        expires=task.options.expires_us,
        app=settings.name,
        group=group,
        lane=find_lane(task, made.queue, group),
    )


def _compute_group(task: Task[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    try:
        return compute_group(task.name, task.options.group, args, kwargs)
    except InvalidArguments as error:
        raise ConfigError(f"group: {error}", "group") from error


def _parse_enum(name: str, value: Any, members: type[StrEnum]) -> StrEnum:
    try:
        return members(value)
    except ValueError:
        raise ConfigError(
            f"{name} must be {' or '.join(map(repr, map(str, members)))}, not {short_repr(value)}", name
        ) from None
