"""Grids never drift; an interval by completion follows its runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumbeat.errors import ConfigError
from drumbeat.schedules.rules import rule_of
from tests.unit.schedule_factories import DAY, HOUR, MINUTE, SECOND, after, grid, parse_us

steps = st.integers(100_000, 400 * DAY)
moments = st.integers(parse_us("1990-01-01T00:00:00+00:00"), parse_us("2100-01-01T00:00:00+00:00"))


@given(steps, moments, st.none() | moments)
def test_moments_of_a_grid_are_whole_steps_from_its_origin(step: int, moment: int, start: int | None) -> None:
    rule = rule_of(grid(step, start=start))
    following = rule.next_after(moment)
    assert following is not None
    assert (following - (start or 0)) % step == 0
    assert following > moment
    assert following - moment <= step or following == start


@given(steps, moments, moments, st.none() | moments, st.none() | moments)
def test_counting_is_walking(step: int, one: int, other: int, start: int | None, end: int | None) -> None:
    low = min(one, other)
    high = min(max(one, other), low + 50 * step)
    rule = rule_of(grid(step, start=start, end=end))
    walked: list[int] = []
    at = rule.next_after(low)
    while at is not None and at <= high:
        walked.append(at)
        at = rule.next_after(at)
    assert rule.count(low, high) == len(walked)
    last = rule.last_until(high)
    assert (last if last is not None and last > low else None) == (walked[-1] if walked else None)


def test_a_million_moments_later_the_grid_is_where_it_was() -> None:
    rule = rule_of(grid(7 * MINUTE))
    first = parse_us("2026-01-01T00:00:00+00:00")
    later = first + 1_000_000 * 7 * MINUTE
    assert rule.next_after(first) is not None
    assert (rule.next_after(later) or 0) - (rule.next_after(first) or 0) == later - first


def test_a_grid_with_a_start_begins_there() -> None:
    start = parse_us("2026-05-05T05:05:05+00:00")
    rule = rule_of(grid(HOUR, start=start))
    assert rule.next_after(start - DAY) == start
    assert rule.next_after(start) == start + HOUR
    assert rule.last_until(start - 1) is None


def test_nothing_lies_at_or_after_the_end() -> None:
    end = 10 * HOUR
    rule = rule_of(grid(HOUR, end=end))
    assert rule.next_after(8 * HOUR) == 9 * HOUR
    assert rule.next_after(9 * HOUR) is None
    assert rule.last_until(100 * HOUR) == 9 * HOUR


def test_an_interval_by_completion_is_counted_from_the_end_of_a_run() -> None:
    assert rule_of(after(3 * SECOND)).next_after(parse_us("2026-05-05T05:05:05+00:00")) == parse_us(
        "2026-05-05T05:05:08+00:00"
    )


@pytest.mark.parametrize("rule", ["", "0", "99999", "-5", "1.5", "abc", "9" * 30, "²", "1e9"])
def test_an_interval_that_cannot_be_is_refused_naming_the_field(rule: str) -> None:
    from drumbeat.core.schedule import RuleKind
    from tests.unit.schedule_factories import definition

    with pytest.raises(ConfigError) as caught:
        rule_of(definition(RuleKind.GRID, rule))
    assert caught.value.setting == "every"
