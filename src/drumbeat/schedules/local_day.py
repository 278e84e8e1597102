"""A day of a time zone, divided into segments with a constant UTC offset.

Local time is counted in seconds as if it were UTC (`local = utc + offset`), a day in days since 1970. Almost every day has one
segment; a day when the clocks change has two or three.

There are two modes. By wall clock: each time of day occurs once; one that the clocks skip fires right after the gap, one that
they repeat fires the first time. Otherwise: every second at which the clock shows that time, which may be none or two.
"""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from functools import lru_cache
from typing import NamedTuple

DAY = 86_400
_SECOND = timedelta(seconds=1)
# A local day lies within these bounds of the UTC day in every zone: offsets range from -12 to +14 hours.
_BEFORE, _AFTER = 15 * 3_600, 13 * 3_600


class DaySegment(NamedTuple):
    """Local times in [low, high), which are `offset` seconds ahead of UTC.

    `gap_end`: the clocks skip these times; their fires happen at this second of UTC.
    """

    low: int
    high: int
    offset: int
    gap_end: int | None = None


class OffsetChange(NamedTuple):
    """The clocks change: from `at` (UTC seconds) on, they are `after` seconds ahead instead of `before`."""

    at: int
    before: int
    after: int


def offset_at(second: int, tz: tzinfo) -> int:
    """The number of seconds that local time is ahead of UTC."""
    offset = datetime.fromtimestamp(second, tz).utcoffset()
    assert offset is not None  # true for every zone of rules.get_zone()
    return offset // _SECOND


@lru_cache(maxsize=16_384)
def day_segments(tz: tzinfo, day: int, by_wall_clock: bool) -> tuple[DaySegment, ...]:
    """The segments of a local day, in order."""
    low, high = day * DAY, (day + 1) * DAY
    change = find_change_around(tz, day)
    if change is None:
        return (DaySegment(low, high, offset_at(low - _BEFORE, tz)),)
    # Local times at which the old clock ends, and at which the new one begins.
    ends, begins = change.at + change.before, change.at + change.after
    segments = [DaySegment(low, min(high, ends), change.before)]
    if not by_wall_clock:
        segments.append(DaySegment(max(low, begins), high, change.after))
    elif begins > ends:
        # The end of the gap belongs to it: a time that is exactly there does not fire twice.
        segments.append(DaySegment(max(low, ends), min(high, begins + 1), change.after, gap_end=change.at))
        segments.append(DaySegment(max(low, begins + 1), high, change.after))
    else:
        segments.append(DaySegment(max(low, ends), high, change.after))
    return tuple(segment for segment in segments if segment.low < segment.high)


@lru_cache(maxsize=16_384)
def find_change_around(tz: tzinfo, day: int) -> OffsetChange | None:
    """The change of the clocks on this local day or in the hours around it; None almost always."""
    return find_change_between(day * DAY - _BEFORE, (day + 1) * DAY + _AFTER, tz)


def find_change_between(first: int, last: int, tz: tzinfo) -> OffsetChange | None:
    """The change of the clocks between these two seconds of UTC, if there is one. Finds at most one."""
    before, after = offset_at(first, tz), offset_at(last, tz)
    if before == after:
        return None
    while last - first > 1:
        middle = (first + last) // 2
        if offset_at(middle, tz) == before:
            first = middle
        else:
            last = middle
    return OffsetChange(last, before, after)


def local_day(second: int, tz: tzinfo) -> int:
    """The local day of this second of UTC."""
    return (second + offset_at(second, tz)) // DAY
