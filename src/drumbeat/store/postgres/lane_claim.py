"""Claims of jobs under limits on PostgreSQL, by the rules of core/lanes.py. A transaction of at most five statements, however
many lanes there are:

    open_lanes      news folded; lines read; ready lanes locked, those that another session holds skipped
    claim_lanes     after `deal`: the jobs of all these lanes, and what is left
    settle_lanes    after `settle`
    start_lines     of lines that are limited as a whole
    lanes_due       if the claim was not filled: when to look again
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from drumbeat.core.claim import ClaimedJob, MalformedJob
from drumbeat.core.lanes import MAX_LANES, LaneShare, LaneState, LineState, deal, is_limited, settle, start_line
from drumbeat.core.limits import find_opening
from drumbeat.ids import InstanceId
from drumbeat.store.postgres.connections import Session
from drumbeat.store.postgres.limit_rows import decode_bounds, decode_policy, decode_starts
from drumbeat.store.postgres.rows import claimed_jobs, to_columns
from drumbeat.store.records import as_json
from drumbeat.store.sqlfile import Statements

MAX_NEWS = 1_000
"""Of each queue that a claim folds: more than the ends and adds that go with one."""
SKIPPED_DELAY_US = 2_000
"""When to look again for what another session holds at this moment."""


class LaneTimes(NamedTuple):
    """When lanes of some queues may be claimed from: what `find_lanes_due` says."""

    has_news: bool
    """Something has happened that no claim has seen."""
    lane_due: int | None
    slot_due: int | None
    """Of lines whose jobs are claimed for free slots only."""

    @classmethod
    def from_row(cls, facts: Sequence[int | None] | None) -> "LaneTimes":
        """None: there are no lines."""
        if facts is None:
            return NO_LANES
        has_news, lane_due, slot_due = facts
        return cls(bool(has_news), lane_due, slot_due)

    def is_now(self, now: int, slots: int) -> bool:
        """Whether a claim with so many slots left may find something."""
        found = (self.lane_due, self.slot_due if slots > 0 else None)
        return self.has_news or any(due is not None and due <= now for due in found)

    def next_look(self, now: int, slots: int) -> int | None:
        """When to look again after a claim that took what it could: what is ready now is held by another session."""
        found = [due for due in (self.lane_due, self.slot_due if slots > 0 else None) if due is not None]
        if self.has_news:
            found.append(now)
        return max(min(found), now + SKIPPED_DELAY_US) if found else None

    def lacks_slots(self, now: int, slots: int) -> bool:
        return slots <= 0 and self.slot_due is not None and self.slot_due <= now

    def may_lack_slots(self, now: int, slots: int) -> bool:
        """Also where nobody has looked at the news."""
        return self.lacks_slots(now, slots) or (slots <= 0 and self.has_news)


NO_LANES = LaneTimes(False, None, None)


class LaneClaim(NamedTuple):
    """What lanes gave."""

    now: int | None = None
    jobs: Sequence[ClaimedJob] = ()
    malformed: Sequence[MalformedJob] = ()
    slots: int = 0
    """How many of the jobs are under limits."""
    lines: Mapping[str, int] | None = None
    """How many lines of each queue had lanes that were ready, also where only slots were missing; None: unknown."""
    is_more: bool = False
    """Some of these lanes have more that is due."""
    due: LaneTimes | None = None
    """If fewer were given than wanted: what is left."""

    @property
    def given(self) -> int:
        return len(self.jobs) + len(self.malformed)


class _Opened(NamedTuple):
    """Lines and locked lanes of a queue, and the places of their rows."""

    lines: dict[str, LineState]
    lanes: dict[str, list[LaneState]]
    places: dict[tuple[str | None, str], str]
    """By the line (None) or the lane, and its name."""


class PostgresLaneClaimer:
    def __init__(self, sql: Statements) -> None:
        self._sql = sql

    async def claim(
        self, session: Session, instance: InstanceId, limit: int, slots: int, quotas: Mapping[str, int]
    ) -> LaneClaim:
        """Claim up to `limit` jobs of lanes, in a transaction. `quotas`: how many of each queue, in the order of their turn;
        what one leaves is for all. `slots`: how many may be under limits."""
        queues = list(quotas)
        opened, now = await self._open(session, queues, min(MAX_LANES, limit))
        if opened is None:
            return LaneClaim(due=await self.load_due(session, queues))
        shares = _divide(opened, quotas, limit, slots, now)
        answer = LaneClaim(now=now)
        if any(shares.values()):
            answer = await self._take(session, instance, opened, shares, now)
        answer = answer._replace(lines={queue: len(found.lanes) for queue, found in opened.items()})
        if answer.given < limit:
            answer = answer._replace(due=await self.load_due(session, queues))
        return answer

    async def _open(self, session: Session, queues: list[str], max_lanes: int) -> tuple[dict[str, _Opened] | None, int]:
        """None: there is nothing to take from."""
        rows = await session.fetch(self._sql.open_lanes, queues, max_lanes, MAX_NEWS)
        opened = {queue: _Opened({}, {}, {}) for queue in queues}
        now = 0
        for row in rows:
            queue, line, name = row["queue"], row["line"], row["lane"]
            into = opened[queue]
            if name is None:
                into.lines[line] = LineState(
                    line, decode_policy(row["policy"]), row["running"], decode_starts(row["starts"])
                )
                into.places[None, line] = row["place"]
            else:
                into.lanes.setdefault(line, []).append(_read_lane(row))
                into.places[line, name] = row["place"]
                now = max(now, row["now_at"])
        return (opened if now else None), now

    async def _take(
        self,
        session: Session,
        instance: InstanceId,
        opened: Mapping[str, _Opened],
        shares: Mapping[str, list[LaneShare]],
        now: int,
    ) -> LaneClaim:
        asked = [(queue, share) for queue, found in shares.items() for share in found]
        columns = to_columns(
            (
                queue,
                share.lane.name,
                share.wanted,
                share.lane.levels,
                opened[queue].lines[share.line].policy.order,
            )
            for queue, share in asked
        )
        rows = await session.fetch(self._sql.claim_lanes, instance, now, *columns)
        summaries = {row["number"] - 1: row for row in rows if row["number"] is not None}
        if not summaries:
            return LaneClaim(now=now)  # the instance is declared dead
        found = [row for row in rows if row["number"] is None]
        # Not what was picked: a job that changed in the meantime was locked, but is not claimed.
        got = Counter((row["queue"], row["lane"]) for row in found)
        settled: list[tuple[Any, ...]] = []
        given: dict[tuple[str, str], int] = {}
        is_more = False
        for number, (queue, share) in enumerate(asked):
            summary, count = summaries[number], got[queue, share.lane.name]
            lane = settle(
                share.lane,
                opened[queue].lines[share.line].policy,
                share.wanted,
                count,
                summary["next_at"],
                summary["levels"],
                now,
                number - len(asked),
            )
            is_more |= lane.ready_at is not None and lane.ready_at <= now
            given[queue, share.line] = given.get((queue, share.line), 0) + count
            settled.append(_lane_row(opened[queue].places[share.line, lane.name], lane))
        await session.execute(self._sql.settle_lanes, *to_columns(settled), now)
        if started := _started_lines(opened, given, now):
            await session.execute(self._sql.start_lines, *to_columns(started))
        turns = {(queue, share.lane.name): number for number, (queue, share) in enumerate(asked)}
        found.sort(key=lambda row: (turns[row["queue"], row["lane"]], row["priority"], row["run_at"], row["id"]))
        jobs, malformed = claimed_jobs(found)
        return LaneClaim(
            now=now,
            jobs=jobs,
            malformed=malformed,
            slots=sum(count for (queue, line), count in given.items() if _needs_slot(opened[queue].lines, line)),
            is_more=is_more,
        )

    async def load_due(self, session: Session, queues: list[str]) -> LaneTimes:
        return LaneTimes.from_row(await session.fetchval(self._sql.lanes_due, queues))


def _divide(
    opened: Mapping[str, _Opened], quotas: Mapping[str, int], limit: int, slots: int, now: int
) -> dict[str, list[LaneShare]]:
    """What each lane gives. First each queue up to its quota, then, in the same order, whatever is left of the limit."""
    shares: dict[str, list[LaneShare]] = {queue: [] for queue in quotas}
    used = dict.fromkeys(quotas, (0, 0))
    for turn in (quotas, dict.fromkeys(quotas, limit)):
        for queue, quota in turn.items():
            lines, lanes, _ = opened[queue]
            places = min(quota, used[queue][0] + limit)
            if not lanes or places <= used[queue][0]:
                continue
            found = [share for line in deal(lines, lanes, places, used[queue][1] + slots, now) for share in line]
            count = sum(share.wanted for share in found)
            taken = sum(share.wanted for share in found if _needs_slot(lines, share.line))
            limit, slots = limit - count + used[queue][0], slots - taken + used[queue][1]
            shares[queue], used[queue] = found, (count, taken)
    return shares


def _needs_slot(lines: Mapping[str, LineState], line: str) -> bool:
    whole = lines.get("")
    return is_limited(lines[line].policy, None if whole is None else whole.policy)


def _started_lines(
    opened: Mapping[str, _Opened], given: Mapping[tuple[str, str], int], now: int
) -> list[tuple[Any, ...]]:
    """The rows of limited lines whose jobs were claimed. The line "" counts for all of its queue."""
    counts: dict[tuple[str, str], int] = {}
    for (queue, line), count in given.items():
        for name in {line, ""}:
            counts[queue, name] = counts.get((queue, name), 0) + count
    rows = []
    for (queue, name), count in counts.items():
        found = opened[queue].lines.get(name)
        if count and found is not None and not found.policy.whole.is_open:
            after = start_line(found, count, now)
            opening = find_opening(found.policy.whole, after.starts, now)
            rows.append((opened[queue].places[None, name], after.running, as_json(after.starts), opening))
    return rows


def _read_lane(row: Any) -> LaneState:
    return LaneState(
        name=row["lane"],
        running=row["running"],
        head_at=row["head_at"],
        turn_at=row["turn_at"],
        open_at=row["open_at"],
        starts=decode_starts(row["starts"]),
        credit=row["credit"],
        levels=row["levels"],
        concurrency=row["concurrency"],
        own_bounds=None if row["own_bounds"] is None else decode_bounds(row["own_bounds"]),
        own_weight=row["own_weight"],
    )


def _lane_row(place: str, lane: LaneState) -> tuple[Any, ...]:
    return (
        *(place, lane.running, lane.head_at, lane.turn_at, lane.open_at, as_json(lane.starts)),
        *(lane.credit, lane.levels, lane.concurrency),
    )
