"""When a task fails too often, or more often than it used to. Pure.

    minutes of the last 10 ----> enough runs? --yes--> judged, against the hours before them
                                      | no
    hours of the last 24 h ----> enough runs? --yes--> judged, against the days before
                                      | no
                                 no evidence: a single failure is a dead letter, not a failing task

The newest window with enough runs decides: a task that works again is well again. Shares of few runs are compared by their
confidence intervals (Wilson's), so that one failure of three runs says nothing.
"""

from collections.abc import Iterable, Mapping
from math import sqrt
from typing import NamedTuple

from drumbeat.core.stats import Resolution, Rollup

RECENT_WINDOW_US = 600_000_000
DAY_WINDOW_US = 86_400_000_000
PAST_WINDOW_US = 7 * 86_400_000_000
"""What a window is compared with: the hours of a week that ended before it."""
MIN_RUNS = 5
FAILING_SHARE = 0.5
MIN_FAILED = 3
"""Fewer failures are no rise, whatever the past."""
MIN_PAST_RUNS = 30
"""A shorter past is no standard of comparison."""
MIN_RISE = 2.0
Z = 3.0
"""Width of the confidence intervals, in standard deviations: wide, since many tasks are judged every 10 s."""


class RunCounts(NamedTuple):
    """Runs of one task in one window."""

    runs: int = 0
    failed: int = 0
    """Charged to the job, or crashed."""
    dead: int = 0

    @property
    def share(self) -> float:
        return self.failed / self.runs if self.runs else 0.0


class FailingTask(NamedTuple):
    """A task that fails at least half of its runs, or more often than it used to."""

    name: str
    counts: RunCounts
    window_us: int
    past: RunCounts | None
    """None: too few runs to compare with."""

    @property
    def is_total(self) -> bool:
        return self.counts.failed == self.counts.runs

    @property
    def is_rise(self) -> bool:
        """It fails less than half of its runs, but more than it used to."""
        return self.counts.share < FAILING_SHARE


def failure_bounds(counts: RunCounts, z: float = Z) -> tuple[float, float]:
    """Wilson's confidence interval of the share of failures."""
    if not counts.runs:
        return 0.0, 1.0
    n, p = counts.runs, counts.share
    middle = p + z * z / (2 * n)
    width = z * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    whole = 1 + z * z / n
    return max(0.0, (middle - width) / whole), min(1.0, (middle + width) / whole)


def has_risen(counts: RunCounts, past: RunCounts) -> bool:
    """Whether a task fails more often than in its past, beyond chance and at least twice as often."""
    if counts.failed < MIN_FAILED or past.runs < MIN_PAST_RUNS or counts.share < MIN_RISE * past.share:
        return False
    return failure_bounds(counts)[0] > failure_bounds(past)[1]


def find_failing_tasks(now: int, minutes: Iterable[Rollup], hours: Iterable[Rollup]) -> list[FailingTask]:
    """Tasks that fail, those with the most failures first.

    minutes: roll-ups of the last 10 minutes, for each queue and task; hours: of the last 8 days.
    """
    of_hours = list(hours)
    windows = (
        (RECENT_WINDOW_US, list(minutes)),
        (DAY_WINDOW_US, [each for each in of_hours if each.at + Resolution.HOUR > now - DAY_WINDOW_US]),
    )
    judged: dict[str, FailingTask | None] = {}
    for window, rollups in windows:
        past = _sum_by_task(
            each for each in of_hours if now - window - PAST_WINDOW_US <= each.at <= now - window - Resolution.HOUR
        )
        for name, counts in _sum_by_task(rollups).items():
            if counts.runs >= MIN_RUNS and name not in judged:
                judged[name] = _judge_task(name, counts, window, past)
    found = [each for each in judged.values() if each is not None]
    return sorted(found, key=lambda task: (task.is_rise, -task.counts.failed, task.name))


def _judge_task(name: str, counts: RunCounts, window: int, pasts: Mapping[str, RunCounts]) -> FailingTask | None:
    past = pasts.get(name, RunCounts())
    if counts.share < FAILING_SHARE and not has_risen(counts, past):
        return None
    return FailingTask(name, counts, window, past if past.runs >= MIN_PAST_RUNS else None)


def _sum_by_task(rollups: Iterable[Rollup]) -> dict[str, RunCounts]:
    found: dict[str, RunCounts] = {}
    for each in rollups:
        before = found.get(each.task, RunCounts())
        runs = before.runs + each.started
        failed = before.failed + each.failed + each.crashed
        found[each.task] = RunCounts(runs, failed, before.dead + each.dead)
    # A run that a dead worker did not report may be counted as crashed without having been counted as started.
    return {name: counts._replace(failed=min(counts.runs, counts.failed)) for name, counts in found.items()}
