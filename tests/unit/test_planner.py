"""What is due: every moment is dealt with once, fired or skipped, whoever looks and however rarely."""

import sys
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumbeat.core.schedule import CatchUp, FireRequest, NewSchedule, Overlap, Schedule, ScheduleState
from drumbeat.errors import ConfigError
from drumbeat.ids import is_job_id, new_job_id
from drumbeat.schedules.planner import (
    ON_TIME_WINDOW_US,
    fire_times_between,
    first_fire_time,
    jitter,
    next_after_change,
    plan,
    skip_range,
)
from drumbeat.schedules.rules import check_definition, describe_rule, rule_of
from tests.unit.schedule_factories import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    after,
    build_schedule,
    cron,
    grid,
    parse_us,
    sequential_ids,
)

NOW = parse_us("2026-05-05T05:05:05+00:00")
YEAR = 365 * DAY

definitions = st.one_of(
    st.integers(1, 2_000).map(lambda seconds: grid(seconds * SECOND)),
    st.sampled_from(["* * * * *", "*/5 * * * *", "0 3 * * *", "30 2 * * *", "15,45 1-3 * * *", "*/10 * * * * *"]).map(
        lambda text: cron(text, tz="Europe/Berlin")
    ),
)
# Around the nights when the clocks change in Berlin, and any other time.
starts = st.sampled_from([parse_us("2026-03-28T20:00:00+00:00"), parse_us("2026-10-24T20:00:00+00:00"), NOW])
gaps = st.lists(st.integers(1, 4 * HOUR), min_size=1, max_size=8)
choices = st.fixed_dictionaries(
    {
        "catch_up": st.sampled_from(CatchUp),
        "catch_up_limit": st.integers(1, 20),
        "max_late": st.none() | st.integers(1, 3 * HOUR),
        "jitter": st.integers(0, 10 * MINUTE),
    }
)


def moments_of(made: NewSchedule, after: int, until: int) -> list[int]:
    """By walking, one by one."""
    rule, found = rule_of(made), list[int]()
    at = rule.next_after(after)
    while at is not None and at <= until:
        found.append(at)
        at = rule.next_after(at)
    return found


def moved(schedule: Schedule, done: FireRequest) -> Schedule:
    """As the store has it after a firing."""
    assert (done.name, done.revision, done.expected_cursor) == (schedule.name, schedule.revision, schedule.cursor)
    return msgspec.structs.replace(schedule, cursor=done.cursor, next_at=done.next_at)


@settings(deadline=None)
@given(definitions, starts, gaps, choices)
def test_every_moment_is_fired_or_skipped_once_whenever_somebody_looks(
    made: NewSchedule, begin: int, looks: list[int], chosen: dict[str, Any]
) -> None:
    made = msgspec.structs.replace(made, **chosen)
    schedule = build_schedule(made, next_at=first_fire_time(made, begin))
    now, fired, skipped = begin, list[int](), 0
    for gap in looks:
        now += gap
        planned = plan(schedule, now, sequential_ids())
        if planned is None:
            assert schedule.next_at is not None and schedule.next_at > now
            continue
        assert planned.next_at is not None and planned.next_at > now
        assert all(fire.at + made.jitter >= fire.run_at >= fire.at for fire in planned.fires)
        stretches = [(skip.first, skip.last) for skip in planned.skipped]
        stretches += [(fire.at, fire.at) for fire in planned.fires]
        assert all(first <= last < following for (first, last), (following, _) in pairwise(stretches))
        fired += [fire.at for fire in planned.fires]
        skipped += sum(skip.count for skip in planned.skipped)
        schedule = moved(schedule, planned)
        assert plan(schedule, now, sequential_ids()) is None
    wanted = moments_of(made, begin, now)
    assert set(fired) <= set(wanted)
    assert fired == sorted(set(fired))
    assert len(fired) + skipped == len(wanted)
    if made.catch_up is CatchUp.ALL and made.max_late is None and len(wanted) <= made.catch_up_limit:
        assert fired == wanted


@given(definitions, starts, st.integers(1, 4 * HOUR), choices)
def test_which_moments_are_fired_is_what_the_words_say(
    made: NewSchedule, begin: int, gap: int, chosen: dict[str, Any]
) -> None:
    made = msgspec.structs.replace(made, **chosen)
    now = begin + gap
    due = moments_of(made, begin, now)
    planned = plan(build_schedule(made, next_at=first_fire_time(made, begin)), now, sequential_ids())
    if not due:
        assert planned is None
        return
    most_late = made.max_late
    if most_late is None and made.catch_up is CatchUp.NONE:
        most_late = ON_TIME_WINDOW_US
    in_time = due if most_late is None else [at for at in due if at >= now - most_late]
    most = made.catch_up_limit if made.catch_up is CatchUp.ALL else 1
    assert planned is not None
    assert [fire.at for fire in planned.fires] == in_time[-most:]
    counts = {skip.reason: skip.count for skip in planned.skipped}
    reason = "limit" if made.catch_up is CatchUp.ALL else "caught up"
    wanted = {"late": len(due) - len(in_time), reason: len(in_time) - len(planned.fires)}
    assert counts == {word: number for word, number in wanted.items() if number}
    assert planned.cursor == due[-1]


@given(definitions, starts, st.integers(1, 4 * HOUR), st.sampled_from(Overlap))
def test_the_plan_does_not_depend_on_overlap(made: NewSchedule, begin: int, gap: int, overlap: Overlap) -> None:
    first = first_fire_time(made, begin)
    other = msgspec.structs.replace(made, overlap=overlap)
    assert plan(build_schedule(made, next_at=first), begin + gap, sequential_ids()) == plan(
        build_schedule(other, next_at=first), begin + gap, sequential_ids()
    )


def test_a_year_of_seconds_that_nobody_served_is_planned_in_few_steps() -> None:
    steps = 0

    def count(*_: object) -> None:
        nonlocal steps
        steps += 1

    made = cron("* * * * * *", tz="Europe/Berlin")
    schedule = build_schedule(made, next_at=NOW - YEAR, cursor=NOW - YEAR - SECOND)
    sys.setprofile(count)
    try:
        planned = plan(schedule, NOW, sequential_ids())
    finally:
        sys.setprofile(None)
    assert planned is not None
    assert len(planned.fires) == 1
    assert [skip.count for skip in planned.skipped] == [YEAR // SECOND]
    assert steps < 50_000


def test_months_of_a_nightly_job_are_fired_night_by_night() -> None:
    made = cron("30 2 * * *", tz="Europe/Berlin", catch_up=CatchUp.NONE)
    schedule = build_schedule(made, next_at=first_fire_time(made, NOW - YEAR))
    fired = list[int]()
    for minute in range(YEAR // MINUTE):
        now = NOW - YEAR + minute * MINUTE + 5 * SECOND - NOW % MINUTE + MINUTE
        if (planned := plan(schedule, now, sequential_ids())) is not None:
            assert planned.skipped == ()
            fired += [fire.at for fire in planned.fires]
            schedule = moved(schedule, planned)
    assert len(fired) == 365


def test_nothing_is_due_before_its_moment_nor_while_paused() -> None:
    made = cron("0 3 * * *")
    first = first_fire_time(made, NOW)
    assert first is not None
    assert plan(build_schedule(made, next_at=first), first - 1, sequential_ids()) is None
    assert plan(build_schedule(made, next_at=None), first, sequential_ids()) is None
    assert plan(build_schedule(made, next_at=first, state=ScheduleState.PAUSED), first, sequential_ids()) is None


def test_a_moment_that_another_version_of_the_zone_had_put_there_is_only_moved() -> None:
    made = cron("0 3 * * *")
    schedule = build_schedule(made, next_at=NOW - 1, cursor=NOW - DAY)
    planned = plan(schedule, NOW, sequential_ids())
    assert planned is not None
    assert (planned.fires, planned.skipped, planned.cursor) == ((), (), NOW - DAY)
    assert planned.next_at == parse_us("2026-05-06T03:00:00+00:00")


def test_without_catch_up_a_moment_is_still_served_while_a_leader_is_replaced() -> None:
    made = grid(HOUR, catch_up=CatchUp.NONE)
    schedule = build_schedule(made, next_at=10 * HOUR)
    in_time = plan(schedule, 10 * HOUR + ON_TIME_WINDOW_US, sequential_ids())
    late = plan(schedule, 10 * HOUR + ON_TIME_WINDOW_US + 1, sequential_ids())
    assert in_time is not None and len(in_time.fires) == 1
    assert late is not None and late.fires == () and late.skipped[0].reason == "late"


def test_an_interval_by_completion_runs_at_once_and_then_waits_for_the_end() -> None:
    made = after(3 * SECOND)
    assert first_fire_time(made, NOW) == NOW
    planned = plan(build_schedule(made, next_at=NOW), NOW + DAY, sequential_ids())
    assert planned is not None
    assert [fire.at for fire in planned.fires] == [NOW]
    assert (planned.cursor, planned.next_at) == (NOW, None)


def test_an_interval_by_completion_stays_within_start_and_end() -> None:
    assert first_fire_time(after(SECOND, start=NOW + 5), NOW) == NOW + 5
    assert first_fire_time(after(SECOND, end=NOW), NOW) is None
    planned = plan(build_schedule(after(SECOND, end=NOW), next_at=NOW + 1, cursor=NOW - 5), NOW + 2, sequential_ids())
    assert planned is not None
    assert (planned.fires, planned.cursor, planned.next_at) == ((), NOW - 5, None)


def test_a_changed_interval_is_never_put_off() -> None:
    known = build_schedule(after(60 * SECOND), next_at=NOW + 10 * SECOND)
    assert next_after_change(known, after(3 * SECOND), NOW) == NOW + 3 * SECOND
    assert next_after_change(known, after(300 * SECOND), NOW) == NOW + 10 * SECOND
    assert next_after_change(known, grid(HOUR), 0) == HOUR
    under_way = build_schedule(after(60 * SECOND), next_at=None)
    assert next_after_change(under_way, after(3 * SECOND), NOW) is None


def test_the_last_moment_before_the_end_leaves_no_next() -> None:
    made = grid(HOUR, end=11 * HOUR)
    planned = plan(build_schedule(made, next_at=10 * HOUR), 10 * HOUR, sequential_ids())
    assert planned is not None
    assert len(planned.fires) == 1
    assert planned.next_at is None


def test_ids_are_those_of_new_jobs_made_now() -> None:
    planned = plan(build_schedule(grid(HOUR), next_at=10 * HOUR), 10 * HOUR, new_job_id)
    assert planned is not None
    assert is_job_id(planned.fires[0].job)


def test_jitter_is_the_same_for_the_same_moment_and_spreads_over_its_bound() -> None:
    assert jitter("nightly", NOW, 0) == 0
    drawn = [jitter("nightly", NOW + n * DAY, 60) for n in range(1_000)]
    assert drawn == [jitter("nightly", NOW + n * DAY, 60) for n in range(1_000)]
    assert set(drawn) == set(range(61))
    assert jitter("nightly", NOW, 10**9) != jitter("weekly", NOW, 10**9)


def test_a_stretch_without_moments_is_none() -> None:
    assert skip_range(rule_of(grid(HOUR)), HOUR, 2 * HOUR - 1, "paused") == []
    [skip] = skip_range(rule_of(grid(HOUR)), HOUR, 4 * HOUR, "paused")
    assert (skip.first, skip.last, skip.count) == (2 * HOUR, 4 * HOUR, 3)


def test_moments_between_two_are_listed_both_ends_included() -> None:
    assert fire_times_between(grid(HOUR), HOUR, 4 * HOUR, 100) == [HOUR, 2 * HOUR, 3 * HOUR, 4 * HOUR]
    assert fire_times_between(grid(HOUR), HOUR, 4 * HOUR, 2) == [HOUR, 2 * HOUR]
    assert fire_times_between(after(HOUR), HOUR, 4 * HOUR, 2) == []


@pytest.mark.parametrize(
    ("made", "field"),
    [
        (cron("0 0 30 2 *"), "cron"),
        (cron("0 3 * * *", tz="../../etc/passwd"), "tz"),
        (cron("0 3 * * *", name="a b"), "name"),
        (cron("0 3 * * *", priority=10), "priority"),
        (cron("0 3 * * *", catch_up_limit=0), "catch_up_limit"),
        (cron("0 3 * * *", catch_up_limit=1_001), "catch_up_limit"),
        (cron("0 3 * * *", max_late=0), "max_late"),
        (cron("0 3 * * *", jitter=-1), "jitter"),
        (cron("0 3 * * *", start=NOW, end=NOW), "end"),
        (cron("0 0 1 1 *", start=NOW, end=NOW + DAY), "cron"),
        (cron("*/5 2 * 3 0L", tz="Europe/Berlin"), "cron"),
        (grid(5), "every"),
        (after(5), "every"),
    ],
)
def test_a_definition_that_cannot_be_is_refused_naming_the_field(made: NewSchedule, field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_definition(made)
    assert caught.value.setting == field


def test_a_definition_whose_time_is_over_is_no_mistake() -> None:
    check_definition(cron("0 3 * * *", end=parse_us("2020-05-05T00:00:00+00:00")))
    check_definition(
        cron("0 0 29 2 *", start=parse_us("2019-05-05T00:00:00+00:00"), end=parse_us("2020-05-05T00:00:00+00:00"))
    )
    check_definition(grid(HOUR, end=parse_us("1999-05-05T00:00:00+00:00")))


def test_rules_are_told_in_words() -> None:
    assert describe_rule(cron("0 3 * * *", tz="Europe/Berlin")) == "0 3 * * * (Europe/Berlin)"
    assert describe_rule(grid(5 * MINUTE)) == "every 5m, on a grid"
    assert describe_rule(after(3 * SECOND)) == "3s after each run"
    assert describe_rule(msgspec.structs.replace(grid(1), rule="x")) == "every 'x', on a grid"
