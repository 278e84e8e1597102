"""Limits, order, groups and turns, as users write them, and the policies of core/limits.py that they become."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypedDict

import msgspec

from drumbeat.core.limits import MAX_PER_US, MAX_RATE, MAX_WEIGHT, MIN_PER_US, Bounds, LinePolicy
from drumbeat.durations import Duration, microseconds
from drumbeat.errors import ConfigError, InvalidArguments
from drumbeat.names import MAX_KEY_LENGTH, ErrorClass, check_number, check_option_names, short_repr

MAX_CONCURRENCY = 1_000_000
Group = str | Callable[..., str]
"""The group of a job, or a function that gives it, called with the arguments of the job."""
Order = bool | Literal["hold", "skip"]


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs may run at once, or start in a time: over the whole cluster, or with `per_group` in each group.

        Limit(concurrency=5)                           at most five at once
        Limit(rate=100, per="1m", per_group=True)      at most a hundred starts of each group in any minute

    Raises:
        ConfigError: it says nothing, or something that is not possible; the message says what to write.
    """

    concurrency: int | None = None
    """At most so many run at once."""

    rate: int | None = None
    """At most so many start in any time of length `per`."""

    per: Duration | None = None
    """From a second to a day."""

    per_group: bool = False
    """Count each group by itself."""

    def __post_init__(self) -> None:
        if not isinstance(self.per_group, bool):
            raise ConfigError(f"per_group must be True or False, not {short_repr(self.per_group)}", "per_group")
        if self.concurrency is None and self.rate is None and self.per is None:
            raise ConfigError(
                'a Limit says what it limits: Limit(concurrency=5), or Limit(rate=100, per="1m")', "limits"
            )
        if self.concurrency is not None:
            check_number("concurrency", self.concurrency, 1, MAX_CONCURRENCY, ConfigError)
        if self.rate is not None and self.per is None:
            raise ConfigError(
                f'rate needs per, the time in which so many may start: rate={self.rate!r}, per="1m"', "per"
            )
        if self.rate is None and self.per is not None:
            raise ConfigError(f"per needs rate, how many may start in that time: rate=100, per={self.per!r}", "rate")
        if self.rate is not None:
            check_number("rate", self.rate, 1, MAX_RATE, ConfigError)
        self._per_us()

    def _per_us(self) -> int | None:
        if self.per is None:
            return None
        per = microseconds(self.per, name="per")
        if not MIN_PER_US <= per <= MAX_PER_US:
            raise ConfigError(f'per must be from "1s" to "1d", not {short_repr(self.per)}', "per")
        return per

    def to_bounds(self) -> Bounds:
        return Bounds(self.concurrency, self.rate, self._per_us())


class QueueOptions(TypedDict, total=False):
    """What `app.queue(name, ...)` takes."""

    limits: Iterable[Limit]
    """Those without per_group hold for all jobs of the queue that stand under a policy. Default: none."""
    order: Order
    """As of a task. Default: none."""
    fair: bool
    """The groups take turns. Default: False."""
    weights: Mapping[str, int]
    """With fair=True, groups that get more than one job in each turn, at most 100. Default: 1 each."""


class DeclaredQueue(msgspec.Struct, frozen=True, kw_only=True):
    """The policy of a queue that the code declares."""

    name: str
    policy: LinePolicy
    source_location: str


def parse_line_policy(
    limits: Iterable[Limit] | None, order: object, *, fair: object = False, weights: object = None
) -> LinePolicy | None:
    """The policy of a task or a queue; None: these options say nothing."""
    if not isinstance(fair, bool):
        raise ConfigError(f"fair must be True or False, not {short_repr(fair)}", "fair")
    if weights is not None and not fair:
        raise ConfigError(
            "weights= is for groups that take turns: write fair=True too, or leave out weights=", "weights"
        )
    whole, each = _merge_limits(() if limits is None else _list_limits(limits))
    policy = LinePolicy(
        whole=whole,
        each=each,
        order=_parse_order(order),
        fair=fair,
        weights={} if weights is None else _parse_weights(weights),
    )
    if policy.order and each.concurrency not in (None, 1):
        raise ConfigError(
            f"order= and Limit(concurrency={each.concurrency}, per_group=True) contradict each other: in order, the jobs of a "
            "group run one after the other; leave out one of them",
            "order",
        )
    return None if policy == LinePolicy() else policy


def parse_queue_policy(options: QueueOptions) -> LinePolicy:
    check_option_names("a queue", options, QueueOptions.__annotations__)
    policy = parse_line_policy(
        options.get("limits"),
        options.get("order", False),
        fair=options.get("fair", False),
        weights=options.get("weights"),
    )
    return policy or LinePolicy()


def parse_task_policy(options: Mapping[str, Any], *, batch: int | None) -> LinePolicy | None:
    """The policy of a task's own; None: that of its queue holds."""
    policy = parse_line_policy(options.get("limits"), options.get("order", False))
    if policy is None or not policy.order:
        return policy
    if "priority" in options:
        raise ConfigError(
            "order= and priority= contradict each other: the jobs of a group run in the order of enqueue; leave out one",
            "priority",
        )
    if batch is not None:
        raise ConfigError(
            "order= and batch= contradict each other: in order, the jobs of a group run one after the other; leave out one",
            "batch",
        )
    return policy


def parse_group(value: object) -> Group | None:
    """The group of a task's jobs."""
    return value if value is None or callable(value) else check_group(value, ConfigError)


def check_group(value: object, error: ErrorClass = InvalidArguments, *, what: str = "group") -> str:
    """The name of a group; `what` is for the error."""
    if isinstance(value, str) and 1 <= len(value) <= MAX_KEY_LENGTH and value.isprintable():
        return str(value)
    size = f" (it has {len(value)})" if isinstance(value, str) and len(value) > MAX_KEY_LENGTH else ""
    raise error(
        f"{what} {short_repr(value)} is not valid: use text of 1 to {MAX_KEY_LENGTH} printable characters{size}",
        "group",
    )


def compute_group(task: str, group: Group | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """The group of a call; '' of none.

    Raises:
        InvalidArguments: the task's function for it fails, or gives no name.
    """
    if group is None or isinstance(group, str):
        return group or ""
    try:
        found = group(*args, **kwargs)
    except Exception as error:  # the program's own
        raise InvalidArguments(
            f"{task}: its group= cannot be computed of these arguments: {type(error).__name__}: {error}", "group"
        ) from error
    return check_group(found, what=f"{task}: its group= gives what is no group:")


def _list_limits(limits: object) -> list[Limit]:
    found: list[Any] = list(limits) if isinstance(limits, Iterable) else []
    if not found or not all(isinstance(each, Limit) for each in found):
        raise ConfigError(
            f"limits must be a list such as [Limit(concurrency=5)], not {short_repr(limits)}; leave it out for no limits",
            "limits",
        )
    return found


def _merge_limits(limits: Iterable[Limit]) -> tuple[Bounds, Bounds]:
    """Of the whole, and of each group."""
    found: dict[tuple[bool, str], Any] = {}
    for limit in limits:
        bounds = limit.to_bounds()
        for name in ("concurrency", "rate", "per"):
            if (value := getattr(bounds, name)) is None:
                continue
            if (limit.per_group, name) in found:
                where = " for each group" if limit.per_group else ""
                raise ConfigError(
                    f"limits has two of {name}{where}: {found[limit.per_group, name]} and {value}; keep one of them",
                    "limits",
                )
            found[limit.per_group, name] = value
    whole, each = (
        {name: value for (own, name), value in found.items() if own is per_group} for per_group in (False, True)
    )
    return Bounds(**whole), Bounds(**each)


def _parse_order(order: object) -> str:
    if order is False or order is None:
        return ""
    if order is True:
        return "hold"
    if order in ("hold", "skip"):
        return str(order)
    raise ConfigError(
        f"order must be True or 'hold' (a retry holds the line), or 'skip' (it is stepped over), not {short_repr(order)}",
        "order",
    )


def _parse_weights(weights: object) -> dict[str, int]:
    if not isinstance(weights, Mapping):
        raise ConfigError(f'weights must be a dict such as {{"tenant:7": 3}}, not {short_repr(weights)}', "weights")
    return {
        check_group(group, ConfigError, what="weights: group"): check_number(
            f"the weight of {group}", weight, 1, MAX_WEIGHT, ConfigError
        )
        for group, weight in weights.items()
    }
