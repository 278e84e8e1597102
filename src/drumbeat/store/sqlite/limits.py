"""Lines and lanes of a store on SQLite: what is declared, set by hand, listed, swept. Claims are in lanes.py."""

from collections.abc import Sequence
from functools import partial

import msgspec

from drumbeat.core.lanes import LaneState, bounds_of, lane_name, split_lane, weight_of
from drumbeat.core.limits import (
    NO_LIMIT,
    Bounds,
    GroupInfo,
    LineChange,
    LineDeclaration,
    LineInfo,
    LinePolicy,
    drop_old_starts,
    effective_policy,
    find_opening,
)
from drumbeat.store.records import as_json
from drumbeat.store.sqlite.connection import SqliteConnection
from drumbeat.store.sqlite.parts import SqliteOperations
from drumbeat.store.sqlite.writer import WriteContext

_MAX_LANES_AT_ONCE = 1_000


class _LineRow(msgspec.Struct, frozen=True, array_like=True):
    declared: LinePolicy
    version: int
    override: LineChange | None
    policy: LinePolicy


class _ListedLineRow(msgspec.Struct, frozen=True, array_like=True):
    queue: str
    line: str
    policy: LinePolicy
    declared: LinePolicy
    change: LineChange | None
    changed_at: int | None
    changed_by: str | None
    reason: str | None
    running: int
    starts: list[tuple[int, int]]


class _GroupRow(msgspec.Struct, frozen=True, array_like=True):
    queue: str
    waiting: int
    lane: LaneState


_read_line = msgspec.json.Decoder(_LineRow).decode
_read_lines = msgspec.json.Decoder(list[_ListedLineRow]).decode
_read_groups = msgspec.json.Decoder(list[_GroupRow]).decode
_read_untold = msgspec.json.Decoder(list[tuple[str, str, int]]).decode
_read_idle = msgspec.json.Decoder(list[tuple[str, str, LinePolicy | None, list[tuple[int, int]]]]).decode
_read_names = msgspec.json.Decoder(list[str]).decode
_read_counts = msgspec.json.Decoder(list[tuple[str, str, int]]).decode


class SqliteLimits(SqliteOperations):
    async def declare(self, lines: Sequence[LineDeclaration], version: int) -> None:
        await self._writer.write(partial(_declare, self), (lines, version))
        await self._tell_all()

    async def change(self, queue: str, line: str, change: LineChange | None, *, by: str, reason: str) -> bool:
        facts = {
            "queue": queue,
            "name": line,
            "override": None if change is None else as_json(change),
            "by": by,
            "reason": reason,
        }
        is_changed = await self._writer.write(partial(_change, self), (facts, change))
        await self._tell_all()
        return is_changed

    async def change_group(
        self, queue: str, line: str, group: str, *, bounds: Bounds | None, weight: int | None
    ) -> bool:
        return await self._writer.write(
            partial(_change_group, self),
            (queue, line, LaneState(lane_name(line, group), own_bounds=bounds, own_weight=weight)),
        )

    async def list_lines(self) -> list[LineInfo]:
        now = self._clock.now_us()
        return [
            LineInfo(
                queue=row.queue,
                line=row.line,
                policy=row.policy,
                declared=row.declared,
                change=row.change,
                changed_at=row.changed_at,
                changed_by=row.changed_by,
                reason=row.reason,
                running=row.running,
                starts_in_window=sum(count for _, count in drop_old_starts(row.policy.whole, row.starts, now)),
                open_at=find_opening(row.policy.whole, row.starts, now),
            )
            for row in await self._admin_reader.read(self._read_lines)
        ]

    async def list_groups(
        self, queue: str, line: str, *, after: str | None = None, limit: int = 100
    ) -> list[GroupInfo]:
        start = "" if after is None else lane_name(line, after)
        facts = {"queue": queue, "name": line, "after": start, "limit": limit}
        return await self._read_groups(self._sql.groups, facts)

    async def find_groups(self, lanes: Sequence[tuple[str, str]]) -> list[GroupInfo | None]:
        found = await self._read_groups(self._sql.groups_by_lane, {"lanes": as_json(lanes)})
        by_lane = {(each.queue, lane_name(each.line, each.group)): each for each in found}
        return [by_lane.get(lane) for lane in lanes]

    async def busiest_groups(self, limit: int) -> list[GroupInfo]:
        return await self._read_groups(self._sql.busiest_groups, {"limit": limit, "now": self._clock.now_us()})

    async def sweep(self, idle_before: int, limit: int) -> tuple[int, int]:
        await self._tell_all()
        return await self._writer.write(partial(_sweep, self), (idle_before, limit))

    def _read_lines(self, db: SqliteConnection) -> list[_ListedLineRow]:
        return _read_lines(db.value(self._sql.lines))

    async def _read_groups(self, statement: str, facts: dict[str, object]) -> list[GroupInfo]:
        def read(db: SqliteConnection) -> tuple[list[_GroupRow], list[_ListedLineRow]]:
            return _read_groups(db.value(statement, facts)), self._read_lines(db)

        found, lines = await self._admin_reader.read(read)
        policies = {(line.queue, line.line): line.policy for line in lines}
        now = self._clock.now_us()
        return [
            _to_group(row, policies.get((row.queue, split_lane(row.lane.name)[0]), LinePolicy()), now) for row in found
        ]

    async def _tell_all(self) -> None:
        """Let lanes stand under policies that have changed, in pieces. Whoever changed one may be gone: all are looked at."""
        untold = await self._admin_reader.read(lambda db: _read_untold(db.value(self._sql.untold_lines)))
        for queue, line, revision in untold:
            last: str | None = ""
            while last is not None:
                last = await self._writer.write(partial(_tell, self), (queue, line, revision, last))

    # On the writer's thread.

    def set_policy(
        self, write: WriteContext, queue: str, line: str, before: LinePolicy | None, policy: LinePolicy
    ) -> None:
        facts = {
            "queue": queue,
            "name": line,
            "policy": as_json(policy),
            "order": policy.order,
            "is_limited": not policy.whole.is_open,
        }
        write.db.run(self._sql.set_policy, facts)
        if bool(policy.order) != bool(before and before.order):
            write.db.run(
                self._sql.order_line if policy.order else self._sql.unorder_line, {"queue": queue, "name": line}
            )


def _declare(store: SqliteLimits, write: WriteContext, given: tuple[Sequence[LineDeclaration], int]) -> None:
    lines, version = given
    for each in lines:
        place = {"queue": each.queue, "name": each.line}
        text = write.db.value(store._sql.line, place)
        row = None if text is None else _read_line(text)
        if row is not None and (row.version > version or (row.version, row.declared) == (version, each.policy)):
            continue
        policy = effective_policy(each.policy, None if row is None else row.override)
        declared = as_json(each.policy)
        facts = place | {"policy": declared, "declared": declared, "version": version, "now": write.now}
        write.db.run(store._sql.declare_line, facts)
        if row is None or policy != row.policy:
            store.set_policy(write, each.queue, each.line, None if row is None else row.policy, policy)
            write.notify(write.now)


def _change(store: SqliteLimits, write: WriteContext, given: tuple[dict[str, object], LineChange | None]) -> bool:
    facts, change = given
    place = {"queue": facts["queue"], "name": facts["name"]}
    text = write.db.value(store._sql.line, place)
    if text is None:
        return False
    row = _read_line(text)
    write.db.run(store._sql.change_line, facts | {"now": write.now})
    policy = effective_policy(row.declared, change)
    store.set_policy(write, str(facts["queue"]), str(facts["name"]), row.policy, policy)
    write.notify(write.now)
    return True


def _change_group(store: SqliteLimits, write: WriteContext, given: tuple[str, str, LaneState]) -> bool:
    queue, line, lane = given
    text = write.db.value(store._sql.line, {"queue": queue, "name": line})
    if text is None:
        return False
    bounds = bounds_of(lane, _read_line(text).policy)
    facts = {
        "queue": queue,
        "name": line,
        "lane": lane.name,
        "bounds": None if lane.own_bounds is None else as_json(lane.own_bounds),
        "weight": lane.own_weight,
        "concurrency": NO_LIMIT if bounds.concurrency is None else bounds.concurrency,
        "now": write.now,
    }
    write.db.run(store._sql.change_group, facts)
    write.notify(write.now)
    return True


def _tell(store: SqliteLimits, write: WriteContext, given: tuple[str, str, int, str]) -> str | None:
    """Tell a piece of the lanes of a line, by the policy that holds now. The last of them; None: these were all."""
    queue, line, revision, after = given
    place = {"queue": queue, "name": line}
    policy = _read_line(write.db.value(store._sql.line, place)).policy
    text = write.db.value(store._sql.lane_names, place | {"after": after, "limit": _MAX_LANES_AT_ONCE})
    bounds = bounds_of(LaneState(""), policy)
    facts = {"names": text, "concurrency": NO_LIMIT if bounds.concurrency is None else bounds.concurrency}
    write.db.run(store._sql.tell_lanes, place | facts | {"fair": policy.fair, "now": write.now})
    write.notify(write.now)
    names = _read_names(text)
    if len(names) == _MAX_LANES_AT_ONCE:
        return names[-1]
    write.db.run(store._sql.set_told, place | {"revision": revision})
    return None


def _sweep(store: SqliteLimits, write: WriteContext, given: tuple[int, int]) -> tuple[int, int]:
    before, limit = given
    found = _read_idle(write.db.value(store._sql.idle_lanes, {"before": before, "now": write.now, "limit": limit}))
    idle: list[tuple[str, str]] = []
    kept: list[tuple[str, str]] = []
    for queue, name, policy, starts in found:
        # What a rate still counts would start again.
        counts = policy is not None and drop_old_starts(policy.each, starts, write.now)
        (kept if counts else idle).append((queue, name))
    deleted = write.db.run(store._sql.delete_lanes, {"lanes": as_json(idle)}) if idle else 0
    if kept:
        write.db.run(store._sql.keep_lanes, {"lanes": as_json(kept), "now": write.now})
    corrected = 0
    for statement, correct in (
        (store._sql.running_of_lanes, store._sql.correct_lane),
        (store._sql.miscounted_lines, store._sql.correct_line),
    ):
        for queue, name, running in _read_counts(write.db.value(statement))[:limit]:
            corrected += write.db.run(correct, {"queue": queue, "name": name, "running": running})
    if corrected:
        write.notify(write.now)
    return deleted, corrected


def _to_group(row: _GroupRow, policy: LinePolicy, now: int) -> GroupInfo:
    lane = row.lane
    line, group = split_lane(lane.name)
    bounds = bounds_of(lane, policy)
    return GroupInfo(
        queue=row.queue,
        line=line,
        group=group,
        waiting=row.waiting,
        running=lane.running,
        bounds=bounds,
        weight=weight_of(lane, policy),
        own_bounds=lane.own_bounds,
        own_weight=lane.own_weight,
        starts_in_window=sum(count for _, count in drop_old_starts(bounds, lane.starts, now)),
        head_at=lane.head_at,
        open_at=lane.open_at,
    )
