"""Limits: how many jobs of a line and of a group may run at once, and start in a time. Pure.

    queue "mail"                 a limit of the queue holds for all its jobs
      line ""                    its jobs without a policy of their task
        lane "tenant:7"          the jobs of one group: limits with per_group hold for each lane
      line "invoices.send"       a task with a policy of its own, which replaces that of the queue
        lane "tenant:7" ...

A job under a policy is in a lane; all jobs of a lane stand under exactly the same limits. Times are microseconds.
"""

from collections.abc import Sequence

import msgspec

MAX_RATE = 1_000_000
MIN_PER_US, MAX_PER_US = 1_000_000, 86_400_000_000
MAX_WEIGHT = 100
MAX_STARTS = 64
"""Moments of starts that are kept one by one. More are counted on a grid of a 64th of the window, rounded up: never more starts
than allowed, at most 1.6 % fewer."""

Starts = Sequence[tuple[int, int]]
"""(moment, how many), oldest first."""
NO_LIMIT = 2**31 - 1


class Bounds(msgspec.Struct, frozen=True, array_like=True):
    """What is allowed at one place of the tree."""

    concurrency: int | None = None
    """At most so many run at once."""
    rate: int | None = None
    """At most so many start in any time of length `per`."""
    per: int | None = None

    @property
    def is_open(self) -> bool:
        """Nothing is limited."""
        return self.concurrency is None and self.rate is None


class LinePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What stands over the jobs of a line. Stored as JSON."""

    whole: Bounds = Bounds()
    """Over all jobs of the line, in the whole cluster. Of the line of a queue: over all jobs of the queue."""
    each: Bounds = Bounds()
    """Over each group."""
    order: str = ""
    """hold or skip: the jobs of a group run one after the other in the order of enqueue; one that waits for its retry holds the
    others, or is stepped over."""
    fair: bool = False
    """The groups of the line take turns."""
    weights: dict[str, int] = {}
    """Of groups that get more than one job in each turn."""


class LineDeclaration(msgspec.Struct, frozen=True, kw_only=True):
    """A policy as code declares it."""

    queue: str
    line: str
    policy: LinePolicy


class LineChange(msgspec.Struct, frozen=True, kw_only=True):
    """What people set; it wins over what code declares, until it is taken back. None: as declared."""

    whole: Bounds | None = None
    each: Bounds | None = None
    fair: bool | None = None


def effective_policy(declared: LinePolicy, change: LineChange | None) -> LinePolicy:
    if change is None:
        return declared
    given = {name: value for name, value in msgspec.structs.asdict(change).items() if value is not None}
    return msgspec.structs.replace(declared, **given)


class LineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A line, as people see it."""

    queue: str
    line: str
    policy: LinePolicy
    """What holds now."""
    declared: LinePolicy
    change: LineChange | None = None
    changed_at: int | None = None
    changed_by: str | None = None
    reason: str | None = None
    running: int = 0
    """Of the line ""; all jobs of the queue that are in lanes."""
    starts_in_window: int = 0
    """Of the limit of the whole line."""
    open_at: int = 0
    """That rate allows no start before."""


class GroupInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A lane, as people see it. Counts of waiting jobs stop at 10,000."""

    queue: str
    line: str
    group: str
    waiting: int
    """Pending jobs that nothing but time and limits keeps: due or not."""
    running: int
    bounds: Bounds
    weight: int = 1
    own_bounds: Bounds | None = None
    own_weight: int | None = None
    starts_in_window: int = 0
    head_at: int | None = None
    """About when its first job is or was due."""
    open_at: int = 0
    """Its rate allows no start before."""


def drop_old_starts(bounds: Bounds, starts: Starts, now: int) -> list[tuple[int, int]]:
    """Those that still count: later than now - per, also those after `now`."""
    return [] if bounds.per is None else [each for each in starts if each[0] > now - bounds.per]


def find_room(bounds: Bounds, running: int, starts: Starts, now: int) -> int:
    """How many jobs may be started now."""
    room = NO_LIMIT if bounds.concurrency is None else max(0, bounds.concurrency - running)
    if bounds.rate is not None:
        room = min(room, max(0, bounds.rate - sum(count for _, count in drop_old_starts(bounds, starts, now))))
    return room


def find_opening(bounds: Bounds, starts: Starts, now: int) -> int:
    """When the rate allows the next start; 0: now."""
    if bounds.rate is None or bounds.per is None:
        return 0
    counted = drop_old_starts(bounds, starts, now)
    left = sum(count for _, count in counted)
    opening = 0
    for moment, count in counted:
        if left < bounds.rate:
            break
        left -= count
        opening = moment + bounds.per
    return opening


def add_starts(bounds: Bounds, starts: Starts, count: int, now: int) -> list[tuple[int, int]]:
    """With so many starts now, without those that do not count any more."""
    if bounds.per is None:
        return []
    kept = drop_old_starts(bounds, starts, now)
    if count:
        kept.append((max(now, kept[-1][0] if kept else now), count))
    if len(kept) <= MAX_STARTS:
        return kept
    grid = max(1, bounds.per // MAX_STARTS)
    merged: dict[int, int] = {}
    for moment, number in kept:
        at = -(-moment // grid) * grid
        merged[at] = merged.get(at, 0) + number
    return sorted(merged.items())
