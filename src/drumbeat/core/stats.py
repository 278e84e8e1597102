"""What instances count: how many runs began and how they ended, how long they waited and how long they took.

A roll-up is what was counted in one stretch of time for one queue and task. Values and pure rules; who counts is
`worker/stats_recorder.py`. In a store the numbers of a roll-up are one list (`counts_of`), so that every engine merges alike: by
adding them up.
"""

import operator
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

import msgspec


class Resolution(IntEnum):
    """The length of a stretch, in microseconds."""

    TOTAL = 0  # since the instance began
    TEN_SECONDS = 10_000_000
    MINUTE = 60_000_000


BOUNDS_US: tuple[int, ...] = tuple(1_000 * 2**k for k in range(27))
"""Upper bounds of the histograms, the bound itself included: 1 ms, 2 ms ... 18.6 h. There is one more bucket beyond."""
BUCKETS = len(BOUNDS_US) + 1

TEN_SECONDS_RETENTION_US = 2 * 3_600_000_000
"""How long stretches of 10 s are kept. Those of a minute are kept as long as history is."""

OVERALL = ""
"""Stands for the queue and the task where all of them are counted together."""

_EMPTY = (0,) * BUCKETS
_COUNT_FIELDS = ("started", "succeeded", "failed", "dead", "cancelled", "crashed", "wait_us", "run_us")
WAIT_OFFSET = len(_COUNT_FIELDS)
RUN_OFFSET = WAIT_OFFSET + BUCKETS
COUNTS_LENGTH = RUN_OFFSET + BUCKETS
"""How many numbers a roll-up has: those of `_COUNTED`, then both histograms."""


class Rollup(msgspec.Struct, frozen=True, kw_only=True):
    """What was counted in one stretch for one queue and task. A run is counted when the store has its outcome."""

    resolution: Resolution
    at: int
    """The stretch's beginning (µs by the store's clock), a multiple of the resolution; 0 for TOTAL."""
    queue: str
    task: str
    started: int = 0
    """Runs that had begun, however they ended."""
    succeeded: int = 0
    failed: int = 0
    """Runs that were charged to the job's failures, whether it is tried again or is dead now."""
    dead: int = 0
    """Jobs that became dead letters."""
    cancelled: int = 0
    crashed: int = 0
    """Runs whose own process died under them, as far as a worker was left to tell."""
    wait: tuple[int, ...] = _EMPTY
    """How many runs began so long after they were due, by BOUNDS_US; each bucket by itself, not cumulative."""
    wait_us: int = 0
    run: tuple[int, ...] = _EMPTY
    """How many runs took so long, from start to finish."""
    run_us: int = 0


CountsRow = tuple[int, str, str, Sequence[int]]
"""at, queue, task, counts."""


class RunEnd(NamedTuple):
    """The end of a run, as it is on record."""

    queue: str
    task: str
    outcome: str
    """A `core.job.OutcomeKind`."""
    dead: bool
    """It made the job a dead letter."""
    due_at: int
    """When it was due (µs); of a run that was not its job's last, when it was claimed: nothing else is known."""
    started_at: int | None
    finished_at: int


class WrittenRollups(NamedTuple):
    """What the store has of one instance."""

    written_at: int | None
    """When it last wrote (µs by the store's clock); None: never."""
    rollups: list[Rollup]


def bucket_index(us: int) -> int:
    """The bucket of a length."""
    return min(((us - 1) // 1_000).bit_length(), BUCKETS - 1) if us > 1_000 else 0


def to_counts(rollup: Rollup) -> list[int]:
    """All numbers of a roll-up, in the order in which stores keep them."""
    return [*(getattr(rollup, name) for name in _COUNT_FIELDS), *rollup.wait, *rollup.run]


def from_counts(resolution: Resolution, at: int, queue: str, task: str, counts: Sequence[int]) -> Rollup:
    """The other way round."""
    # Written out: charts read thousands of them.
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
    """One roll-up for each stretch, queue and task, in this order: what all instances counted."""
    found: dict[tuple[int, str, str], Sequence[int]] = {}
    for at, queue, task, counts in rows:
        if len(counts) != COUNTS_LENGTH:  # no version of ours has written it
            continue
        place = (at, queue, task)
        before = found.get(place)
        found[place] = counts if before is None else add_counts(before, counts)
    return [from_counts(resolution, *place, found[place]) for place in sorted(found)]


def percentile(histogram: Sequence[int], share: float) -> float | None:
    """The length (µs) that this share of all (0.95: 95 %) did not exceed, guessed within its bucket; None: there were none."""
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
