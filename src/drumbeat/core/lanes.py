"""Lanes: which groups a claim takes jobs from, and what it leaves behind. Pure.

A lane is the jobs of one group that stand under the same limits (core/limits.py). It is a row with one moment, `ready_at`: no
claim before it. Fairness, concurrency and rate only move that moment. Too early costs a look, which corrects it; too late would
lose a job: so whatever may make a lane claimable earlier must tell it.

    a job becomes pending, or earlier      head_at = least(head_at, run_at); its level is set
    a run ends, in any way                 running - 1
    limits change                          concurrency
    a claim                                `settle`: all of it is known exactly
    a pending job is cancelled, expires    nothing: the next look finds out

The SQL engines load lanes (locked), call `deal`, pick that many jobs of each, call `settle` and write the result. Redis does
the same in lua/_lanes.lua; tests/contract/test_rules_lanes.py compares them.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from drumbeat.core.limits import NO_LIMIT, Bounds, LinePolicy, add_starts, find_opening, find_room

MAX_LANES = 200
"""A claim takes from at most as many lanes, and is told to look again if more are ready."""


def lane_name(line: str, group: str) -> str:
    """The name of a lane in its queue. Names of tasks have no spaces."""
    return f"{line} {group}"


def split_lane(name: str) -> tuple[str, str]:
    """Line and group."""
    line, _, group = name.partition(" ")
    return line, group


class LaneState(msgspec.Struct, frozen=True, array_like=True):
    """A lane as a claim finds it; the order of fields is the order of columns."""

    name: str
    running: int = 0
    head_at: int | None = None
    """No job of it is due before; None: it has none that is pending."""
    turn_at: int = 0
    """The end of its last turn, where groups take turns; else 0."""
    open_at: int = 0
    """Its rate allows no start before."""
    starts: list[tuple[int, int]] = []
    credit: int = 0
    """How many jobs it may give before its turn ends; 0: its weight."""
    levels: int = 0
    """The priorities that it may have pending jobs of, as bits."""
    concurrency: int = NO_LIMIT
    """As its limits said when it was last written."""
    own_bounds: Bounds | None = None
    """Set for this group by hand, instead of those of its line."""
    own_weight: int | None = None

    @property
    def ready_at(self) -> int | None:
        if self.head_at is None or self.running >= self.concurrency:
            return None
        return max(self.head_at, self.turn_at, self.open_at)


class LineState(msgspec.Struct, frozen=True, array_like=True):
    """A line as a claim finds it. The line "" also counts for all other lines of its queue."""

    name: str
    policy: LinePolicy
    running: int = 0
    starts: list[tuple[int, int]] = []


class LaneShare(msgspec.Struct, frozen=True):
    """What a lane may give to this claim."""

    lane: LaneState
    line: str
    wanted: int


def bounds_of(lane: LaneState, policy: LinePolicy) -> Bounds:
    bounds = policy.each if lane.own_bounds is None else lane.own_bounds
    return msgspec.structs.replace(bounds, concurrency=1) if policy.order else bounds


def find_lane_room(lane: LaneState, policy: LinePolicy, now: int) -> int:
    return find_room(bounds_of(lane, policy), lane.running, lane.starts, now)


def weight_of(lane: LaneState, policy: LinePolicy) -> int:
    return lane.own_weight or policy.weights.get(split_lane(lane.name)[1], 1)


def is_limited(policy: LinePolicy, whole: LinePolicy | None) -> bool:
    """Whether jobs of the line must be claimed for free slots only. `whole`: the policy of the line ""."""
    return (
        bool(policy.order)
        or not (policy.each.is_open and policy.whole.is_open)
        or (whole is not None and not whole.whole.is_open)
    )


def find_line_room(line: LineState, now: int) -> int:
    return find_room(line.policy.whole, line.running, line.starts, now)


def find_line_opening(line: LineState, now: int) -> int | None:
    """When a line that has no room now may have some; None: when a run ends."""
    whole = line.policy.whole
    if whole.concurrency is not None and line.running >= whole.concurrency:
        return None
    return find_opening(whole, line.starts, now)


def deal(
    lines: Mapping[str, LineState], lanes: Mapping[str, Sequence[LaneState]], places: int, slots: int, now: int
) -> list[list[LaneShare]]:
    """Divide places among the ready lanes of a queue, the lanes of each line in the order of their turn. A list for each
    line, of lanes that may give something, and of those that have no room, although they looked ready: they are settled too.
    `slots`: how many of the places are for jobs under limits.

    Lines get one place each in turn; within a line each lane gives its credit, then its weight again and again.
    """
    whole = lines.get("")
    queue_room = NO_LIMIT if whole is None else find_line_room(whole, now)
    given: dict[str, dict[int, int]] = {
        name: {at: 0 for at, lane in enumerate(found) if not find_lane_room(lane, lines[name].policy, now)}
        for name, found in lanes.items()
    }
    turns = {name: _turns(lines[name], found, now) for name, found in lanes.items() if found}
    room = {name: NO_LIMIT if name == "" else find_line_room(lines[name], now) for name in turns}
    limited = {name: is_limited(lines[name].policy, None if whole is None else whole.policy) for name in turns}
    first = now % len(turns) if turns else 0
    active = [*list(turns)[first:], *list(turns)[:first]]
    while active and places > 0 and queue_room > 0:
        still = []
        for name in active:
            if places <= 0 or queue_room <= 0:
                break
            if room[name] <= 0 or (limited[name] and slots <= 0) or (at := next(turns[name], None)) is None:
                continue
            given[name][at] = given[name].get(at, 0) + 1
            places, queue_room, room[name], slots = places - 1, queue_room - 1, room[name] - 1, slots - limited[name]
            still.append(name)
        active = still
    return [
        [LaneShare(lanes[name][at], name, count) for at, count in counts.items()]
        for name, counts in given.items()
        if counts
    ]


def _turns(line: LineState, lanes: Sequence[LaneState], now: int) -> Iterator[int]:
    """Whose job is next, job by job, until no lane has room."""
    rooms = [find_lane_room(lane, line.policy, now) for lane in lanes]
    counts = [lane.credit or weight_of(lane, line.policy) for lane in lanes]
    active = [at for at in range(len(lanes)) if rooms[at] > 0]
    while active:
        for at in active:
            for _ in range(min(counts[at], rooms[at])):
                rooms[at] -= 1
                yield at
            counts[at] = weight_of(lanes[at], line.policy)
        active = [at for at in active if rooms[at] > 0]


def settle(
    lane: LaneState,
    policy: LinePolicy,
    wanted: int,
    got: int,
    next_at: int | None,
    levels: int,
    now: int,
    position: int = 0,
) -> LaneState:
    """The lane after a claim that wanted so many of its jobs and got some, in a transaction at `now`.

    `next_at`: when the first job that is left is due; `levels`: what priorities are left; `position`: negative, the place of
    this lane among those of the claim: with equal moments those of the lowest names would always be first.
    """
    bounds = bounds_of(lane, policy)
    starts = add_starts(bounds, lane.starts, got, now)
    credit, turn_at = 0, 0
    if policy.fair:
        weight = weight_of(lane, policy)
        left = (lane.credit or weight) - got
        credit = left if left > 0 else -(left // weight) * weight + left  # what is left of the turn that it is in
        is_over = got < wanted or credit == 0
        credit, turn_at = (0, now + position) if is_over else (credit, lane.turn_at)
    return msgspec.structs.replace(
        lane,
        running=lane.running + got,
        head_at=next_at,
        turn_at=turn_at,
        open_at=find_opening(bounds, starts, now),
        starts=starts,
        credit=credit,
        levels=levels,
        concurrency=NO_LIMIT if bounds.concurrency is None else bounds.concurrency,
    )


def start_line(line: LineState, count: int, now: int) -> LineState:
    """The line, or the queue's, after so many of its jobs were claimed."""
    return msgspec.structs.replace(
        line,
        running=line.running + count,
        starts=add_starts(line.policy.whole, line.starts, count, now),
    )
