"""Fire times of a cron expression in a time zone: the next, the last and the count, without iterating over all of them.

In seconds of UTC. Within a day, hours x minutes x seconds are computed, so only days are iterated, at about a microsecond each:
a year of a rule that fires every second is counted as fast as that of a daily one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from datetime import date, tzinfo
from typing import TYPE_CHECKING

from .local_day import DAY, DaySegment, day_segments, find_change_around, local_day

if TYPE_CHECKING:
    from .cron import Cron

_EPOCH = date(1970, 1, 1).toordinal()
_MAX_DAYS_APART = 40 * 366
"""The maximum distance of two matching days of any expression that `cron.parse` accepts: 28 years, or 40 around 2100."""
_LAST_DAY = date(9_000, 1, 1).toordinal() - _EPOCH
_FIRST_DAY = date(1_000, 1, 1).toordinal() - _EPOCH


class Calendar:
    """A cron expression in a time zone."""

    def __init__(self, cron: Cron, tz: tzinfo) -> None:
        self.cron = cron
        self.tz = tz
        self._in_minute = len(cron.seconds)
        self._in_hour = len(cron.minutes) * self._in_minute
        self._in_day = len(cron.hours) * self._in_hour

    def next_from(self, second: int) -> int | None:
        """The first fire time at or after this second."""
        return self._find_nearest(second, 1)

    def last_until(self, second: int) -> int | None:
        """The last fire time at or before this second."""
        return self._find_nearest(second, -1)

    def _find_nearest(self, second: int, step: int) -> int | None:
        """Forwards with step 1, backwards with step -1."""
        today, found_on = _clamp_local_day(second, self.tz), 0
        best: int | None = None
        first, last = today - step * self._adjacent_days(today), today + step * _MAX_DAYS_APART
        for day in self._days(first, last, step):
            if best is not None and (day - found_on) * step > 1:
                break
            found = self._find_in(day, second, step)
            if found is not None and (best is None or found * step < best * step):
                best, found_on = found, day
            if best is not None and not self._adjacent_days(day):
                break
        return best

    def count(self, first: int, last: int) -> int:
        """The number of fire times from `first` to `last`, both included."""
        number, gap_fires = 0, set[int]()
        for day in self._days(_clamp_local_day(first, self.tz) - 1, _clamp_local_day(last, self.tz) + 1):
            for segment in self._segments(day):
                if segment.gap_end is None:
                    low, high = max(segment.low, first + segment.offset), min(segment.high, last + 1 + segment.offset)
                    number += self._between(low, high)
                elif first <= segment.gap_end <= last and self._between(segment.low, segment.high):
                    gap_fires.add(segment.gap_end)
        return number + len(gap_fires)

    def is_after_gap(self, second: int) -> bool:
        """Whether a time that the clocks skip fires at this second instead."""
        return any(
            segment.gap_end == second and self._between(segment.low, segment.high - 1) > 0
            for segment in self._segments(local_day(second, self.tz))
        )

    def _adjacent_days(self, day: int) -> int:
        """How many adjacent days may overlap this one: where clocks go back over midnight, yesterday follows today."""
        return 0 if find_change_around(self.tz, day) is None else 1

    def _segments(self, day: int) -> tuple[DaySegment, ...]:
        return day_segments(self.tz, day, self.cron.is_wall_clock)

    def _days(self, first: int, last: int, step: int = 1) -> Iterator[int]:
        """The matching days; skips whole months that do not match."""
        day, months = first, self.cron.months
        while (day - last) * step <= 0 and _FIRST_DAY < day < _LAST_DAY:
            found = date.fromordinal(day + _EPOCH)
            if found.month not in months:
                day += _days_to_next_month(found) if step > 0 else -found.day
                continue
            if self.cron.has_day(found):
                yield day
            day += step

    def _find_in(self, day: int, second: int, step: int) -> int | None:
        """The fire time of a day that is nearest to this second, in the direction of `step`."""
        for segment in self._segments(day)[::step]:
            if segment.gap_end is not None:
                if segment.gap_end * step >= second * step and self._between(segment.low, segment.high):
                    return segment.gap_end
                continue
            local = second + segment.offset
            found = (
                self._time_from(max(segment.low, local)) if step > 0 else self._time_until(min(segment.high - 1, local))
            )
            if found is not None and segment.low <= found < segment.high:
                return found - segment.offset
        return None

    def _time_from(self, local: int) -> int | None:
        """The first matching time of day at or after this, on the same day."""
        day, hour, minute, second = _split_local(local)
        cron = self.cron
        hours, minutes, seconds = cron.hours, cron.minutes, cron.seconds
        if hour in hours:
            if minute in minutes and (index := bisect_left(seconds, second)) < len(seconds):
                return _join_local(day, hour, minute, seconds[index])
            if (index := bisect_right(minutes, minute)) < len(minutes):
                return _join_local(day, hour, minutes[index], seconds[0])
        if (index := bisect_right(hours, hour)) < len(hours):
            return _join_local(day, hours[index], minutes[0], seconds[0])
        return None

    def _time_until(self, local: int) -> int | None:
        """The last matching time of day at or before this, on the same day."""
        day, hour, minute, second = _split_local(local)
        cron = self.cron
        hours, minutes, seconds = cron.hours, cron.minutes, cron.seconds
        if hour in hours:
            if minute in minutes and (index := bisect_right(seconds, second)):
                return _join_local(day, hour, minute, seconds[index - 1])
            if index := bisect_left(minutes, minute):
                return _join_local(day, hour, minutes[index - 1], seconds[-1])
        if index := bisect_left(hours, hour):
            return _join_local(day, hours[index - 1], minutes[-1], seconds[-1])
        return None

    def _between(self, low: int, high: int) -> int:
        """The number of matching times of day in [low, high), on one day or at the midnights around it."""
        return 0 if high <= low else self._before(high, low // DAY) - self._before(low, low // DAY)

    def _before(self, local: int, day: int) -> int:
        if local >= (day + 1) * DAY:
            return self._in_day
        _, hour, minute, second = _split_local(local)
        cron = self.cron
        number = bisect_left(cron.hours, hour) * self._in_hour
        if hour in cron.hours:
            number += bisect_left(cron.minutes, minute) * self._in_minute
            if minute in cron.minutes:
                number += bisect_left(cron.seconds, second)
        return number


def _clamp_local_day(second: int, tz: tzinfo) -> int:
    """The local day of a second, clamped to the supported years."""
    return local_day(max(_FIRST_DAY * DAY + 2 * DAY, min(second, _LAST_DAY * DAY - 2 * DAY)), tz)


def _days_to_next_month(day: date) -> int:
    following = date(day.year + day.month // 12, day.month % 12 + 1, 1)
    return following.toordinal() - day.toordinal()


def _split_local(local: int) -> tuple[int, int, int, int]:
    day, rest = divmod(local, DAY)
    hour, rest = divmod(rest, 3_600)
    minute, second = divmod(rest, 60)
    return day, hour, minute, second


def _join_local(day: int, hour: int, minute: int, second: int) -> int:
    return day * DAY + hour * 3_600 + minute * 60 + second
