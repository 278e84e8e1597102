"""`/api/v1/stats`: what was counted, stretch by stretch, for charts."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from drumbeat.durations import from_us, to_us
from drumbeat.errors import InvalidArguments
from drumbeat.model.stats import BOUNDS_US, Grain, Rollup
from drumbeat.names import check_name
from drumbeat.web.call import Call

STRETCHES, MOST_STRETCHES = 60, 2_000
GRAINS = {"10s": Grain.TEN_SECONDS, "1m": Grain.MINUTE}


class StatsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which stretches."""

    grain: Literal["10s", "1m"] = "1m"
    """10s: kept for 2 hours; 1m: kept as long as history."""
    since: datetime | None = None
    """With its offset; if it is left out, 60 stretches before `until`. At most 2,000 stretches are given."""
    until: datetime | None = None
    """If it is left out, now by the store's clock."""
    queue: str | None = None
    """Only of this queue."""
    task: str | None = None
    """Only of this task."""


class StatsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What was counted in each stretch, for each queue and task. Stretches in which nothing happened are left out."""

    grain: str
    since: datetime
    until: datetime
    bounds_us: tuple[int, ...]
    """Upper bounds of the buckets of `wait` and `run`, in microseconds; the last bucket has none."""
    items: list[Rollup]
    """By time, queue and task; `at` is the beginning of the stretch in microseconds since 1970 UTC."""


async def read(call: Call) -> StatsRecord:
    query: StatsQuery = call.query
    grain = GRAINS[query.grain]
    store = await call.host.store()
    until = await store.inspect.now() if query.until is None else to_us(query.until, name="until")
    since = until - STRETCHES * grain if query.since is None else to_us(query.since, name="since")
    if since > until:
        raise InvalidArguments("since must not be after until", "since")
    since = max(0, since, until - MOST_STRETCHES * grain)
    queue = None if query.queue is None else check_name("queue", query.queue)
    task = None if query.task is None else check_name("task", query.task)
    items = await store.stats.read(grain, since, max(since, until), queue=queue, task=task)
    return StatsRecord(
        grain=query.grain, since=from_us(since), until=from_us(max(since, until)), bounds_us=BOUNDS_US, items=items
    )
