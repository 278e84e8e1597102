"""Descriptions of schedules: as exact as the rules."""

from datetime import date

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from drumbeat.core.schedule import NewSchedule, RuleKind
from drumbeat.errors import ConfigError
from drumbeat.schedules.cron import Cron, parse
from drumbeat.schedules.description import describe_cron, describe_interval, describe_schedule


def made(rule: str, kind: RuleKind = RuleKind.CRON, tz: str = "Europe/Berlin") -> NewSchedule:
    return NewSchedule(name="nightly", task="t", kind=kind, rule=rule, queue="q", args="{}", signature="", tz=tz)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("0 3 * * *", "at 03:00 every day (Europe/Berlin)"),
        ("30 0 3 * * *", "at 03:00:30 every day (Europe/Berlin)"),
        ("@weekly", "at 00:00 on Sunday (Europe/Berlin)"),
        ("@yearly", "at 00:00 on January 1 (Europe/Berlin)"),
        (
            "0 9-17 * * MON-FRI",
            "at minute 0 past every hour from 9 through 17 on Monday through Friday (Europe/Berlin)",
        ),
        ("*/10 9-17 * * *", "every 10th minute from 09:00 through 17:59 (Europe/Berlin)"),
        ("* 0 * * *", "every minute from 00:00 through 00:59 (Europe/Berlin)"),
        ("0 0,6,12,18 * * *", "at 00:00, 06:00, 12:00, and 18:00 every day (Europe/Berlin)"),
        ("30 */2 * * *", "at minute 30 past every second hour (Europe/Berlin)"),
        ("0 0 LW 1,7 *", "at 00:00 on the last weekday of January and July (Europe/Berlin)"),
        ("0 0 * * 5L", "at 00:00 on the last Friday of the month (Europe/Berlin)"),
        ("0 0 * * 2#2", "at 00:00 on the second Tuesday of the month (Europe/Berlin)"),
        ("0 0 13 * 5", "at 00:00 on the 13th day of month and on Friday (Europe/Berlin)"),
        ("0 0 */2 * 5", "at 00:00 on every second day of month if it's on Friday (Europe/Berlin)"),
        ("5,17 * * * *", "at minutes 5 and 17 of every hour (Europe/Berlin)"),
        ("0 12 * * FRI-SUN", "at 12:00 on Friday through Sunday (Europe/Berlin)"),
        ("0 0 1-31 * FRI", "at 00:00 every day (Europe/Berlin)"),
        ("0 0 13 * SUN-SAT", "at 00:00 every day (Europe/Berlin)"),
    ],
)
def test_a_cron_expression_is_described_with_its_time_zone(rule: str, said: str) -> None:
    assert describe_schedule(made(rule)) == said


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("*/5 * * * *", "every fifth minute of every hour"),
        ("0 * * * *", "at the start of every hour"),
        ("* * * * * *", "every second"),
    ],
)
def test_utc_is_omitted_where_all_hours_are_alike(rule: str, said: str) -> None:
    assert describe_schedule(made(rule, tz="UTC")) == said


@pytest.mark.parametrize(
    ("length", "grid", "after"),
    [
        (1_000_000, "every second", "1 second after each run ends"),
        (300_000_000, "every 5 minutes", "5 minutes after each run ends"),
        (5_400_000_000, "every 1 hour 30 minutes", "1 hour 30 minutes after each run ends"),
        (2_500_000, "every 2.5 seconds", "2.5 seconds after each run ends"),
    ],
)
def test_grids_and_pauses_between_runs_are_told_apart(length: int, grid: str, after: str) -> None:
    assert describe_schedule(made(str(length), RuleKind.GRID)) == grid
    assert describe_schedule(made(str(length), RuleKind.AFTER)) == after


@given(st.text(max_size=40), st.sampled_from(RuleKind), st.text(max_size=20))
def test_whatever_the_store_holds_is_shown_and_never_refused(rule: str, kind: RuleKind, tz: str) -> None:
    assert describe_schedule(made(rule, kind, tz))


@given(st.integers(1, 10**15), st.integers(1, 10**15))
def test_other_lengths_have_other_words(one: int, other: int) -> None:
    assume(one != other)
    assert describe_interval(one) != describe_interval(other)


def field(low: int, high: int, *extra: str) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    terms = st.one_of(
        number.map(str),
        st.tuples(number, number).map(lambda two: f"{min(two)}-{max(two)}"),
        st.tuples(number, st.integers(1, high - low + 1)).map(lambda two: f"{two[0]}/{two[1]}"),
        *([st.sampled_from(extra)] if extra else []),
    )
    steps = st.sampled_from(["*", "*", f"*/{max(2, (high - low + 1) // 4)}", "*/2"])
    return st.one_of(steps, st.lists(terms, min_size=1, max_size=3).map(",".join))


rules = st.tuples(
    st.sampled_from(["0", "30", "*/10", "1,7"]),
    field(0, 59),
    field(0, 23),
    field(1, 31, "L", "LW"),
    field(1, 12),
    field(0, 7, "5L", "2#2", "MON-FRI"),
).map(" ".join)


def meaning(cron: Cron) -> object:
    days = frozenset(n for n in range(731) if cron.has_day(date.fromordinal(date(2027, 1, 1).toordinal() + n)))
    return cron.seconds, cron.minutes, cron.hours, days


@settings(max_examples=400)
@given(rules, rules)
def test_expressions_of_other_moments_have_other_words(one: str, other: str) -> None:
    try:
        first, second = parse(one, "n"), parse(other, "n")
    except ConfigError:
        assume(False)
    if meaning(first) != meaning(second):
        assert describe_cron(first, "UTC") != describe_cron(second, "UTC")


@settings(max_examples=200)
@given(st.data())
def test_a_small_change_of_an_expression_changes_its_words(data: st.DataObject) -> None:
    """Two drawn at random hardly ever come near each other: here they differ in one field."""
    parts = data.draw(rules).split()
    changed = list(parts)
    index = data.draw(st.integers(0, 5))
    changed[index] = data.draw(rules).split()[index]
    try:
        first, second = parse(" ".join(parts), "n"), parse(" ".join(changed), "n")
    except ConfigError:
        assume(False)
    if meaning(first) != meaning(second):
        assert describe_cron(first, "UTC") != describe_cron(second, "UTC")
