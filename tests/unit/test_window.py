"""A window of time in the URL: which windows there are, and from which counts they are drawn."""

from datetime import UTC, datetime, timedelta

import pytest

from drumbeat.errors import InvalidArguments
from drumbeat.web.pages.window import ChosenWindow, chart_range_of, counted_since, parse_window, resolution_of

NOW = datetime(2026, 11, 15, 12, 0, 30, tzinfo=UTC)
WEEK = 7 * 86_400.0


@pytest.mark.parametrize(
    ("since", "until", "words"),
    [
        ("2026-11-15T09:30:05Z", "2026-11-15T09:31:00Z", "2026-11-15 09:30:05 to 09:31:00 UTC"),
        ("2026-11-15T09:30:05", "2026-11-16T09:31", "2026-11-15 09:30:05 to 2026-11-16 09:31:00 UTC"),
        ("2026-11-15T10:30:05+01:00", "2026-11-15T11:31:00+01:00", "2026-11-15 09:30:05 to 10:31:00 UTC"),
        ("2h", "", "2026-11-15 10:00:30 to 12:00:30 UTC"),
        (None, "2026-11-15T09:31:00Z", "2026-11-15 08:31:00 to 09:31:00 UTC"),
    ],
)
def test_a_window_is_read_to_the_second_and_its_link_says_the_same(
    since: str | None, until: str | None, words: str
) -> None:
    window = parse_window(since, until, NOW)
    assert window is not None and window.words == words
    assert parse_window(window.keep["since"], window.keep["until"], NOW + timedelta(days=9)) == window


def test_without_a_time_there_is_no_window() -> None:
    assert parse_window(None, "", NOW) is None


@pytest.mark.parametrize(
    ("since", "until"), [("yesterday", None), ("2026-11-15T09:30Z", "2026-11-15T09:30Z"), ("40d", None), ("1m", "2h")]
)
def test_what_is_no_window_is_refused(since: str, until: str | None) -> None:
    with pytest.raises(InvalidArguments):
        parse_window(since, until, NOW)


@pytest.mark.parametrize(
    ("age", "length", "resolution", "interval_s"),
    [
        (timedelta(minutes=20), timedelta(minutes=10), "10s", 10),
        (timedelta(minutes=90), timedelta(minutes=80), "1m", 60),
        (timedelta(days=3), timedelta(seconds=20), "1m", 60),
        (timedelta(days=3), timedelta(hours=24), "1m", 1_200),
        (timedelta(days=6), timedelta(days=3), "1h", 3_600),
        (timedelta(days=12), timedelta(minutes=5), "1h", 3_600),
        (timedelta(days=14), timedelta(days=14), "1h", 21_600),
    ],
)
def test_a_window_is_counted_as_finely_as_counts_are_kept(
    age: timedelta, length: timedelta, resolution: str, interval_s: int
) -> None:
    window = ChosenWindow(since=NOW - age, until=NOW - age + length)
    assert resolution_of(window, NOW, WEEK) == resolution
    over = chart_range_of(window, resolution_of(window, NOW, WEEK))
    assert (over.interval_us, over.slots <= 91) == (interval_s * 1_000_000, True)
    assert counted_since(window, resolution_of(window, NOW, WEEK)) <= window.since
