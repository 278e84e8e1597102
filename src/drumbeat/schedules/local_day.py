"""A day of a time zone, cut into the pieces in which its clock runs evenly.

Local time is counted in seconds as if it were UTC (`local = utc + offset`), a day in days since 1970. On almost every day
there is one piece; on a day when the clocks change there are two or three. Nothing here knows of cron.

Two ways to read a day. By the wall: a time of day comes once; one that the clocks leap over is run when they have leapt, one
that they repeat is run the first time. Else: every moment at which the clock shows that time, none or two included.
"""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from functools import lru_cache
from typing import NamedTuple

DAY = 86_400
_SECOND = timedelta(seconds=1)
# A local day lies within these bounds of UTC, whatever the zone: offsets go from -12 to +14 hours.
_BEFORE, _AFTER = 15 * 3_600, 13 * 3_600


class DaySegment(NamedTuple):
    """Local times from `low` to before `high`, which are so many seconds ahead of UTC.

    `leap`: the clocks leap over these; whatever is meant for them is run at this second of UTC.
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
    """How many seconds local time is ahead of UTC."""
    offset = datetime.fromtimestamp(second, tz).utcoffset()
    assert offset is not None  # of every zone that rules.zone() gives
    return offset // _SECOND


@lru_cache(maxsize=16_384)
def day_segments(tz: tzinfo, day: int, by_wall: bool) -> tuple[DaySegment, ...]:
    """The pieces of a local day, in the order in which they come."""
    low, high = day * DAY, (day + 1) * DAY
    change = find_change_around(tz, day)
    if change is None:
        return (DaySegment(low, high, offset_at(low - _BEFORE, tz)),)
    # Local times at which the old clock ends, and at which the new one begins.
    ends, begins = change.at + change.before, change.at + change.after
    cut = [DaySegment(low, min(high, ends), change.before)]
    if not by_wall:
        cut.append(DaySegment(max(low, begins), high, change.after))
    elif begins > ends:
        # The end of the leap is among them: a time that is exactly there is not run twice.
        cut.append(DaySegment(max(low, ends), min(high, begins + 1), change.after, gap_end=change.at))
        cut.append(DaySegment(max(low, begins + 1), high, change.after))
    else:
        cut.append(DaySegment(max(low, ends), high, change.after))
    return tuple(piece for piece in cut if piece.low < piece.high)


@lru_cache(maxsize=16_384)
def find_change_around(tz: tzinfo, day: int) -> OffsetChange | None:
    """The change of the clocks on this local day or in the hours around it. None almost always: then days come one by one."""
    return find_change_between(day * DAY - _BEFORE, (day + 1) * DAY + _AFTER, tz)


def find_change_between(first: int, last: int, tz: tzinfo) -> OffsetChange | None:
    """The change of the clocks between these two seconds of UTC, if there is one. At most one is looked for."""
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
    """The local day in which this second of UTC lies."""
    return (second + offset_at(second, tz)) // DAY
