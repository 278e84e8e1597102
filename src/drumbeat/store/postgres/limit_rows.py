"""Lines and groups for people, from rows of PostgreSQL."""

from collections.abc import Mapping
from typing import Any

import msgspec

from drumbeat.core.lanes import LaneState, bounds_of, split_lane, weight_of
from drumbeat.core.limits import (
    Bounds,
    GroupInfo,
    LineChange,
    LineInfo,
    LinePolicy,
    Starts,
    drop_old_starts,
    find_opening,
)

decode_policy = msgspec.json.Decoder(LinePolicy).decode
decode_bounds = msgspec.json.Decoder(Bounds).decode
decode_starts = msgspec.json.Decoder(list[tuple[int, int]]).decode
decode_change = msgspec.json.Decoder(LineChange).decode


def _count_starts(bounds: Bounds, starts: Starts, now: int) -> int:
    return sum(count for _, count in drop_old_starts(bounds, starts, now))


def line_info(row: Mapping[str, Any]) -> LineInfo:
    policy = decode_policy(row["policy"])
    return LineInfo(
        queue=row["queue"],
        line=row["name"],
        policy=policy,
        declared=decode_policy(row["declared"]),
        change=None if row["override"] is None else decode_change(row["override"]),
        changed_at=row["changed_at"],
        changed_by=row["changed_by"],
        reason=row["reason"],
        running=row["running"],
        starts_in_window=_count_starts(policy.whole, decode_starts(row["starts"]), row["now"]),
        open_at=find_opening(policy.whole, decode_starts(row["starts"]), row["now"]),
    )


def group_info(row: Mapping[str, Any]) -> GroupInfo:
    policy = LinePolicy() if row["policy"] is None else decode_policy(row["policy"])
    own = None if row["own_bounds"] is None else decode_bounds(row["own_bounds"])
    lane = LaneState(row["name"], own_bounds=own, own_weight=row["own_weight"])
    line, group = split_lane(lane.name)
    bounds = bounds_of(lane, policy)
    return GroupInfo(
        queue=row["queue"],
        line=line,
        group=group,
        waiting=row["waiting"],
        running=row["running"],
        bounds=bounds,
        weight=weight_of(lane, policy),
        own_bounds=own,
        own_weight=row["own_weight"],
        starts_in_window=_count_starts(bounds, decode_starts(row["starts"]), row["now"]),
        head_at=row["head_at"],
        open_at=row["open_at"],
    )
