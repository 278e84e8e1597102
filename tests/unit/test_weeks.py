"""This week beside the last, by task."""

from drumbeat.core.stats import BUCKETS, Resolution, Rollup, bucket_index, interval_of
from drumbeat.core.weeks import WEEK_US, compare_weeks, weeks_begin

HOUR = int(Resolution.HOUR)
NOW = 1_800_000_000_000_000


def hour(ago: int, task: str = "charge", *, queue: str = "mail", took: int = 1_000_000, **counts: int) -> Rollup:
    runs = counts.get("started", 0)
    histogram = tuple(runs if place == bucket_index(took) else 0 for place in range(BUCKETS))
    at = interval_of(Resolution.HOUR, NOW - ago)
    return Rollup(
        resolution=Resolution.HOUR,
        at=at,
        queue=queue,
        task=task,
        run=histogram,
        wait=histogram,
        **counts,
    )


def test_each_task_has_the_figures_of_both_weeks() -> None:
    hours = [
        hour(0, started=60, failed=6, took=2_000_000),
        hour(HOUR, queue="other", started=40, failed=3, crashed=1, took=2_000_000),
        hour(WEEK_US, started=10, took=1_000_000),
        hour(WEEK_US + HOUR, task="old", started=1, failed=1),
    ]
    charge, old = compare_weeks(NOW, hours)
    assert (charge.task, charge.this_week.runs, charge.this_week.failed) == ("charge", 100, 10)
    assert (charge.this_week.failure_rate, charge.last_week.failure_rate) == (0.1, 0.0)
    assert charge.this_week.run_p95 is not None and charge.last_week.run_p95 is not None
    assert charge.this_week.run_p95 > charge.last_week.run_p95
    assert charge.this_week.wait_p50 == charge.this_week.run_p50
    assert (old.task, old.this_week.runs, old.this_week.failure_rate, old.this_week.run_p95) == ("old", 0, None, None)
    assert (old.last_week.runs, old.last_week.failure_rate) == (1, 1.0)


def test_a_week_is_168_hours_and_the_current_hour_belongs_to_this_one() -> None:
    begin = weeks_begin(NOW)
    assert interval_of(Resolution.HOUR, NOW) - begin == 2 * WEEK_US - HOUR
    edges = [begin - HOUR, begin, begin + WEEK_US - HOUR, begin + WEEK_US, interval_of(Resolution.HOUR, NOW)]
    [both] = compare_weeks(NOW, [hour(NOW - at, started=1) for at in edges])
    assert (both.this_week.runs, both.last_week.runs) == (2, 2)
