"""How often the ticker may look, and what two looks say about speed. Pure.

Two sources: what lies in the store now, twice a second, and what the workers have counted, in stretches of 10 s, which are
complete 10 s after their end. Successes go by the first, so that they are seen at once; starts, failures and what leaves a
queue by the second; what comes into a queue is what left it and what it has grown by.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from drumbeat.model.stats import Grain, Rollup

OFTEN = 0.5
SHARE = 200
"""At most one part of so many is spent in the store."""
LONGEST_PAUSE = 10.0
REMEMBERED = 5
"""So many looks are remembered for their length."""
WINDOW = 5.0
"""Speeds are over so many seconds."""
STRETCH_US = int(Grain.TEN_SECONDS)


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Runs in a second."""

    started: float = 0.0
    succeeded: float = 0.0
    failed: float = 0.0


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """What one look has found."""

    at: float
    succeeded: int
    live: dict[str, int]
    """Of each queue: its pending and running jobs."""


class Moves(msgspec.Struct, frozen=True, kw_only=True):
    rates: Rates
    queues: dict[str, tuple[float, float]]
    """Of each queue: jobs that come and that go, in a second."""


class Pace:
    def __init__(self) -> None:
        self._took: deque[float] = deque(maxlen=REMEMBERED)
        self._samples: deque[Sample] = deque()
        self._stretch_at: int | None = None
        self._counted = Rates()
        self._left: dict[str, float] = {}

    def pause(self, took: float) -> float:
        """How long to wait after a look that took so long."""
        # The shortest of the last few is what a look costs the store. A longer one was held up by something else, for
        # instance by a busy machine, and is no reason to leave people without news.
        self._took.append(took)
        cost = min(self._took) if len(self._took) == REMEMBERED else 0.0  # the first ones open connections
        return min(LONGEST_PAUSE, max(OFTEN - took, cost * (SHARE - 1), 0.0))

    @staticmethod
    def complete_before(now_us: int) -> int:
        """The end of the last stretch that every worker has reported: they do so every 10 s."""
        return now_us // STRETCH_US * STRETCH_US - STRETCH_US

    def wants_stretch(self, now_us: int) -> bool:
        return self._stretch_at != self.complete_before(now_us)

    def take_stretch(self, now_us: int, rollups: Iterable[Rollup]) -> None:
        """Go by what was counted in the last complete stretch."""
        self._stretch_at = self.complete_before(now_us)
        seconds = STRETCH_US / 1_000_000
        rows = list(rollups)
        self._counted = Rates(
            started=sum(row.started for row in rows) / seconds,
            succeeded=sum(row.succeeded for row in rows) / seconds,
            failed=sum(row.failed for row in rows) / seconds,
        )
        self._left = {}
        for row in rows:
            ended = (row.succeeded + row.dead + row.cancelled) / seconds
            self._left[row.queue] = self._left.get(row.queue, 0.0) + ended

    def moves(self, sample: Sample) -> Moves:
        """The speeds after this look."""
        # After a pause without viewers the old looks say nothing about now.
        while self._samples and sample.at - self._samples[0].at > WINDOW:
            self._samples.popleft()
        first = self._samples[0] if self._samples else sample
        self._samples.append(sample)
        seconds = sample.at - first.at
        if seconds <= 0:
            return Moves(rates=self._counted, queues={name: (gone, gone) for name, gone in self._left.items()})
        # What is pruned meanwhile makes the number smaller: no success is taken back.
        succeeded = max(0.0, (sample.succeeded - first.succeeded) / seconds)
        queues = {}
        for name, live in sample.live.items():
            gone = self._left.get(name, 0.0)
            grown = (live - first.live.get(name, 0)) / seconds
            queues[name] = (round(max(0.0, gone + grown), 2), round(gone, 2))
        return Moves(rates=msgspec.structs.replace(self._counted, succeeded=round(succeeded, 2)), queues=queues)
