"""Whether a series of samples is flat: pure functions, without a clock.

The first third is warm-up. The rest is cut into blocks of equal length, whose medians hide single peaks and saw-teeth that are
shorter than a block. Two questions are asked of it:

- does it grow? The Theil-Sen slope of the medians, times the time observed, must stay within what is noise for this kind of
  series; what is more is growth, unless a day of it would add less than `per_day` of the level.
- has it stepped up? The 90th percentile of the last third must not exceed that of the middle third by more than noise and what
  `per_day` allows in that time.
- does it grow between restarts? A restarted server closes every connection, leaked ones too: their number is a saw-tooth that
  the first two questions take for flat. So where a restart resets a series, its slope in the second half of each time between
  two restarts counts as well; in the first half pools fill again.
"""

import statistics
from collections.abc import Sequence
from itertools import pairwise

import msgspec

BLOCKS = 12
MIN_SAMPLES = 24
"""With fewer a run says nothing."""
MIN_HALF_SAMPLES = 4
MIN_RISES = 3
DAY_SECONDS = 86_400.0

Sample = tuple[float, float]
"""Seconds, value."""


class Tolerance(msgspec.Struct, frozen=True):
    """What is noise in a series of one kind, over the time observed."""

    floor: float
    """In its own unit."""
    share: float
    """Of its level."""
    per_day: float = 0.25
    """Growth in a day, as a share of the level, that a run of any length accepts."""
    is_reset_by_restarts: bool = False


class SeriesVerdict(msgspec.Struct, frozen=True, kw_only=True):
    first: float
    median: float
    """After warm-up."""
    last: float
    slope_per_hour: float
    growth_per_day: float
    """The slope, projected, as a share of the level."""
    flat: bool
    reason: str = ""


def judge(samples: Sequence[Sample], tolerance: Tolerance, restarts: Sequence[float] = ()) -> SeriesVerdict:
    """The verdict about one series, sorted by time, as are the times of restarts."""
    if len(samples) < MIN_SAMPLES:
        raise ValueError(f"{len(samples)} samples are too few to judge: {MIN_SAMPLES} are needed")
    begin, end = samples[0][0], samples[-1][0]
    third = (end - begin) / 3
    steady = [sample for sample in samples if sample[0] >= begin + third]
    level = statistics.median(value for _, value in steady)
    slope = find_slope(take_medians(steady, BLOCKS))
    noise = tolerance.floor + tolerance.share * level
    growth_per_day = slope * DAY_SECONDS / max(level, tolerance.floor)
    middle = find_high([value for at, value in steady if at < end - third])
    last = find_high([value for at, value in steady if at >= end - third])
    reason = ""
    if slope * (end - steady[0][0]) > noise and growth_per_day > tolerance.per_day:
        reason = f"grows by {slope * 3_600:.4g} an hour"
    elif last - middle > noise + tolerance.per_day * level * third / DAY_SECONDS:
        reason = f"stepped from {middle:.4g} to {last:.4g}"
    elif tolerance.is_reset_by_restarts and (rise := find_rise(steady, restarts)) > noise:
        reason = f"grows by {rise:.4g} between two restarts"
    return SeriesVerdict(
        first=samples[0][1],
        median=level,
        last=samples[-1][1],
        slope_per_hour=slope * 3_600,
        growth_per_day=growth_per_day,
        flat=not reason,
        reason=reason,
    )


def take_medians(samples: Sequence[Sample], blocks: int) -> list[Sample]:
    """The medians of times and values of blocks of equal length. Empty blocks are left out."""
    begin, end = samples[0][0], samples[-1][0]
    found: list[list[Sample]] = [[] for _ in range(blocks)]
    for at, value in samples:
        found[min(blocks - 1, int((at - begin) / (end - begin) * blocks))].append((at, value))
    return [
        (statistics.median(at for at, _ in block), statistics.median(value for _, value in block))
        for block in found
        if block
    ]


def find_slope(samples: Sequence[Sample]) -> float:
    """Theil-Sen: the median of the slopes of all pairs. A quarter of the samples may be anything."""
    return statistics.median(
        (later - earlier) / (end - begin)
        for number, (begin, earlier) in enumerate(samples)
        for end, later in samples[number + 1 :]
    )


def find_rise(samples: Sequence[Sample], restarts: Sequence[float]) -> float:
    """The median growth from one restart to the next, by the slope in the second half of that time."""
    rises = []
    for begin, end in pairwise((*restarts, samples[-1][0])):
        half = [sample for sample in samples if (begin + end) / 2 <= sample[0] < end]
        if begin >= samples[0][0] and len(half) >= MIN_HALF_SAMPLES:
            rises.append(find_slope(half) * (end - begin))
    return statistics.median(rises) if len(rises) >= MIN_RISES else 0.0


def find_high(values: Sequence[float]) -> float:
    """The 90th percentile: the top of a saw-tooth, and no single peak."""
    return sorted(values)[int(0.9 * (len(values) - 1))]
