"""Lengths of time and moments at the public border."""

import math
from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumbeat.durations import (
    MAX_DURATION_US,
    format_ago,
    format_length,
    format_utc,
    from_us,
    microseconds,
    seconds,
    to_iso,
    to_us,
)
from drumbeat.errors import ConfigError, InvalidArguments


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, 5_000_000),
        (0, 0),
        (2.5, 2_500_000),
        (0.1, 100_000),
        (timedelta(minutes=5, microseconds=1), 300_000_001),
        ("250ms", 250_000),
        ("10us", 10),
        ("5s", 5_000_000),
        ("5m", 300_000_000),
        ("2h", 7_200_000_000),
        ("1d", 86_400_000_000),
        ("1h30m", 5_400_000_000),
        ("1h 30m", 5_400_000_000),
        (" 1.5h ", 5_400_000_000),
        ("1s500ms", 1_500_000),
        ("7", 7_000_000),
        ("0.25", 250_000),
        (36_525 * 86_400, MAX_DURATION_US),
    ],
)
def test_a_length_is_read_as_people_write_it(value: timedelta | float | str, expected: int) -> None:
    assert microseconds(value, name="poll") == expected
    assert seconds(value, name="poll") == expected / 1_000_000


@pytest.mark.parametrize(
    "value",
    [
        -1,
        -0.001,
        timedelta(microseconds=-1),
        "-5s",
        math.nan,
        math.inf,
        True,
        None,
        "",
        " ",
        "m",
        "5x",
        "5m1h",
        "5s5s",
        "1e5",
        "٣s",
        "1" * 100,
        "1.s",
        [5],
        36_525 * 86_400 + 1,
        "36526d",
        10**400,
        1e300,
    ],
)
def test_a_bad_length_is_refused_naming_the_setting(value: object) -> None:
    with pytest.raises(ConfigError, match=r"^poll must ") as caught:
        microseconds(value, name="poll")  # type: ignore[arg-type]
    assert caught.value.setting == "poll"
    assert len(str(caught.value)) < 250


def test_a_bad_length_at_enqueue_is_an_invalid_argument() -> None:
    with pytest.raises(InvalidArguments, match="delay must not be negative") as caught:
        microseconds(-1, name="delay", error=InvalidArguments)
    assert caught.value.argument == "delay"


@pytest.mark.parametrize(
    ("us", "expected"),
    [
        (0, "0s"),
        (12, "12us"),
        (1_500, "1.5ms"),
        (250_000, "250ms"),
        (999_999, "999ms"),
        (2_500_000, "2.5s"),
        (59_999_999, "59.99s"),
        (60_000_000, "1m"),
        (5_400_000_000, "1h 30m"),
        (5_401_000_000, "1h 30m"),
        (86_400_000_000 * 3 + 60_000_000, "3d"),
        (-5_000_000, "-5s"),
    ],
)
def test_a_length_is_told_in_its_two_largest_units(us: int, expected: str) -> None:
    assert format_length(us) == expected


@given(st.integers(0, MAX_DURATION_US))
def test_what_is_told_can_be_read_and_is_never_more(us: int) -> None:
    read = microseconds(format_length(us), name="it")
    assert us * 0.95 <= read <= us


@pytest.mark.parametrize(
    ("age_s", "expected"),
    [(0, "now"), (0.9, "now"), (-0.9, "now"), (1.9, "1s ago"), (-7_200.5, "in 2h"), (200, "3m 20s ago")],
)
def test_a_timestamp_is_shown_as_its_distance_from_now(age_s: float, expected: str) -> None:
    now = datetime(2026, 11, 15, 14, 3, tzinfo=UTC)
    at = (now - timedelta(seconds=age_s)).astimezone(ZoneInfo("Asia/Tokyo"))
    assert format_ago(at, now) == expected
    assert format_ago(to_us(at), to_us(now)) == expected


def test_a_timestamp_is_shown_in_utc_whatever_its_zone() -> None:
    at = datetime(2026, 11, 15, 15, 3, 7, 123_456, tzinfo=ZoneInfo("Europe/Berlin"))
    for each in (at, to_us(at)):
        assert format_utc(each) == "2026-11-15 14:03:07 UTC"
        assert format_utc(each, milliseconds=True) == "2026-11-15 14:03:07.123 UTC"
        assert to_iso(each) == "2026-11-15T14:03:07.123456Z"
        assert to_iso(each, milliseconds=True) == "2026-11-15T14:03:07.123Z"


@given(st.datetimes(timezones=st.timezones()))
def test_a_moment_survives_the_way_to_microseconds_and_back(moment: datetime) -> None:
    back = from_us(to_us(moment))
    assert back - moment.astimezone(UTC) == timedelta(0)
    assert back.tzinfo is UTC


def test_moments_before_1970_and_in_a_fold_are_exact() -> None:
    assert to_us(datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)) == -1
    berlin = ZoneInfo("Europe/Berlin")
    first, second = (datetime(2026, 10, 25, 2, 30, tzinfo=berlin, fold=fold) for fold in (0, 1))
    assert to_us(second) - to_us(first) == 3_600_000_000
    assert to_us(datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))) == 0


def test_a_naive_moment_is_refused_and_told_to_get_a_timezone() -> None:
    with pytest.raises(InvalidArguments, match=r"at must have a timezone.*tzinfo=timezone\.utc") as caught:
        to_us(datetime(2026, 1, 1))
    assert caught.value.argument == "at"


@pytest.mark.parametrize("value", [date(2026, 1, 1), "2026-01-01", 5, None])
def test_what_is_no_datetime_is_refused(value: object) -> None:
    with pytest.raises(InvalidArguments, match="at must be a datetime with a timezone"):
        to_us(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+14:00"])
def test_a_moment_that_utc_cannot_say_is_refused(text: str) -> None:
    with pytest.raises(InvalidArguments, match="until must lie in the years 1 to 9999 UTC"):
        to_us(datetime.fromisoformat(text), name="until")


@pytest.mark.parametrize("moment", [datetime.min, datetime.max])
def test_the_first_and_the_last_moment_come_back(moment: datetime) -> None:
    moment = moment.replace(tzinfo=UTC)
    assert from_us(to_us(moment)) == moment


@pytest.mark.parametrize(("us", "year"), [(2**63 - 1, 9999), (-(2**63), 1)])
def test_a_number_that_is_no_moment_is_read_as_the_nearest_one(us: int, year: int) -> None:
    assert from_us(us).year == year
