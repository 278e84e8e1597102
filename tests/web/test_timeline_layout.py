"""The geometry of the timeline and the strips: everything is where its time is, and nothing is lost from sight."""

from datetime import UTC
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumbeat.web.pages.timeline_layout import (
    DAY,
    HOUR,
    MIN_WIDTH,
    MINUTE,
    RANGES,
    TimelineItem,
    TimeWindow,
    axis_ticks,
    layout_bars,
    layout_strip,
    shift_window,
    window_of,
)

NOW = 1_794_900_000_000_000
SPAN = TimeWindow(first=NOW - HOUR, last=NOW, now=NOW)


def piece(ago: int, took: int = 0, kind: str = "succeeded", **more: object) -> TimelineItem:
    return TimelineItem(first=NOW - ago, last=NOW - ago + took, kind=kind, title=f"{ago}", href=f"/jobs/{ago}", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("range", RANGES)
def test_a_range_that_goes_with_time_shows_all_of_it_and_some_of_the_future(range: str) -> None:
    span = window_of(range, NOW)
    assert span.first == NOW - RANGES[range]
    assert 84.9 < span.x(NOW) < 85.1


def test_a_range_with_an_end_shows_nothing_after_it() -> None:
    span = window_of("1h", NOW, NOW - DAY)
    assert (span.first, span.last) == (NOW - DAY - HOUR, NOW - DAY)


def test_going_back_and_forward_ends_at_the_picture_that_goes_with_time() -> None:
    earlier = shift_window(window_of("1h", NOW), "1h", -1)
    assert earlier == NOW - HOUR // 2
    assert shift_window(window_of("1h", NOW, earlier), "1h", 1) is None


def test_a_bar_is_where_its_time_is() -> None:
    [bar], hidden = layout_bars([piece(HOUR // 2, took=HOUR // 4)], SPAN)
    assert (bar.x, bar.width, hidden) == (50.0, 25.0, 0)


def test_what_took_no_time_can_still_be_seen_and_pointed_at() -> None:
    [bar], _ = layout_bars([piece(0)], SPAN)
    assert bar.width == MIN_WIDTH and bar.x + bar.width <= 100


def test_what_lies_outside_is_left_out_and_what_reaches_in_is_cut() -> None:
    [bar], _ = layout_bars([piece(3 * HOUR), piece(2 * HOUR, took=HOUR + HOUR // 2)], SPAN)
    assert (bar.x, bar.width) == (0.0, 50.0)


def test_a_run_each_second_is_no_thousand_bars_and_none_is_forgotten() -> None:
    found, hidden = layout_bars([piece(second * 1_000_000, took=5_000) for second in range(3_600)], SPAN)
    assert len(found) <= 100 / MIN_WIDTH + 1
    assert sum(bar.count for bar in found) == 3_600 and hidden == 3_600 - len(found)


def test_a_failure_among_a_thousand_successes_has_a_bar_of_its_own() -> None:
    pieces = [piece(second * 1_000_000, took=5_000) for second in range(3_600)]
    found, _ = layout_bars([*pieces, piece(1_800_500_000, kind="dead")], SPAN)
    assert [bar.kind for bar in found].count("dead") == 1


def test_what_matters_most_is_drawn_on_top() -> None:
    found, _ = layout_bars(
        [piece(9, kind="dead"), piece(8, kind="succeeded"), piece(7, kind="missed"), piece(6, kind="odd")], SPAN
    )
    assert [bar.kind for bar in found] == ["odd", "succeeded", "missed", "dead"]


@given(st.lists(st.tuples(st.integers(0, 2 * HOUR), st.integers(0, HOUR), st.sampled_from(["succeeded", "dead"]))))
def test_no_bar_leaves_the_picture_and_every_piece_within_is_counted(given: list[tuple[int, int, str]]) -> None:
    pieces = [piece(ago, took, kind) for ago, took, kind in given]
    found, hidden = layout_bars(pieces, SPAN)
    assert all(0 <= bar.x and bar.x + bar.width <= 100.001 for bar in found)
    inside = sum(SPAN.has(each.first, each.last) for each in pieces)
    assert sum(bar.count for bar in found) == inside == len(found) + hidden


@pytest.mark.parametrize("length", [10 * MINUTE, HOUR, 7 * HOUR, DAY, 8 * DAY])
def test_ticks_are_few_and_inside(length: int) -> None:
    found = axis_ticks(TimeWindow(first=NOW - length, last=NOW, now=NOW), UTC)
    assert 2 <= len(found) <= 10
    assert all(0 <= tick.x <= 100 for tick in found)


def test_midnight_is_the_midnight_of_whoever_looks() -> None:
    first = 1_794_873_600_000_000  # 2026-11-17 00:00 UTC
    span = TimeWindow(first=first - DAY // 2, last=first + DAY // 2, now=first)
    labels = {tick.label: tick.x for tick in axis_ticks(span, ZoneInfo("Asia/Kolkata"))}
    assert labels["Tue 17"] == pytest.approx(50 - 100 * 5.5 / 24, abs=0.01)


def test_a_strip_has_the_newest_at_its_right_edge() -> None:
    marks = layout_strip([piece(3_000_000), piece(1_000_000), piece(2_000_000, kind="dead")], slots=60)
    assert [mark.title for mark in marks] == ["3000000", "2000000", "1000000"]
    assert marks[-1].x == pytest.approx(100 * 59 / 60, abs=0.01)
    assert marks[1].kind == "dead"


def test_a_strip_shows_the_last_sixty_only() -> None:
    assert len(layout_strip([piece(n * 1_000_000) for n in range(100)])) == 60


def test_what_took_longer_stands_higher_and_what_was_missed_stands_full() -> None:
    quick, slow, missed = layout_strip([piece(3, took=1_000), piece(2, took=60_000_000), piece(1, kind="missed")])
    assert quick.height < slow.height == missed.height == 100
    assert quick.height >= 30
