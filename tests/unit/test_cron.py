"""Cron: expressions, and their moments in every time zone, against a scanner that looks at every minute.

The scanner knows nothing of fields or sets: it asks the clock of the zone minute by minute, and a hand-written condition. All
zones with the same change of clocks at the same moment are one case. Each case is met by a third of the expressions in turn;
with DRUMBEAT_FULL=1 by all of them, and further around the change.
"""

import os
import sys
import zoneinfo
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

import pytest
from cronsim import CronSim
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from drumbeat.errors import ConfigError
from drumbeat.schedules.calendar import Calendar
from drumbeat.schedules.cron import parse
from drumbeat.schedules.rules import get_zone, rule_of
from tests.unit.schedule_factories import SECOND, cron, parse_us

FULL = bool(os.environ.get("DRUMBEAT_FULL"))
AROUND_MINUTES = 30 * 60 if FULL else 2 * 60
FIRST, LAST = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp()), int(datetime(2031, 1, 1, tzinfo=UTC).timestamp())


class Told(NamedTuple):
    """An expression, and what it says in words of Python. `by_wall`: a time of day, run once on every day that it fits."""

    expression: str
    by_wall: bool
    fits: Callable[[datetime], bool]


def is_last_of_month(t: datetime) -> bool:
    return (t + timedelta(days=1)).day == 1


TOLD = [
    Told("* * * * *", False, lambda t: True),
    Told("*/5 * * * *", False, lambda t: t.minute % 5 == 0),
    Told("0 * * * *", False, lambda t: t.minute == 0),
    Told("59 * * * *", False, lambda t: t.minute == 59),
    Told("*/30 2 * * *", False, lambda t: t.hour == 2 and t.minute in (0, 30)),
    Told("* 0 * * *", False, lambda t: t.hour == 0),
    Told("*/7 */2 * * *", False, lambda t: t.minute % 7 == 0 and t.hour % 2 == 0),
    Told("0 0 * * *", True, lambda t: (t.hour, t.minute) == (0, 0)),
    Told("30 0 * * *", True, lambda t: (t.hour, t.minute) == (0, 30)),
    Told("30 1 * * *", True, lambda t: (t.hour, t.minute) == (1, 30)),
    Told("0 2 * * *", True, lambda t: (t.hour, t.minute) == (2, 0)),
    Told("30 2 * * *", True, lambda t: (t.hour, t.minute) == (2, 30)),
    Told("15,45 1-3 * * *", True, lambda t: t.hour in (1, 2, 3) and t.minute in (15, 45)),
    Told("0 3 * * *", True, lambda t: (t.hour, t.minute) == (3, 0)),
    Told("30 23 * * *", True, lambda t: (t.hour, t.minute) == (23, 30)),
    Told("0-59 0-23 * * *", True, lambda t: True),
    Told("30 2 * * SUN", True, lambda t: (t.hour, t.minute, t.weekday()) == (2, 30, 6)),
    Told("30 2 * 3 0L", True, lambda t: (t.hour, t.minute, t.weekday(), t.month) == (2, 30, 6, 3) and t.day > 24),
    Told("30 1 L 3,10 *", True, lambda t: (t.hour, t.minute) == (1, 30) and is_last_of_month(t) and t.month in (3, 10)),
    Told("10 2 1-7 4,11 *", True, lambda t: (t.hour, t.minute) == (2, 10) and t.day <= 7 and t.month in (4, 11)),
]


class Change(NamedTuple):
    at: int
    before: int
    after: int


@cache
def changes() -> dict[Change, str]:
    """Every change of clocks in 2024-2030 on Earth, with one zone that has it."""
    found: dict[Change, str] = {}
    for name in sorted(available_timezones() - {"localtime", "Factory"}):
        for change in changes_of(name):
            found.setdefault(change, name)
    return found


def changes_of(name: str) -> Iterator[Change]:
    tz, week = ZoneInfo(name), 7 * 86_400
    for start in range(FIRST, LAST, week):
        low, high = start, start + week
        if offset(low, tz) != offset(high, tz):
            before = offset(low, tz)
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if offset(middle, tz) == before else (low, middle)
            yield Change(high, before, offset(high, tz))


def year_of(second: int) -> int:
    return datetime.fromtimestamp(second, UTC).year


def offset(second: int, tz: ZoneInfo) -> int:
    shift = datetime.fromtimestamp(second, tz).utcoffset()
    assert shift is not None
    return int(shift.total_seconds())


def scanned(expressions: list[Told], first: int, minutes: int, tz: ZoneInfo) -> dict[Told, list[int]]:
    """What fires in these minutes, by looking at each of them."""
    found: dict[Told, list[int]] = {told: [] for told in expressions}
    seen = datetime.fromtimestamp(first - 60, tz).replace(tzinfo=None)
    for second in range(first, first + minutes * 60, 60):
        local = datetime.fromtimestamp(second, tz).replace(tzinfo=None)
        # By the wall: every minute of the day that has come up since the last look, each once.
        come = [seen + timedelta(minutes=n) for n in range(1, (local - seen) // timedelta(minutes=1) + 1)]
        for told, moments in found.items():
            if any(told.fits(each) for each in come) if told.by_wall else told.fits(local):
                moments.append(second)
        seen = max(seen, local)
    return found


def walked(calendar: Calendar, first: int, last: int) -> list[int]:
    found: list[int] = []
    at = calendar.next_from(first)
    while at is not None and at <= last:
        found.append(at)
        at = calendar.next_from(at + 1)
    return found


def walked_back(calendar: Calendar, first: int, last: int) -> list[int]:
    found: list[int] = []
    at = calendar.last_until(last)
    while at is not None and at >= first:
        found.append(at)
        at = calendar.last_until(at - 1)
    return found[::-1]


@pytest.mark.parametrize("year", range(2024, 2031))
def test_every_change_of_clocks_on_earth_is_met_as_by_looking_at_each_minute(year: int) -> None:
    known = [(change, name) for change, name in changes().items() if year_of(change.at) == year]
    assert len(known) > 30
    for turn, (change, name) in enumerate(known):
        tz = ZoneInfo(name)
        met = TOLD if FULL else TOLD[turn % 3 :: 3]
        start = change.at - change.at % 60 - AROUND_MINUTES * 60
        end = start + 2 * AROUND_MINUTES * 60 - 1
        for told, moments in scanned(met, start, 2 * AROUND_MINUTES, tz).items():
            calendar = Calendar(parse(told.expression, "x"), tz)
            case = f"{told.expression} in {name} around {datetime.fromtimestamp(change.at, tz)}"
            assert calendar.cron.is_wall_clock == told.by_wall
            assert walked(calendar, start, end) == moments, case
            assert walked_back(calendar, start, end) == moments, case
            assert calendar.count(start, end) == len(moments), case


DAYS = {
    "0 12 * * *": lambda d: True,
    "0 12 L * *": lambda d: (d + timedelta(days=1)).day == 1,
    "0 12 LW * *": lambda d: d == last_weekday(d),
    "0 12 * * FRI#2": lambda d: d.weekday() == 4 and 8 <= d.day <= 14,
    "0 12 * * FRIL": lambda d: d.weekday() == 4 and (d + timedelta(days=7)).month != d.month,
    "0 12 * * 5L": lambda d: d.weekday() == 4 and (d + timedelta(days=7)).month != d.month,
    "0 12 29 2 *": lambda d: (d.month, d.day) == (2, 29),
    "0 12 31 * *": lambda d: d.day == 31,
    "0 12 13 * FRI": lambda d: d.day == 13 or d.weekday() == 4,
    "0 12 */10 * MON": lambda d: d.day in (1, 11, 21, 31) and d.weekday() == 0,
    "0 12 * * 0": lambda d: d.weekday() == 6,
    "0 12 * * 7": lambda d: d.weekday() == 6,
    "0 12 * * FRI-SUN": lambda d: d.weekday() >= 4,
    "0 12 * jan,MAR-apr *": lambda d: d.month in (1, 3, 4),
    "0 12 1-7,15 */3 *": lambda d: (d.day <= 7 or d.day == 15) and d.month in (1, 4, 7, 10),
}


def last_weekday(day: date) -> date:
    last = day.replace(day=28)
    while (last + timedelta(days=1)).month == day.month:
        last += timedelta(days=1)
    while last.weekday() > 4:
        last -= timedelta(days=1)
    return last


@pytest.mark.parametrize("expression", DAYS)
def test_days_are_chosen_as_by_looking_at_each_day_of_seven_years(expression: str) -> None:
    fits = DAYS[expression]
    noons = range(FIRST + 12 * 3_600, LAST, 86_400)
    wanted = [noon for noon in noons if fits(datetime.fromtimestamp(noon, UTC).date())]  # type: ignore[no-untyped-call]
    calendar = Calendar(parse(expression, "x"), UTC)
    assert walked(calendar, FIRST, LAST) == wanted
    assert walked_back(calendar, FIRST, LAST) == wanted
    assert calendar.count(FIRST, LAST) == len(wanted)


def test_seconds_are_met_as_by_looking_at_each_second() -> None:
    tz = ZoneInfo("Europe/Berlin")
    for change in ("2026-03-29T01:00:00+00:00", "2026-10-25T01:00:00+00:00"):
        middle = parse_us(change) // SECOND
        first, last = middle - 5_400, middle + 5_400
        each = [datetime.fromtimestamp(second, tz) for second in range(first, last + 1)]
        calendar = Calendar(parse("*/7 */2 * * * *", "x"), tz)
        wanted = [int(t.timestamp()) for t in each if t.second % 7 == 0 and t.minute % 2 == 0]
        assert walked(calendar, first, last) == wanted
        assert walked_back(calendar, first, last) == wanted
        assert calendar.count(first, last) == len(wanted)


def test_a_nightly_time_with_seconds_is_not_lost_in_the_leap_either() -> None:
    rule = rule_of(cron("15 30 2 * * *", tz="Europe/Berlin"))
    assert rule.next_after(parse_us("2026-03-28T12:00:00+01:00")) == parse_us("2026-03-29T03:00:00+02:00")
    assert rule.next_after(parse_us("2026-03-29T03:00:00+02:00")) == parse_us("2026-03-30T02:30:15+02:00")


lists = st.lists(st.integers(0, 59), min_size=1, max_size=4).map(lambda found: ",".join(map(str, found)))
minutes = st.sampled_from(["*", "*/5", "*/17", "0", "10-20/3"]) | lists
hours = st.sampled_from(["*", "*/3", "0", "2", "1-3", "23", "0,12"])
days = st.sampled_from(["*", "*/9", "1", "31", "L", "LW", "10-15", "29"])
months = st.sampled_from(["*", "*/5", "2,3", "OCT", "11"])
weekdays = st.sampled_from(["*", "*/2", "MON", "1-5", "0#2", "5L", "7"])
expressions = st.tuples(minutes, hours, days, months, weekdays).map(" ".join)
zones = st.sampled_from(
    ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Beirut", "Asia/Kolkata"]
)
# At noon of a day no clock changes, so that both begin alike.
noons = st.integers(0, 2_500).map(lambda day: FIRST + day * 86_400 + 43_200)


def accepted(expression: str) -> bool:
    try:
        parse(expression, "x")
    except ConfigError:
        return False
    return True


@settings(max_examples=400 if FULL else 100, deadline=None)
@given(expressions.filter(accepted), zones, noons)
def test_moments_are_those_of_cronsim(expression: str, name: str, noon: int) -> None:
    theirs = CronSim(expression, datetime.fromtimestamp(noon, UTC if name == "UTC" else ZoneInfo(name)))
    calendar = Calendar(parse(expression, "x"), get_zone(name))
    at = noon
    for _, wanted in zip(range(30), theirs, strict=False):
        # Where clocks go forward at midnight, CronSim gives times of wildcard rules that there are not on that day's clock.
        assume(wanted.astimezone(UTC).astimezone(wanted.tzinfo).time() == wanted.time())
        # Where they go back by half an hour, it leaves out the first half of an hour of that day.
        assume((offset_at(wanted.timestamp(), name) - offset_at(at, name)) % 3_600 == 0)
        found = calendar.next_from(at + 1)
        assert found == int(wanted.timestamp())
        at = found


def offset_at(timestamp: float, name: str) -> float:
    offset = datetime.fromtimestamp(timestamp, UTC if name == "UTC" else ZoneInfo(name)).utcoffset()
    assert offset is not None
    return offset.total_seconds()


def test_an_hour_after_the_clocks_went_back_by_half_an_hour_begins_with_its_first_minute() -> None:
    """On Lord Howe Island the clocks went from 02:00 to 01:30."""
    calendar = Calendar(parse("*/5 */3 * * *", "x"), get_zone("Australia/Lord_Howe"))
    before = datetime(2029, 4, 1, 0, 55, tzinfo=ZoneInfo("Australia/Lord_Howe"))
    wanted = datetime(2029, 4, 1, 3, tzinfo=ZoneInfo("Australia/Lord_Howe"))
    assert calendar.next_from(int(before.timestamp()) + 1) == int(wanted.timestamp())


def test_a_wildcard_minute_does_not_fire_for_an_hour_that_is_skipped() -> None:
    """In Beirut the clocks went from 00:00 to 01:00: no hour 0 on that day, so the first of */3 is 03:00."""
    calendar = Calendar(parse("* */3 31 * *", "x"), get_zone("Asia/Beirut"))
    before = datetime(2024, 3, 30, 21, tzinfo=ZoneInfo("Asia/Beirut"))
    wanted = datetime(2024, 3, 31, 3, tzinfo=ZoneInfo("Asia/Beirut"))
    assert calendar.next_from(int(before.timestamp())) == int(wanted.timestamp())


moments = st.integers(parse_us("2024-01-01T00:00:00+00:00"), parse_us("2030-12-31T00:00:00+00:00"))


@settings(deadline=None)
@given(expressions.filter(accepted), zones, st.tuples(moments, moments, moments))
def test_next_last_and_count_agree(expression: str, name: str, three: tuple[int, int, int]) -> None:
    rule = rule_of(cron(expression, tz=name))
    a, b, c = sorted(three)
    assert rule.count(a, c) == rule.count(a, b) + rule.count(b, c)
    following = rule.next_after(b)
    assert following is not None and following > b
    assert rule.last_until(following) == following
    assert rule.count(b, following) == 1
    before = rule.last_until(b)
    assert before is not None and before <= b
    assert rule.count(before, b) == 0


def test_a_moment_between_two_seconds_is_rounded_the_right_way() -> None:
    rule = rule_of(cron("* * * * * *"))
    second = parse_us("2026-05-05T05:05:05+00:00")
    assert rule.next_after(second - 1) == second
    assert rule.next_after(second) == second + SECOND
    assert rule.last_until(second) == second
    assert rule.last_until(second - 1) == second - SECOND
    assert rule.last_until(second + SECOND - 1) == second


def test_start_and_end_are_kept() -> None:
    start, end = parse_us("2026-05-05T00:00:00+00:00"), parse_us("2026-05-08T00:00:00+00:00")
    rule = rule_of(cron("0 0 * * *", start=start, end=end))
    assert rule.next_after(0) == start
    assert rule.last_until(start - 1) is None
    assert rule.last_until(end + SECOND) == parse_us("2026-05-07T00:00:00+00:00")
    assert rule.next_after(parse_us("2026-05-07T00:00:00+00:00")) is None
    assert rule.count(0, end * 2) == 3


@pytest.mark.parametrize("macro", ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"])
def test_macros_are_known(macro: str) -> None:
    moment = rule_of(cron(macro, tz="Europe/Berlin")).next_after(parse_us("2026-05-05T05:05:05+02:00"))
    assert moment is not None and moment % (3_600 * SECOND) == 0


def test_hashed_fields_are_the_same_in_every_process_and_differ_between_names() -> None:
    # Fixed for ever: a changed hash would move every schedule of every user.
    assert (parse("H H H * *", "nightly").minutes, parse("H H H * *", "nightly").hours) == HASHED
    assert len({parse("H H * * *", f"name {n}").minutes for n in range(200)}) > 50


HASHED = ((38,), (22,))


@pytest.mark.parametrize(
    ("field", "allowed", "number"),
    [("H", range(60), 1), ("H(10-19)", range(10, 20), 1), ("H/15", range(60), 4), ("H(0-29)/10", range(30), 3)],
)
def test_hashed_fields_stay_within_their_bounds(field: str, allowed: range, number: int) -> None:
    for n in range(100):
        chosen = parse(f"{field} * * * *", f"name {n}").minutes
        assert len(chosen) == number
        assert set(chosen) <= set(allowed)
        assert len({b - a for a, b in pairwise(chosen)}) <= 1


BAD = {
    "0 0 30 2 *": "never fires",
    "0 0 31 4,6,9,11 *": "never fires",
    "0 0 */30 * MON#2": "never fires",
    "1--100000000 * * * *": "minute",
    "1--100000000": "5 fields",
    "0-100000000 * * * *": "minute",
    "*/0 * * * *": "minute",
    "*/90 * * * *": "minute",
    "60 * * * *": "minute",
    "61 * * * * *": "second",
    "0 24 * * *": "hour",
    "0 H(5-40) * * *": "hour",
    "0 0 0 * *": "day of month",
    "0 0 L-3 * *": "day of month",
    "0 0 * 13 *": "month",
    "0 0 * MAI *": "month",
    "0 0 * * 8": "day of week",
    "0 0 * * MONDAY": "day of week",
    "0 0 * * 1#6": "day of week",
    "0 0 ? * *": "day of month",
    "* * * *": "5 fields",
    "* * * * * * *": "5 fields",
    "": "5 fields",
    "@never": "@daily",
    "@reboot": "on_start",
    "9" * 190 + " * * * *": "minute",
    "1," * 90 + "x * * * *": "minute",
    "*" * 10_000: "200 characters",
    "٣ * * * *": "such as",
}


@pytest.mark.parametrize("expression", BAD, ids=lambda text: text[:30] or "empty")
def test_bad_expressions_are_refused_in_few_steps_naming_the_field(expression: str) -> None:
    steps = 0

    def count(*_: object) -> None:
        nonlocal steps
        steps += 1

    parse.cache_clear()
    sys.setprofile(count)
    try:
        with pytest.raises(ConfigError) as caught:
            parse(expression, "x")
    finally:
        sys.setprofile(None)
    assert BAD[expression] in str(caught.value)
    assert caught.value.setting == "cron"
    assert len(str(caught.value)) < 300
    # About a tenth of a microsecond each: 50 ms would be hundreds of thousands.
    assert steps < 150_000


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "Europe", "", "x" * 10_000, "Mars/Base", "a\0b", "localtime"]
)
def test_unknown_zones_are_refused_naming_the_field(name: str) -> None:
    with pytest.raises(ConfigError, match="not a time zone") as caught:
        get_zone(name)
    assert caught.value.setting == "tz"
    assert len(str(caught.value)) < 200


def test_a_machine_without_zones_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoneinfo, "available_timezones", set)
    assert get_zone("UTC") is UTC
    with pytest.raises(ConfigError, match=r"no time zones but UTC: run `pip install drumbeat\[tz\]`"):
        get_zone("Europe/Nowhere")
