"""Statistics: how many runs began, how they ended, how long they waited and took.

A roll-up holds the counts of one interval, queue and task. Workers count (`worker/stats_recorder.py`); a store keeps the
numbers of a roll-up as one list (`to_counts`), which every engine merges by addition. Values and pure rules.
"""

import operator
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Annotated, NamedTuple

import msgspec

from drumbeat.core.field_doc import doc


class Resolution(IntEnum):
    """The length of an interval, in microseconds."""

    TOTAL = 0  # since the instance began
    TEN_SECONDS = 10_000_000
    MINUTE = 60_000_000
    HOUR = 3_600_000_000


BOUNDS_US: tuple[int, ...] = tuple(1_000 * 2**k for k in range(27))
"""Inclusive upper bounds of the histograms: 1 ms, 2 ms ... 18.6 h. One more bucket holds what is longer."""
BUCKETS = len(BOUNDS_US) + 1

TEN_SECONDS_RETENTION_US = 2 * 3_600_000_000
"""How long intervals of 10 s are kept; those of a minute are kept as long as history."""
HOUR_RETENTION_US = 15 * 86_400_000_000
"""How long intervals of an hour are kept: two weeks can be compared, whatever the retention of history."""
INTERVALS = (Resolution.TEN_SECONDS, Resolution.MINUTE, Resolution.HOUR)
"""The resolutions in which workers count; each run is counted in all of them and in TOTAL."""

OVERALL = ""
"""The queue and task of the roll-up over all queues and tasks."""

_EMPTY = (0,) * BUCKETS
_COUNT_FIELDS = ("started", "succeeded", "failed", "dead", "cancelled", "crashed", "wait_us", "run_us")
WAIT_OFFSET = len(_COUNT_FIELDS)
RUN_OFFSET = WAIT_OFFSET + BUCKETS
COUNTS_LENGTH = RUN_OFFSET + BUCKETS
"""How many numbers a roll-up has: those of `_COUNT_FIELDS`, then both histograms."""


class Rollup(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of one interval, queue and task. A run is counted when the store has its outcome."""

    resolution: Resolution
    at: Annotated[int, doc("Beginning of the interval (µs, store's clock), a multiple of the resolution; 0: TOTAL.")]
    queue: str
    task: str
    started: Annotated[int, doc("Runs that had begun, however they ended.")] = 0
    succeeded: int = 0
    failed: Annotated[int, doc("Runs that were charged to the job's failures, whether it is retried or dead.")] = 0
    dead: Annotated[int, doc("Jobs that became dead letters.")] = 0
    cancelled: int = 0
    crashed: Annotated[int, doc("Runs whose child process died, where its worker survived to report it.")] = 0
    wait: Annotated[tuple[int, ...], doc("Histogram of times from due to start by BOUNDS_US; not cumulative.")] = _EMPTY
    wait_us: int = 0
    run: Annotated[tuple[int, ...], doc("Histogram of the time from start to finish.")] = _EMPTY
    run_us: int = 0


CountsRow = tuple[int, str, str, Sequence[int]]
"""at, queue, task, counts."""


class RunEnd(NamedTuple):
    """The recorded end of a run."""

    queue: str
    task: str
    outcome: str
    """A `core.job.OutcomeKind`."""
    dead: bool
    """It made the job a dead letter."""
    due_at: int
    """When it was due (µs); for earlier runs of a job, when it was claimed, since only that is known."""
    started_at: int | None
    finished_at: int


class WrittenRollups(NamedTuple):
    """The stored roll-ups of one instance."""

    written_at: int | None
    """When it last wrote (µs by the store's clock); None: never."""
    rollups: list[Rollup]


def interval_of(resolution: Resolution, us: int) -> int:
    """When the interval of this time began."""
    return us // resolution * resolution


def bucket_index(us: int) -> int:
    """The histogram bucket of a duration."""
    return min(((us - 1) // 1_000).bit_length(), BUCKETS - 1) if us > 1_000 else 0


def to_counts(rollup: Rollup) -> list[int]:
    """All numbers of a roll-up, in the order in which stores keep them."""
    return [*(getattr(rollup, name) for name in _COUNT_FIELDS), *rollup.wait, *rollup.run]


def from_counts(resolution: Resolution, at: int, queue: str, task: str, counts: Sequence[int]) -> Rollup:
    """The inverse of `to_counts`."""
    # Written out for speed: charts read thousands of them.
    return Rollup(
        resolution=resolution,
        at=at,
        queue=queue,
        task=task,
        started=counts[0],
        succeeded=counts[1],
        failed=counts[2],
        dead=counts[3],
        cancelled=counts[4],
        crashed=counts[5],
        wait=tuple(counts[WAIT_OFFSET:RUN_OFFSET]),
        wait_us=counts[6],
        run=tuple(counts[RUN_OFFSET:COUNTS_LENGTH]),
        run_us=counts[7],
    )


def add_counts(one: Sequence[int], other: Sequence[int]) -> list[int]:
    return list(map(operator.add, one, other))


def merge_rows(resolution: Resolution, rows: Iterable[CountsRow]) -> list[Rollup]:
    """The sums over all instances: one roll-up for each interval, queue and task, in this order."""
    found: dict[tuple[int, str, str], Sequence[int]] = {}
    for at, queue, task, counts in rows:
        if len(counts) != COUNTS_LENGTH:  # not written by any version of Drumbeat
            continue
        place = (at, queue, task)
        before = found.get(place)
        found[place] = counts if before is None else add_counts(before, counts)
    return [from_counts(resolution, *place, found[place]) for place in sorted(found)]


def percentile(histogram: Sequence[int], share: float) -> float | None:
    """The duration (µs) that this share of runs (0.95: 95 %) did not exceed, interpolated in its bucket; None: no runs."""
    left = share * sum(histogram)
    if not left:
        return None
    low = 0
    for number, high in zip(histogram, (*BOUNDS_US, BOUNDS_US[-1]), strict=True):
        if number and left <= number:
            return low + (high - low) * left / number
        left -= number
        low = high
    return float(BOUNDS_US[-1])
