"""Limits as people give them, read and checked: what `app.limits.set` takes."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from drumbeat.core.limits import MAX_WEIGHT, Bounds
from drumbeat.errors import ConfigError, InvalidArguments
from drumbeat.names import check_number, short_repr
from drumbeat.tasks import limits as declared
from drumbeat.tasks.limits import Limit

from .limit_records import LimitRecord


def read_line_limits(limits: object) -> tuple[Bounds, Bounds]:
    """What holds for the whole line, and for each group."""
    whole, each = Bounds(), Bounds()
    for limit in _read_list(limits):
        if limit.per_group:
            each = _add_limit(each, limit, "each group")
        else:
            whole = _add_limit(whole, limit, "all jobs together")
    return whole, each


def read_group_limits(limits: object) -> Bounds:
    """All of them hold for that group."""
    bounds = Bounds()
    for limit in _read_list(limits):
        bounds = _add_limit(bounds, limit, "the group")
    return bounds


def check_group(group: object) -> str:
    """The name of a group; empty: the jobs without one."""
    return "" if group == "" else declared.check_group(group)


def check_weight(weight: object) -> int:
    return check_number("weight", weight, 1, MAX_WEIGHT)


def check_order(order: str, each: Bounds) -> None:
    """Refuse what jobs in order cannot have."""
    if order and each.concurrency is not None and each.concurrency > 1:
        raise InvalidArguments(
            f"its jobs run in the order of enqueue, one at a time for each group: per_group cannot be {each.concurrency}",
            "limits",
        )


def _read_list(limits: object) -> list[Limit]:
    if isinstance(limits, str) or not isinstance(limits, Iterable):
        raise InvalidArguments(
            f"limits must be a list such as [Limit(concurrency=5)], or empty for no limit, not {short_repr(limits)}",
            "limits",
        )
    return [_to_limit(each) for each in limits]


def _to_limit(given: object) -> Limit:
    """By the rules of the code's own."""
    if isinstance(given, Limit):
        return given
    if not isinstance(given, LimitRecord):
        raise InvalidArguments(f"limits must contain Limit(...) only, not {short_repr(given)}", "limits")
    for name in ("concurrency", "rate"):
        if getattr(given, name) == 0:
            raise InvalidArguments(
                f"{name} must be at least 1, not 0: to start none of its jobs, pause the queue", name
            )
    try:
        return Limit(**msgspec.structs.asdict(given))
    except ConfigError as error:
        raise InvalidArguments(str(error), error.setting or "limits") from error


def _add_limit(bounds: Bounds, limit: Limit, place: str) -> Bounds:
    given = {name: value for name, value in msgspec.structs.asdict(limit.to_bounds()).items() if value is not None}
    for name in given:
        if getattr(bounds, name) is not None:
            raise InvalidArguments(f"{name} of {place} is given twice", name)
    return msgspec.structs.replace(bounds, **given)
