"""Limits as people give them, read and checked: what `app.limits.set` takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

from drumbeat.core.limits import MAX_PER_US, MAX_RATE, MAX_WEIGHT, MIN_PER_US, NO_LIMIT, Bounds
from drumbeat.durations import Duration, format_length, microseconds
from drumbeat.errors import InvalidArguments
from drumbeat.names import check_key, check_number, short_repr

MAX_CONCURRENCY = 1_000_000


class LimitLike(Protocol):
    """A `Limit`, or a LimitRecord."""

    @property
    def concurrency(self) -> int | None: ...

    @property
    def rate(self) -> int | None: ...

    @property
    def per(self) -> Duration | None: ...

    @property
    def per_group(self) -> bool: ...


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
    return "" if group == "" else check_key(group, kind="group")


def check_weight(weight: object) -> int:
    return check_number("weight", weight, 1, MAX_WEIGHT)


def check_order(order: str, each: Bounds) -> None:
    """Refuse what jobs in order cannot have."""
    if order and each.concurrency is not None and each.concurrency > 1:
        raise InvalidArguments(
            f"its jobs run in the order of enqueue, one at a time for each group: per_group cannot be {each.concurrency}",
            "limits",
        )


def _read_list(limits: object) -> list[LimitLike]:
    names = ("concurrency", "rate", "per", "per_group")
    if isinstance(limits, str) or not isinstance(limits, Iterable):
        raise InvalidArguments(
            f"limits must be a list such as [Limit(concurrency=5)], or empty for no limit, not {short_repr(limits)}",
            "limits",
        )
    found = list(limits)
    for each in found:
        if not all(hasattr(each, name) for name in names):
            raise InvalidArguments(f"limits must contain Limit(...) only, not {short_repr(each)}", "limits")
    return found


def _add_limit(bounds: Bounds, limit: LimitLike, place: str) -> Bounds:
    if limit.concurrency is None and limit.rate is None:
        raise InvalidArguments("a limit needs concurrency, or rate with per", "limits")
    if (limit.rate is None) != (limit.per is None):
        raise InvalidArguments(
            'rate and per belong together: rate=100, per="1m"', "per" if limit.per is None else "rate"
        )
    if limit.concurrency is not None:
        if bounds.concurrency is not None:
            raise InvalidArguments(f"concurrency of {place} is given twice", "concurrency")
        bounds = msgspec.structs.replace(
            bounds, concurrency=_check_positive("concurrency", limit.concurrency, MAX_CONCURRENCY)
        )
    if limit.rate is not None and limit.per is not None:
        if bounds.rate is not None:
            raise InvalidArguments(f"the rate of {place} is given twice", "rate")
        bounds = msgspec.structs.replace(
            bounds, rate=_check_positive("rate", limit.rate, MAX_RATE), per=_read_per(limit.per)
        )
    return bounds


def _check_positive(name: str, value: object, maximum: int) -> int:
    if value == 0 and not isinstance(value, bool):
        raise InvalidArguments(f"{name} must be at least 1, not 0: to start none of its jobs, pause the queue", name)
    return check_number(name, value, 1, min(maximum, NO_LIMIT - 1))


def _read_per(per: Duration) -> int:
    us = microseconds(per, name="per", error=InvalidArguments)
    if not MIN_PER_US <= us <= MAX_PER_US:
        raise InvalidArguments(f"per must be from 1s to 1d, not {format_length(us)}", "per")
    return us
