"""Rates for the ticker, and its poll interval. Pure.

All rates are of the last 10 s interval that every worker has reported, which ended 10 to 20 s ago. The incoming rate of a queue
is its outgoing rate plus its growth between the polls at both ends of the interval. Unknown rates are None, never 0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import pairwise

import msgspec

from drumbeat.core.stats import Resolution, Rollup

TICK_INTERVAL = 0.5
STORE_TIME_DIVISOR = 200
"""At most this fraction (1/n) of the time is spent in the store."""
MAX_DELAY = 10.0
COST_SAMPLES = 5
"""Number of polls whose duration is remembered."""
INTERVAL_US = int(Resolution.TEN_SECONDS)


RETENTION_US = 4 * INTERVAL_US
"""How long samples are kept: the last complete interval began at most 30 s ago."""
MAX_GAP_US = INTERVAL_US + 1_000_000
"""Samples further apart say nothing about the time between them."""


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Runs per second in the last 10 s interval that all workers have reported; null: unknown."""

    started: float | None = None
    succeeded: float | None = None
    failed: float | None = None


class QueueSample(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one poll."""

    at: int
    """The store's clock, in microseconds."""
    live: dict[str, int]
    """Pending and running jobs by queue."""


class MeasuredRates(msgspec.Struct, frozen=True, kw_only=True):
    rates: Rates
    queues: dict[str, tuple[float | None, float | None]]
    """Incoming and outgoing jobs per second by queue; None: unknown."""


class RateTracker:
    def __init__(self) -> None:
        self._took: deque[float] = deque(maxlen=COST_SAMPLES)
        self._samples: deque[QueueSample] = deque()
        self._interval_end: int | None = None
        self._rates = Rates()
        self._completed_rates: dict[str, float] | None = None
        """By queue; None: unknown."""

    def next_delay(self, took: float) -> float:
        """The delay after a poll of this duration."""
        # The shortest of the last few is the cost of a poll. Longer ones were delayed by something else, such as a busy
        # machine, which is no reason to poll less.
        self._took.append(took)
        cost = min(self._took) if len(self._took) == COST_SAMPLES else 0.0  # the first ones open connections
        return min(MAX_DELAY, max(TICK_INTERVAL - took, cost * (STORE_TIME_DIVISOR - 1), 0.0))

    @staticmethod
    def complete_before(now_us: int) -> int:
        """The end of the last interval that every worker has reported: they report every 10 s."""
        return now_us // INTERVAL_US * INTERVAL_US - INTERVAL_US

    def needs_interval(self, now_us: int) -> bool:
        return self._interval_end != self.complete_before(now_us)

    def record_interval(self, now_us: int, rollups: Iterable[Rollup], *, working_since: int | None) -> None:
        """Use the counters of the last complete interval.

        working_since: when the first live worker started; None: there is none.
        """
        end = self._interval_end = self.complete_before(now_us)
        rows = list(rollups)
        if not rows and working_since is not None and working_since > end - INTERVAL_US:
            # No worker ran in that interval, but one does now: its rates are unknown.
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
        """The rates after this poll."""
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
        """The size of a queue at a time, interpolated between two samples; None: unknown."""
        for one, next in pairwise(self._samples):
            if one.at <= at <= next.at and next.at - one.at <= MAX_GAP_US:
                share = (at - one.at) / max(1, next.at - one.at)
                return one.live.get(name, 0) * (1 - share) + next.live.get(name, 0) * share
        return None
