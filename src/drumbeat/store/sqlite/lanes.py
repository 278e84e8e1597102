"""Claims of jobs under limits on SQLite: inside the writer's transaction, by the rules of core/lanes.py."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from drumbeat.core.lanes import (
    MAX_LANES,
    LaneShare,
    LaneState,
    LineState,
    deal,
    find_line_opening,
    find_line_room,
    is_limited,
    settle,
    start_line,
)
from drumbeat.ids import InstanceId
from drumbeat.store.records import as_json
from drumbeat.store.sqlfile import Statements
from drumbeat.store.sqlite.connection import NULL, SqliteConnection
from drumbeat.store.sqlite.writer import WriteContext

_read_lines = msgspec.json.Decoder(list[LineState]).decode
_read_lanes = msgspec.json.Decoder(list[LaneState]).decode
_read_heads = msgspec.json.Decoder(list[list[tuple[int, int]]]).decode
LEVELS = range(10)
_SETTLE_WIDTH = 9


class LanesDue(NamedTuple):
    """What lanes have for a claim that has taken what it could."""

    next_due: int | None
    has_limited: bool
    """Some are ready, but there is no slot for them."""


class Picked(NamedTuple):
    """What a lane gives."""

    share: LaneShare
    seqs: list[int]
    next_at: int | None
    levels: int


class SqliteLaneClaimer:
    def __init__(self, sql: Statements) -> None:
        self._sql = sql

    def read_lines(self, db: SqliteConnection, queue: str, instance: InstanceId | None = None) -> dict[str, LineState]:
        """The lines of a queue by name; none if it is paused, or the instance is dead."""
        found = _read_lines(db.value(self._sql.lines_of_queue, {"queue": queue, "instance": instance}))
        return {line.name: line for line in found}

    def read_ready(
        self, db: SqliteConnection, queue: str, lines: Mapping[str, LineState], now: int, limit: int
    ) -> dict[str, list[LaneState]]:
        """The ready lanes of each line that has room."""
        whole = lines.get("")
        if whole is not None and not find_line_room(whole, now):
            return {}
        found = {}
        for name, line in lines.items():
            if find_line_room(line, now):
                wanted = {"queue": queue, "line": name, "now": now, "limit": min(limit, MAX_LANES)}
                if ready := _read_lanes(db.value(self._sql.ready_lanes, wanted)):
                    found[name] = ready
        return found

    def pick(
        self,
        write: WriteContext,
        queue: str,
        lines: Mapping[str, LineState],
        ready: Mapping[str, Sequence[LaneState]],
        places: int,
        slots: int,
    ) -> tuple[list[int], int]:
        """The rows of the jobs that a claim gets of these lanes, which are settled; and how many slots they take."""
        seqs: list[int] = []
        used = 0
        whole = lines.get("")
        for shares in deal(lines, ready, places, slots, write.now):
            line = lines[shares[0].line]
            picked = self._look(write, queue, line, shares)
            settled = [
                settle(
                    each.share.lane,
                    line.policy,
                    each.share.wanted,
                    len(each.seqs),
                    each.next_at,
                    each.levels,
                    write.now,
                    position - len(picked),
                )
                for position, each in enumerate(picked)
            ]
            write.db.run_rows(
                self._sql.settle_lanes, _SETTLE_WIDTH, [_row(lane) for lane in settled], (queue, write.now)
            )
            got = [seq for each in picked for seq in each.seqs]
            seqs += got
            used += len(got) if is_limited(line.policy, None if whole is None else whole.policy) else 0
            if got and line.name and not line.policy.whole.is_open:
                self._start_line(write, queue, start_line(line, len(got), write.now))
        if seqs and whole is not None and not whole.policy.whole.is_open:
            self._start_line(write, queue, start_line(whole, len(seqs), write.now))
        return seqs, used

    def find_due(
        self, db: SqliteConnection, queues: Sequence[str], slots: int, now: int, instance: InstanceId | None = None
    ) -> LanesDue:
        """When lanes of these queues have jobs for a claim with so many slots left."""
        next_due: int | None = None
        has_limited = False
        for queue in queues:
            lines = self.read_lines(db, queue, instance)
            whole = lines.get("")
            queue_opening = 0 if whole is None or find_line_room(whole, now) else find_line_opening(whole, now)
            for name, line in lines.items() if queue_opening is not None else ():
                opening = 0 if find_line_room(line, now) else find_line_opening(line, now)
                ready_at = db.value(self._sql.next_ready, {"queue": queue, "line": name})
                if opening is None or queue_opening is None or type(ready_at) is not int:
                    continue
                due = max(ready_at, opening, queue_opening)
                if slots <= 0 and is_limited(line.policy, None if whole is None else whole.policy):
                    has_limited |= due <= now
                elif next_due is None or due < next_due:
                    next_due = due
        return LanesDue(next_due, has_limited)

    def _start_line(self, write: WriteContext, queue: str, line: LineState) -> None:
        facts = {"queue": queue, "name": line.name, "running": line.running, "starts": as_json(line.starts)}
        write.db.run(self._sql.start_line, facts)

    def _look(self, write: WriteContext, queue: str, line: LineState, shares: Sequence[LaneShare]) -> list[Picked]:
        if line.policy.order:
            return self._look_in_order(write, queue, line, shares)
        wanted = [(share.lane.name, level) for share in shares for level in LEVELS if share.lane.levels >> level & 1]
        limit = 1 + max(share.wanted for share in shares)
        facts = {"queue": queue, "wanted": as_json(wanted), "limit": limit}
        heads = iter(_read_heads(write.db.value(self._sql.jobs_of_lanes, facts)))
        return [
            _choose(share, {level: next(heads) for level in LEVELS if share.lane.levels >> level & 1}, write.now)
            for share in shares
        ]

    def _look_in_order(
        self, write: WriteContext, queue: str, line: LineState, shares: Sequence[LaneShare]
    ) -> list[Picked]:
        facts = {"queue": queue, "wanted": as_json([share.lane.name for share in shares])}
        is_held = line.policy.order == "hold"
        if is_held:
            heads = _read_heads(write.db.value(self._sql.heads_in_order, facts))
        else:
            heads = _read_heads(write.db.value(self._sql.first_due_in_order, facts | {"now": write.now}))
        picked = []
        for share, found in zip(shares, heads, strict=True):
            seqs = [seq for seq, run_at in found[:1] if run_at <= write.now][: share.wanted]
            left = [run_at for _, run_at in found[len(seqs) :]]
            # Where others are stepped over, who is next is not known: too early costs a look.
            next_at = left[0] if left else write.now if seqs and not is_held else None
            picked.append(Picked(share, seqs, next_at, share.lane.levels))
        return picked


def _choose(share: LaneShare, heads: Mapping[int, Sequence[tuple[int, int]]], now: int) -> Picked:
    """Of the first jobs of each level: those that are due, by level."""
    seqs: list[int] = []
    next_at: int | None = None
    levels = 0
    for level, jobs in heads.items():
        due = [seq for seq, run_at in jobs if run_at <= now][: share.wanted - len(seqs)]
        seqs += due
        if len(due) < len(jobs):
            levels |= 1 << level
            run_at = jobs[len(due)][1]
            next_at = run_at if next_at is None else min(next_at, run_at)
    return Picked(share, seqs, next_at, levels)


def _row(lane: LaneState) -> tuple[str | int, ...]:
    return (
        lane.name,
        lane.running,
        NULL if lane.head_at is None else lane.head_at,
        lane.turn_at,
        lane.open_at,
        as_json(lane.starts),
        lane.credit,
        lane.levels,
        lane.concurrency,
    )
