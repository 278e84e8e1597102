"""How often the ticker may look, and how fast things move. Pure.

All speeds have one source and one window: what the workers have counted in the last stretch of 10 s that every one of them has
reported, which is 10 to 20 s ago. What comes into a queue is what left it in that stretch and what it has grown by between
the looks at its beginning and its end. What is not known is None, never 0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import pairwise

import msgspec

from drumbeat.core.stats import Resolution, Rollup

TICK_INTERVAL = 0.5
STORE_TIME_DIVISOR = 200
"""At most one part of so many is spent in the store."""
MAX_DELAY = 10.0
COST_SAMPLES = 5
"""So many looks are remembered for their length."""
INTERVAL_US = int(Resolution.TEN_SECONDS)


RETENTION_US = 4 * INTERVAL_US
"""Looks are kept for so long: the last complete stretch began at most 30 s ago."""
MAX_GAP_US = INTERVAL_US + 1_000_000
"""Between two looks further apart nobody knows how a queue went: nobody was watching."""


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Runs in a second, over the last stretch of 10 s that all workers have reported; null: not known yet."""

    started: float | None = None
    succeeded: float | None = None
    failed: float | None = None


class QueueSample(msgspec.Struct, frozen=True, kw_only=True):
    """What one look has found."""

    at: int
    """By the store's clock (µs), as roll-ups are."""
    live: dict[str, int]
    """Of each queue: its pending and running jobs."""


class MeasuredRates(msgspec.Struct, frozen=True, kw_only=True):
    rates: Rates
    queues: dict[str, tuple[float | None, float | None]]
    """Of each queue: jobs that come and that go, in a second; None: not known yet."""


class RateTracker:
    def __init__(self) -> None:
        self._took: deque[float] = deque(maxlen=COST_SAMPLES)
        self._samples: deque[QueueSample] = deque()
        self._interval_end: int | None = None
        self._rates = Rates()
        self._completed_rates: dict[str, float] | None = None
        """By queue; None: not known."""

    def next_delay(self, took: float) -> float:
        """How long to wait after a look that took so long."""
        # The shortest of the last few is what a look costs the store. A longer one was held up by something else, for
        # instance by a busy machine, and is no reason to leave people without news.
        self._took.append(took)
        cost = min(self._took) if len(self._took) == COST_SAMPLES else 0.0  # the first ones open connections
        return min(MAX_DELAY, max(TICK_INTERVAL - took, cost * (STORE_TIME_DIVISOR - 1), 0.0))

    @staticmethod
    def complete_before(now_us: int) -> int:
        """The end of the last stretch that every worker has reported: they do so every 10 s."""
        return now_us // INTERVAL_US * INTERVAL_US - INTERVAL_US

    def needs_interval(self, now_us: int) -> bool:
        return self._interval_end != self.complete_before(now_us)

    def record_interval(self, now_us: int, rollups: Iterable[Rollup], *, working_since: int | None) -> None:
        """Go by what was counted in the last complete stretch.

        working_since: when the first living worker began; None: there is none.
        """
        end = self._interval_end = self.complete_before(now_us)
        rows = list(rollups)
        if not rows and working_since is not None and working_since > end - INTERVAL_US:
            # Nobody worked in that stretch, and somebody does now: it says nothing about them.
            self._rates, self._completed_rates = Rates(), None
            return
        seconds = INTERVAL_US / 1_000_000
        self._rates = Rates(
            started=sum(row.started for row in rows) / seconds,
            succeeded=sum(row.succeeded for row in rows) / seconds,
            failed=sum(row.failed for row in rows) / seconds,
        )
        self._completed_rates = {}
        for row in rows:
            ended = (row.succeeded + row.dead + row.cancelled) / seconds
            self._completed_rates[row.queue] = self._completed_rates.get(row.queue, 0.0) + ended

    def measure(self, sample: QueueSample) -> MeasuredRates:
        """The speeds after this look."""
        while self._samples and sample.at - self._samples[0].at > RETENTION_US:
            self._samples.popleft()
        self._samples.append(sample)
        return MeasuredRates(rates=self._rates, queues={name: self._queue_rates(name) for name in sample.live})

    def _queue_rates(self, name: str) -> tuple[float | None, float | None]:
        if self._completed_rates is None or self._interval_end is None:
            return None, None
        gone = self._completed_rates.get(name, 0.0)
        before, after = self._live_at(name, self._interval_end - INTERVAL_US), self._live_at(name, self._interval_end)
        if before is None or after is None:
            return None, round(gone, 2)
        return round(max(0.0, gone + (after - before) * 1_000_000 / INTERVAL_US), 2), round(gone, 2)

    def _live_at(self, name: str, at: int) -> float | None:
        """How many jobs a queue had then, between the looks before and after; None: nobody looked."""
        for one, next in pairwise(self._samples):
            if one.at <= at <= next.at and next.at - one.at <= MAX_GAP_US:
                share = (at - one.at) / max(1, next.at - one.at)
                return one.live.get(name, 0) * (1 - share) + next.live.get(name, 0) * share
        return None
