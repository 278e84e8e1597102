"""The next moments for people, with a word where the clocks change."""

from drumbeat.core.schedule import NewSchedule
from drumbeat.schedules.preview import preview
from tests.unit.schedule_factories import HOUR, SECOND, after, cron, grid, parse_us


def shown(made: NewSchedule, now: str, count: int) -> list[tuple[str, str]]:
    return [(found.at.isoformat(), found.note) for found in preview(made, parse_us(now), count)]


def test_an_ordinary_week_needs_no_words() -> None:
    assert shown(cron("0 3 * * *", tz="Europe/Berlin"), "2026-05-05T05:00:00+02:00", 2) == [
        ("2026-05-06T03:00:00+02:00", ""),
        ("2026-05-07T03:00:00+02:00", ""),
    ]


def test_a_time_that_the_clocks_leap_over_is_told() -> None:
    assert shown(cron("30 2 * * *", tz="Europe/Berlin"), "2026-03-28T12:00:00+01:00", 2) == [
        (
            "2026-03-29T03:00:00+02:00",
            "the clocks go forward on 2026-03-29, from 02:00 to 03:00; a time in between is run after it",
        ),
        ("2026-03-30T02:30:00+02:00", ""),
    ]


def test_a_time_that_is_there_by_itself_is_not_called_leapt_over() -> None:
    [(at, note)] = shown(cron("0 3 * * *", tz="Europe/Berlin"), "2026-03-28T12:00:00+01:00", 1)
    assert at == "2026-03-29T03:00:00+02:00"
    assert note == "the clocks go forward on 2026-03-29, from 02:00 to 03:00"


def test_a_time_that_comes_twice_is_told() -> None:
    [(at, note)] = shown(cron("30 2 * * *", tz="Europe/Berlin"), "2026-10-24T12:00:00+02:00", 1)
    assert at == "2026-10-25T02:30:00+02:00"
    assert note == "this time comes twice, it is run the first time"


def test_what_runs_every_half_hour_is_shown_both_times() -> None:
    assert shown(cron("*/30 * * * *", tz="Europe/Berlin"), "2026-10-25T02:00:00+02:00", 3) == [
        ("2026-10-25T02:30:00+02:00", "this time comes twice"),
        (
            "2026-10-25T02:00:00+01:00",
            "the clocks go back on 2026-10-25, from 03:00 to 02:00; this time comes twice",
        ),
        ("2026-10-25T02:30:00+01:00", "this time comes twice"),
    ]


def test_intervals_are_shown_in_utc_and_an_end_ends_them() -> None:
    end = parse_us("2026-05-05T07:30:00+00:00")
    assert shown(grid(HOUR, end=end), "2026-05-05T05:30:00+00:00", 9) == [
        ("2026-05-05T06:00:00+00:00", ""),
        ("2026-05-05T07:00:00+00:00", ""),
    ]
    assert shown(after(3 * SECOND), "2026-05-05T05:00:00+00:00", 2) == [
        ("2026-05-05T05:00:00+00:00", ""),
        ("2026-05-05T05:00:03+00:00", ""),
    ]
