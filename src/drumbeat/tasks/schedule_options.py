"""How people write down when something is to run, and what becomes of it: the words of `@app.cron`, `@app.every` and
`app.schedules`, read into fields of a definition. Which moments that means is the business of `schedules/`.
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
from drumbeat.names import check_name, check_priority, short_repr

from .options import check_retries, check_timeout
from .task import Task

Args = Sequence[Any] | Mapping[str, Any]
"""The arguments of every call: by place, or by name."""
Fields = dict[str, Any]


class TimingOptions(TypedDict, total=False):
    """What may be said of a schedule beside its rule."""

    catch_up: Literal["latest", "none", "all"]
    """Moments that nobody was there for: run the last one, none, or all of them. Default: latest."""
    catch_up_limit: int
    """With catch_up="all": at most so many, the last ones. Default: 100."""
    max_late: Duration | None
    """A moment that is older is skipped, whatever catch_up says. Default: None, however old."""
    overlap: Literal["skip", "queue", "allow", "cancel"]
    """A moment that comes while the job of the one before is not done: skip it, let it wait, run both, or cancel the old.
    Default: skip."""
    jitter: Duration
    """Each job is due up to so much later, always by the same for the same moment. Default: 0."""
    start: datetime | None
    end: datetime | None
    """No moment lies before `start`, none at or after `end`. Default: None."""


class ScheduleJobOptions(TypedDict, total=False):
    """What the jobs of a schedule may have otherwise than their task."""

    queue: str
    priority: int
    retries: int
    timeout: Duration | None


def parse_rule(cron: object, every: object, grid: object, tz: object) -> Fields:
    """Kind, rule and zone."""
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
            raise ConfigError("grid is for every=: cron has moments of its own", "grid")
        return {"kind": RuleKind.CRON, "rule": cron, "tz": tz}
    step = microseconds(every, name="every", error=ConfigError)  # type: ignore[arg-type]
    return {"kind": RuleKind.GRID if grid else RuleKind.AFTER, "rule": str(step), "tz": tz}


def parse_timing(given: Mapping[str, Any]) -> Fields:
    """The fields of what was given; others keep their defaults."""
    readers: dict[str, Callable[[Any], Any]] = {
        "catch_up": lambda value: _parse_enum("catch_up", value, CatchUp),
        "catch_up_limit": _check_int,
        "max_late": lambda value: None if value is None else microseconds(value, name="max_late"),
        "overlap": lambda value: _parse_enum("overlap", value, Overlap),
        "jitter": lambda value: microseconds(value, name="jitter"),
        "start": lambda value: None if value is None else to_us(value, name="start", error=ConfigError),
        "end": lambda value: None if value is None else to_us(value, name="end", error=ConfigError),
    }
    return {name: read(given[name]) for name, read in readers.items() if name in given}


def parse_job_options(given: Mapping[str, Any]) -> Fields:
    """Likewise for what the jobs have otherwise than their task."""
    readers: dict[str, Callable[[Any], Any]] = {
        "queue": lambda value: check_name("queue", value, ConfigError),
        "priority": lambda value: check_priority(value, ConfigError),
        "retries": lambda value: check_retries(value, ConfigError),
        "timeout": lambda value: check_timeout(value, ConfigError),
    }
    return {name: read(given[name]) for name, read in readers.items() if name in given}


def parse_args(args: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments by place and by name."""
    match args:
        case dict() if all(isinstance(name, str) for name in args):
            return (), dict(args)
        case list() | tuple():
            return tuple(args), {}
        case _:
            raise ConfigError(f"args must be a tuple, or a dict by name, not {short_repr(args)}", "args")


def check_args(task: Task[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuse arguments that the task does not take; not yet, where its annotations name what is defined further down."""
    try:
        task.signature.hash  # noqa: B018 - resolves the annotations, or refuses
    except ConfigError:
        return
    encode_args(task, args, kwargs, MAX_PAYLOAD)


def encode_args(task: Task[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], limit: int) -> str:
    try:
        return task.signature.encode(args, kwargs, limit=limit)
    except InvalidArguments as error:
        raise ConfigError(f"args: {error}", "args") from error


def build_definition(name: str, task: Task[..., Any], fields: Fields, *, args: str = "{}") -> NewSchedule:
    """A definition of what has been read; what only a running program knows is left out."""
    base = NewSchedule(
        name=name, task=task.name, kind=RuleKind.CRON, rule="", queue=task.queue, args=args, signature=""
    )
    return msgspec.structs.replace(base, **{"priority": task.options.priority, **fields})


def _parse_enum(name: str, value: Any, words: type[StrEnum]) -> StrEnum:
    try:
        return words(value)
    except ValueError:
        raise ConfigError(
            f"{name} must be {' or '.join(map(repr, map(str, words)))}, not {short_repr(value)}", name
        ) from None


def _check_int(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ConfigError(f"catch_up_limit must be a whole number, not {short_repr(value)}", "catch_up_limit")
