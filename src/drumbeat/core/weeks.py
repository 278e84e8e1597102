"""The runs of each task in the last 7 days beside those of the 7 days before: run time, wait, failures. Pure."""

from collections.abc import Iterable
from typing import Annotated

import msgspec

from drumbeat.core.field_doc import doc
from drumbeat.core.stats import BUCKETS, Resolution, Rollup, interval_of, percentile

WEEK_US = 7 * 86_400_000_000


class WeekFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a task in one week. Durations are seconds; None: no runs."""

    runs: int = 0
    failed: Annotated[int, doc("Runs that failed or crashed.")] = 0
    failure_rate: Annotated[float | None, doc("Their share, 0 to 1; None: no runs.")] = None
    wait_p50: Annotated[float | None, doc("From due to start; half of the runs waited less.")] = None
    wait_p95: float | None = None
    run_p50: Annotated[float | None, doc("From start to end.")] = None
    run_p95: float | None = None


class TaskWeeks(msgspec.Struct, frozen=True, kw_only=True):
    """A task in the last 7 days, and in the 7 days before, counted by the hour."""

    task: str
    this_week: WeekFigures
    last_week: WeekFigures


def weeks_begin(now: int) -> int:
    """When the earlier week begins (µs)."""
    return interval_of(Resolution.HOUR, now) + Resolution.HOUR - 2 * WEEK_US


def compare_weeks(now: int, hours: Iterable[Rollup]) -> list[TaskWeeks]:
    """By name; hours: roll-ups of each queue and task since `weeks_begin`."""
    begin = weeks_begin(now)
    weeks: dict[str, tuple[list[Rollup], list[Rollup]]] = {}
    for each in hours:
        if begin <= each.at < begin + 2 * WEEK_US:
            weeks.setdefault(each.task, ([], []))[each.at < begin + WEEK_US].append(each)
    return [
        TaskWeeks(task=task, this_week=_figures(this), last_week=_figures(last))
        for task, (this, last) in sorted(weeks.items())
    ]


def _figures(rollups: list[Rollup]) -> WeekFigures:
    runs = sum(each.started for each in rollups)
    failed = min(runs, sum(each.failed + each.crashed for each in rollups))
    wait = [sum(each.wait[place] for each in rollups) for place in range(BUCKETS)]
    run = [sum(each.run[place] for each in rollups) for place in range(BUCKETS)]
    return WeekFigures(
        runs=runs,
        failed=failed,
        failure_rate=failed / runs if runs else None,
        wait_p50=_seconds(wait, 0.50),
        wait_p95=_seconds(wait, 0.95),
        run_p50=_seconds(run, 0.50),
        run_p95=_seconds(run, 0.95),
    )


def _seconds(histogram: list[int], share: float) -> float | None:
    us = percentile(histogram, share)
    return None if us is None else us / 1e6
