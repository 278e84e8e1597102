"""When a task fails too often: robust against small numbers, and against its own past."""

import pytest

from drumbeat.core.failure_rate import RunCounts, failure_bounds, find_failing_tasks, has_risen
from drumbeat.core.stats import Resolution, Rollup

HOUR, DAY = int(Resolution.HOUR), 24 * int(Resolution.HOUR)
NOW = 1_800_000_000_000_000 // HOUR * HOUR + HOUR // 2


def counted(ago: int, runs: int, failed: int, resolution: Resolution = Resolution.HOUR, queue: str = "mail") -> Rollup:
    at = (NOW - ago) // resolution * resolution
    return Rollup(resolution=resolution, at=at, queue=queue, task="charge", started=runs, failed=failed)


def recent(runs: int, failed: int) -> Rollup:
    return counted(120_000_000, runs, failed, Resolution.MINUTE)


@pytest.mark.parametrize(
    ("now", "past", "risen"),
    [
        ((2, 100), (0, 10_000), False),  # too few failures to be a rise
        ((3, 10), (0, 20), False),  # too short a past
        ((3, 10), (0, 1_000), True),
        ((5, 100), (0, 1_000), True),
        ((3, 100), (0, 1_000), False),  # by chance
        ((6, 100), (40, 1_000), False),  # 6 % after 4 %
        ((60, 1_000), (400, 10_000), False),  # likewise, and surely so: but not twice as often
        ((20, 100), (40, 1_000), True),
        ((49, 100), (49, 100), False),
        ((0, 100), (50, 100), False),
    ],
)
def test_a_rise_is_more_than_chance_and_at_least_twofold(
    now: tuple[int, int], past: tuple[int, int], risen: bool
) -> None:
    assert has_risen(RunCounts(now[1], now[0]), RunCounts(past[1], past[0])) is risen


@pytest.mark.parametrize(("failed", "runs"), [(0, 1), (1, 1), (0, 1_000), (500, 1_000), (1_000, 1_000)])
def test_bounds_hold_the_share_and_narrow_with_more_runs(failed: int, runs: int) -> None:
    low, high = failure_bounds(RunCounts(runs, failed))
    assert 0 <= low <= failed / runs <= high <= 1
    low_of_more, high_of_more = failure_bounds(RunCounts(100 * runs, 100 * failed))
    assert high_of_more - low_of_more < high - low


@pytest.mark.parametrize(
    ("minutes", "hours", "found"),
    [
        ([], [], []),
        ([recent(4, 4)], [], []),  # no evidence
        ([recent(5, 5)], [], [(5, 5, None)]),
        ([recent(10, 4)], [], []),  # less than half, and nothing to compare it with
        ([recent(10, 4)], [counted(2 * DAY, 100, 40)], []),  # as ever
        ([recent(10, 4)], [counted(2 * DAY, 1_000, 1)], [(10, 4, 1_000)]),
        ([recent(10, 6)], [counted(2 * DAY, 100, 60)], [(10, 6, 100)]),  # as ever, and failing
        ([recent(1, 1)], [counted(3 * HOUR, 4, 4)], []),
        ([recent(1, 1)], [counted(3 * HOUR, 5, 5)], [(5, 5, None)]),  # rare: judged by the day
        ([recent(50, 0)], [counted(3 * HOUR, 50, 50)], []),  # it works again
        ([], [counted(3 * HOUR, 40, 10), counted(3 * DAY, 400, 4)], [(40, 10, 400)]),
        ([], [counted(30 * HOUR, 50, 50)], []),  # long ago
        ([recent(10, 4)], [counted(9 * DAY, 1_000, 1)], []),  # older than the past
    ],
)
def test_the_newest_window_with_enough_runs_decides(
    minutes: list[Rollup], hours: list[Rollup], found: list[tuple[int, int, int | None]]
) -> None:
    failing = find_failing_tasks(NOW, minutes, hours)
    assert [(each.counts.runs, each.counts.failed, each.past and each.past.runs) for each in failing] == found


def test_runs_of_all_queues_count_together() -> None:
    both = [counted(0, 3, 3, Resolution.MINUTE, queue) for queue in ("a", "b")]
    [task] = find_failing_tasks(NOW, both, [])
    assert (task.counts, task.is_total, task.is_rise) == (RunCounts(6, 6), True, False)
