"""Limits on Redis: lines, lanes and what stands over them. The contract is in `store.protocol.limits`.

What enqueues, claims and ends do to lanes is in lua/_lanes.lua and lua/_lane_claim.lua.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from drumbeat.core.lanes import LaneState, bounds_of, lane_name, split_lane, weight_of
from drumbeat.core.limits import (
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
from drumbeat.store.malformed import explain_fault, log_faults
from drumbeat.store.redis.connection import Value
from drumbeat.store.redis.pool import RedisPool
from drumbeat.store.redis.record_format import int_or_zero
from drumbeat.store.redis.rows import encode_json

_LANES_PER_CALL = 1_000
_FIRST = "-"
"""The bound of ZRANGEBYLEX before all groups."""
_FIELDS = (
    *("policy", "declared", "version", "override", "changed_at", "changed_by", "reason"),
    *("running", "starts", "revision", "reordering", "rule"),
)
_decode_policy = msgspec.json.Decoder(LinePolicy).decode
_decode_change = msgspec.json.Decoder(LineChange).decode


class _StoredLine(msgspec.Struct, frozen=True, kw_only=True):
    queue: str
    name: str
    policy: LinePolicy | None = None
    """None: it was never declared."""
    declared: LinePolicy = LinePolicy()
    version: int = 0
    override: LineChange | None = None
    changed_at: int | None = None
    changed_by: str | None = None
    reason: str | None = None
    running: int = 0
    starts: Sequence[tuple[int, int]] = ()
    revision: str = ""
    is_reordering: bool = False
    rule: str = ""


class RedisLimits:
    def __init__(self, pool: RedisPool) -> None:
        self._pool = pool
        self._swept_to: tuple[Value, ...] = ("", "", "")

    async def declare(self, lines: Sequence[LineDeclaration], version: int) -> None:
        for each in lines:
            await self._declare(each, version)

    async def change(self, queue: str, line: str, change: LineChange | None, *, by: str, reason: str) -> bool:
        override = b"" if change is None else encode_json(change)
        facts: list[Value] = ["override", override, "changed_at", "now", "changed_by", by, "reason", reason]
        while True:
            [stored], _ = await self._load([(queue, line)])
            if stored.policy is None:
                return False
            if await self._write(stored, effective_policy(stored.declared, change), facts):
                return True

    async def change_group(
        self, queue: str, line: str, group: str, *, bounds: Bounds | None, weight: int | None
    ) -> bool:
        own: list[Value] = ["" if bounds is None else _format_bounds(bounds), "" if weight is None else weight]
        return bool(await self._pool.run("set_group", queue, line, group, *own))

    async def list_lines(self) -> list[LineInfo]:
        found, now = await self._load(())
        declared = [each for each in found if each.policy is not None]
        return [_to_info(each, now) for each in sorted(declared, key=lambda each: (each.queue, each.name))]

    async def list_groups(
        self, queue: str, line: str, *, after: str | None = None, limit: int = 100
    ) -> list[GroupInfo]:
        now, *found = await self._pool.run("list_groups", queue, line, _after(after), max(limit, 0))
        return await self._to_groups(found, now)

    async def find_groups(self, lanes: Sequence[tuple[str, str]]) -> list[GroupInfo | None]:
        values = [value for queue, lane in lanes for value in (queue, *split_lane(lane))]
        now, *found = await self._pool.run("find_groups", *values)
        known = iter(await self._to_groups([each for each in found if each is not None], now))
        return [None if each is None else next(known) for each in found]

    async def busiest_groups(self, limit: int) -> list[GroupInfo]:
        now, *found = await self._pool.run("list_busiest_groups", limit)
        groups = await self._to_groups(found, now)
        never = 1 << 62
        groups.sort(key=lambda each: (-each.running, never if each.head_at is None else each.head_at, each.group))
        return groups[:limit]

    async def sweep(self, idle_before: int, limit: int) -> tuple[int, int]:
        left, deleted, corrected, is_round = limit, 0, 0, False
        while left > 0:
            is_round = is_round or not any(self._swept_to)
            some = min(left, _LANES_PER_CALL)
            looked, gone, wrong, *following = await self._pool.run("sweep_lanes", idle_before, some, *self._swept_to)
            self._swept_to = tuple(following)
            left, deleted, corrected = left - looked, deleted + gone, corrected + wrong
            if is_round and not any(following):
                break
        for line in (await self._load(()))[0]:
            if line.is_reordering:  # whoever began is gone
                await self._reorder(line.queue, line.name)
        return deleted, corrected

    async def _declare(self, declaration: LineDeclaration, version: int) -> None:
        facts: list[Value] = ["declared", encode_json(declaration.policy), "version", version, "declared_at", "now"]
        while True:
            [stored], _ = await self._load([(declaration.queue, declaration.line)])
            policy = effective_policy(declaration.policy, stored.override)
            known = (stored.version, stored.declared, stored.policy, stored.rule, stored.is_reordering)
            if stored.policy is not None and version < stored.version:
                return
            if known == (version, declaration.policy, policy, _format_rule(policy), False):
                return  # as each time that a program starts
            if await self._write(stored, policy, facts):
                return

    async def _write(self, stored: _StoredLine, policy: LinePolicy, facts: Sequence[Value]) -> bool:
        """False: somebody has written it since it was read."""
        before = LinePolicy() if stored.policy is None else stored.policy
        values: list[Value] = [stored.queue, stored.name, stored.revision, len(policy.weights)]
        for group, weight in policy.weights.items():
            values += (group, weight)
        values += ("policy", encode_json(policy), "rule", _format_rule(policy), *facts)
        # Also from "hold" to "skip": who was held is looked at again.
        reorders = before.order != policy.order or stored.is_reordering
        if reorders:
            values += ("reordering", 1)
        if not await self._pool.run("set_line", *values):
            return False
        if reorders:
            await self._reorder(stored.queue, stored.name)
        elif policy != stored.policy:
            await self._refresh(stored.queue, stored.name)
        return True

    async def _refresh(self, queue: str, line: str) -> None:
        """Bring all lanes under the limits of their line."""
        start: Value = _FIRST
        while True:
            size, last = await self._pool.run("refresh_lanes", queue, line, start, _LANES_PER_CALL)
            if size < _LANES_PER_CALL:
                return
            start = b"(" + last

    async def _reorder(self, queue: str, line: str) -> None:
        at: list[Value] = [_FIRST, 0, 0]
        is_done = 0
        while not is_done:
            is_done, *at = await self._pool.run("reorder_lanes", queue, line, *at, _LANES_PER_CALL)

    async def _load(self, lines: Iterable[tuple[str, str]]) -> tuple[list[_StoredLine], int]:
        """These lines, or all; and the time."""
        now, *found = await self._pool.run("get_lines", *(value for line in lines for value in line))
        return [_decode_line(*each) for each in found], now

    async def _to_groups(self, found: Sequence[Any], now: int) -> list[GroupInfo]:
        names = list(dict.fromkeys((queue.decode(), line.decode()) for queue, line, *_ in found))
        if not names:
            return []
        lines, _ = await self._load(names)
        policies = {(line.queue, line.name): line.policy or LinePolicy() for line in lines}
        return [_to_group(policies[each[0].decode(), each[1].decode()], now, *each) for each in found]


def _after(group: str | None) -> str:
    return _FIRST if group is None else f"({group}"


def _format_bounds(bounds: Bounds) -> str:
    return ",".join("" if each is None else str(each) for each in (bounds.concurrency, bounds.rate, bounds.per))


def _format_rule(policy: LinePolicy) -> str:
    """What claims need of a policy (lua/_lanes.lua)."""
    parts = (policy.order, "1" if policy.fair else "", "1" if policy.weights else "")
    return ",".join((_format_bounds(policy.whole), _format_bounds(policy.each), *parts))


def _parse_bounds(text: bytes) -> Bounds | None:
    return Bounds(*(int(each) if each else None for each in text.split(b","))) if text else None


def _parse_starts(text: bytes | None) -> list[tuple[int, int]]:
    pairs = (each.split(b":") for each in (text or b"").split(b",") if each.count(b":") == 1)
    return [(int_or_zero(moment), int_or_zero(number)) for moment, number in pairs]


def _decode_line(queue: bytes, name: bytes, values: Sequence[bytes | None]) -> _StoredLine:
    """One that cannot be read counts as one that was never declared: the next program that starts declares it anew."""
    row = {field: value for field, value in zip(_FIELDS, values, strict=False) if value}
    facts: dict[str, Any] = {
        "queue": queue.decode(),
        "name": name.decode(),
        "version": int_or_zero(row.get("version")),
        "running": int_or_zero(row.get("running")),
        "starts": _parse_starts(row.get("starts")),
        "revision": row.get("revision", b"").decode(),
        "is_reordering": row.get("reordering") == b"1",
        "rule": row.get("rule", b"").decode("utf-8", "replace"),
    }
    try:
        return _StoredLine(
            **facts,
            policy=_decode_policy(row["policy"]) if "policy" in row else None,
            declared=_decode_policy(row["declared"]) if "declared" in row else LinePolicy(),
            override=_decode_change(row["override"]) if "override" in row else None,
            changed_at=int_or_zero(row["changed_at"]) if "changed_at" in row else None,
            changed_by=row["changed_by"].decode() if "changed_by" in row else None,
            reason=row["reason"].decode() if "reason" in row else None,
        )
    except (ValueError, msgspec.DecodeError) as error:
        faults = [("policy", explain_fault("policy", row.get("policy", b""), error))]
        log_faults("line", f"{facts['queue']}:{facts['name']}", faults)
        return _StoredLine(**facts)


def _to_info(line: _StoredLine, now: int) -> LineInfo:
    policy = line.policy or LinePolicy()
    return LineInfo(
        queue=line.queue,
        line=line.name,
        policy=policy,
        declared=line.declared,
        change=line.override,
        changed_at=line.changed_at,
        changed_by=line.changed_by,
        reason=line.reason,
        running=line.running,
        starts_in_window=sum(count for _, count in drop_old_starts(policy.whole, line.starts, now)),
        open_at=find_opening(policy.whole, line.starts, now),
    )


def _to_group(
    policy: LinePolicy,
    now: int,
    queue: bytes,
    line: bytes,
    group: bytes,
    running: int,
    head_at: int | None,
    open_at: int,
    own_weight: int | None,
    starts: bytes,
    own_bounds: bytes,
    waiting: int,
) -> GroupInfo:
    lane = LaneState(
        lane_name(line.decode(), group.decode()), own_bounds=_parse_bounds(own_bounds), own_weight=own_weight
    )
    bounds = bounds_of(lane, policy)
    return GroupInfo(
        queue=queue.decode(),
        line=line.decode(),
        group=group.decode(),
        waiting=waiting,
        running=running,
        bounds=bounds,
        weight=weight_of(lane, policy),
        own_bounds=lane.own_bounds,
        own_weight=own_weight,
        starts_in_window=sum(count for _, count in drop_old_starts(bounds, _parse_starts(starts), now)),
        head_at=head_at,
        open_at=open_at,
    )
