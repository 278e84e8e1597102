"""A window of time in the URL, to the second: `since` and `until` of the pages of jobs, tasks and the timeline.

What a window shows does not change with the time of the viewer, so its link can be shared. Pure.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

import msgspec

from drumbeat.core.stats import TEN_SECONDS_RETENTION_US
from drumbeat.durations import MICROSECOND, from_us, to_us
from drumbeat.errors import InvalidArguments

from .charts import SECOND, ChartRange
from .formatting import field_time
from .search_query import parse_time

DEFAULT_LENGTH_US = 3_600 * SECOND
MAX_LENGTH = timedelta(days=31)
MAX_SLOTS = 90
MAX_MINUTES = 1_900
"""Minutes that are read at most; longer windows are counted by the hour."""
_INTERVALS_S = (10, 30, 60, 120, 300, 600, 1_200, 3_600, 10_800, 21_600, 43_200)
_LENGTHS_S = {"10s": 10, "1m": 60, "1h": 3_600}
Counted = Literal["10s", "1m", "1h"]


class ChosenWindow(msgspec.Struct, frozen=True, kw_only=True):
    """From `since` to `until`, both in UTC."""

    since: datetime
    until: datetime

    @property
    def keep(self) -> dict[str, str | None]:
        """Its parameters in a link."""
        return {"since": field_time(self.since) + "Z", "until": field_time(self.until) + "Z"}

    @property
    def words(self) -> str:
        """2026-11-15 13:44:05 to 14:55:00 UTC."""
        day = "" if self.since.date() == self.until.date() else f"{self.until:%Y-%m-%d} "
        return f"{self.since:%Y-%m-%d %H:%M:%S} to {day}{self.until:%H:%M:%S} UTC"


def parse_window(since: str | None, until: str | None, now: datetime) -> ChosenWindow | None:
    """The window of these fields, absolute (UTC without an offset) or relative (2h); None: neither is given.

    Raises:
        InvalidArguments: one is no time, or they do not make a window.
    """
    if not since and not until:
        return None
    last_us = to_us(parse_time(until, now, "until") if until else now, name="until")
    first_us = to_us(parse_time(since, now, "since"), name="since") if since else last_us - DEFAULT_LENGTH_US
    first, last = (from_us(each).replace(microsecond=0) for each in (first_us, last_us))
    if first >= last:
        raise InvalidArguments("since must be before until", "since")
    if last - first > MAX_LENGTH:
        raise InvalidArguments(f"a window has at most {MAX_LENGTH.days} days", "since")
    return ChosenWindow(since=first, until=last)


def resolution_of(window: ChosenWindow, now: datetime, retention: float) -> Counted:
    """The finest counts that the store keeps for it. retention: of history, in seconds."""
    age, length = now - window.since, window.until - window.since
    if age <= TEN_SECONDS_RETENTION_US * MICROSECOND and length <= timedelta(minutes=30):
        return "10s"
    is_kept = age <= timedelta(seconds=min(retention, 1e9))
    return "1m" if is_kept and length <= timedelta(minutes=MAX_MINUTES) else "1h"


def chart_range_of(window: ChosenWindow, resolution: Counted) -> ChartRange:
    """Slots that cover the window."""
    seconds = (window.until - window.since).total_seconds()
    fitting = (each for each in _INTERVALS_S if each >= _LENGTHS_S[resolution] and seconds / each <= MAX_SLOTS)
    interval = next(fitting, _INTERVALS_S[-1])
    return ChartRange(resolution=resolution, interval_us=interval * SECOND, slots=int(seconds // interval) + 1)


def counted_since(window: ChosenWindow, resolution: Counted) -> datetime:
    """The beginning of the interval that `since` is in."""
    return window.since - timedelta(seconds=window.since.timestamp() % _LENGTHS_S[resolution])
