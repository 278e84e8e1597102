"""`app.stats`: what workers counted, by intervals of 10 s or a minute, and in total."""

from __future__ import annotations

import builtins
from datetime import datetime
from typing import Literal

from drumbeat.core.stats import OVERALL, Resolution, Rollup
from drumbeat.core.weeks import TaskWeeks, compare_weeks, weeks_begin
from drumbeat.durations import to_us
from drumbeat.errors import InvalidArguments
from drumbeat.names import check_name, short_repr
from drumbeat.store.protocol import Store

from .part import AdminPart

RESOLUTIONS = {"10s": Resolution.TEN_SECONDS, "1m": Resolution.MINUTE, "1h": Resolution.HOUR}
_DEFAULT_SPAN_US = {
    Resolution.TEN_SECONDS: 3_600_000_000,
    Resolution.MINUTE: 86_400_000_000,
    Resolution.HOUR: 7 * 86_400_000_000,
}
"""Default range: an hour, a day, a week."""


class Stats(AdminPart):
    """Counts and latencies. Workers write them every 10 s, so newer runs are missing."""

    async def read(
        self,
        *,
        resolution: Literal["10s", "1m", "1h"] = "10s",
        since: datetime | None = None,
        until: datetime | None = None,
        queue: str | None = None,
        task: str | None = None,
    ) -> builtins.list[Rollup]:
        """The counts of each interval, queue and task, in this order. Intervals without a run are left out.

        resolution: intervals of "10s", kept for 2 hours, of "1m", kept as long as history (`retention`), or of "1h", kept
            for 15 days.
        since, until: intervals that begin in this range. Default: the last hour, with "1m" the last day, with "1h" the week.
        """
        store, length, begin, end = await self._read_span(resolution, since, until)
        return await store.stats.read(
            length,
            begin,
            end,
            queue=None if queue is None else check_name("queue", queue),
            task=None if task is None else check_name("task", task),
        )

    async def overall(
        self,
        *,
        resolution: Literal["10s", "1m", "1h"] = "10s",
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> builtins.list[Rollup]:
        """The same for all queues and tasks together: one for each interval, with empty `queue` and `task`. Its cost does not
        depend on the number of tasks."""
        store, length, begin, end = await self._read_span(resolution, since, until)
        return await store.stats.read(length, begin, end, queue=OVERALL, task=OVERALL)

    async def weeks(self, *, task: str | None = None) -> builtins.list[TaskWeeks]:
        """Each task in the last 7 days beside the 7 days before: run time, wait, failure rate. By name; tasks without a run
        in both are left out."""
        store = await self._client.store()
        now = await store.inspect.now()
        name = None if task is None else check_name("task", task)
        hours = await store.stats.read(Resolution.HOUR, weeks_begin(now), now + Resolution.HOUR, task=name)
        return compare_weeks(now, hours)

    async def totals(self) -> builtins.list[Rollup]:
        """All counts ever, for each queue and task, including those of instances that are gone. They only grow."""
        store = await self._client.store()
        return await store.stats.read(Resolution.TOTAL, 0, 1)

    async def _read_span(
        self, resolution: str, since: datetime | None, until: datetime | None
    ) -> tuple[Store, Resolution, int, int]:
        if resolution not in RESOLUTIONS:
            raise InvalidArguments(
                f"resolution must be one of {', '.join(RESOLUTIONS)}, not {short_repr(resolution)}", "resolution"
            )
        length = RESOLUTIONS[resolution]
        store = await self._client.store()
        end = await store.inspect.now() + 1 if until is None else to_us(until, name="until")
        begin = end - _DEFAULT_SPAN_US[length] if since is None else to_us(since, name="since")
        return store, length, begin, end
