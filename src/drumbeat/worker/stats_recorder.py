"""Count how runs ended, how long they waited and took, by queue and task, and write the counts to the store.

    reporter --count--> StatsRecorder: cells of the current interval --flush--> entries --every 10 s--> StatsWriter --> store

A run counts in the interval in which it finished, so that other instances can count it from history if we die before we have
written it (`store/lost_counts.py`). Counting is on the path of every job: no allocation, no call to a clock, about 0.4 µs.
Writing is a service of its own; what could not be written is kept, and written later. Each row is the whole of its interval, so
that writing it twice is harmless (`store.protocol.StatsStore`).
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from operator import itemgetter

from drumbeat.clock import Clock
from drumbeat.core import stats
from drumbeat.core.claim import ClaimedJob, Outcome
from drumbeat.core.job import OutcomeKind
from drumbeat.core.stats import Resolution, Rollup
from drumbeat.errors import StoreError, StoreUnavailable
from drumbeat.ids import InstanceId
from drumbeat.service import OutageBackoff
from drumbeat.store.lost_counts import MAX_REPORT_DELAY_US, RollupKey
from drumbeat.store.protocol import StatsStore

log = logging.getLogger(__name__)

INTERVAL_US = int(Resolution.TEN_SECONDS)
MAX_SPREAD_SECONDS = 1.0
"""Each instance writes after a random delay of up to this long from the end of an interval."""
LEAVE_TIMEOUT = 2.0
RETRY_DELAY = 2.0
MAX_ROWS = 500
"""In one call."""
UNWRITTEN_RETENTION_US = 86_400_000_000
"""Counts that could not be written for this long are dropped."""
MAX_ENTRIES = 20_000
"""Entries of about a kilobyte that are kept while the store accepts none: it may be full for days."""
OPEN_GRACE_US = 60_000_000
"""How far the clock may step back and still find the entries of its interval."""

# A cell begins with the number of runs by how they ended.
SUCCEEDED = 0
_RETRIED, _DIED, _CANCELLED, _CRASHED, _CRASHED_AND_DIED, _OTHERWISE = range(1, 7)
_KINDS = {
    OutcomeKind.SUCCEEDED: SUCCEEDED,
    OutcomeKind.RETRY: _RETRIED,
    OutcomeKind.DEAD: _DIED,
    OutcomeKind.CANCELLED: _CANCELLED,
    OutcomeKind.CRASHED: _CRASHED,
}
# Then sums and histograms, with a bucket for every possible bit length, so that no bound is checked for each job.
_WAIT_US, _RUN_US = 7, 8
_SPACE = 64
_WAIT = 9
_RUN = _WAIT + _SPACE
_CELL = _RUN + _SPACE


class StatsEntry:
    """The counts of one row, and what the store has of them."""

    __slots__ = ("counts", "written")

    def __init__(self) -> None:
        self.counts: list[int] = [0] * stats.COUNTS_LENGTH
        self.written: list[int] | None = None


class StatsRecorder:
    """Counts runs. Does no I/O; `now` is the store's clock."""

    def __init__(self, now: Callable[[], int]) -> None:
        self.now = now
        self._at = self._until = 0
        self._now_us = 0
        self._cells: dict[str, dict[str, list[int]]] = {}
        self._entries: dict[RollupKey, StatsEntry] = {}

    def begin(self) -> None:
        """Call before a series of `count`: starts a new interval if it is time."""
        now = self._now_us = self.now()
        if not self._at <= now < self._until:
            self._open_interval(now)

    def _open_interval(self, finished_at: int) -> None:
        """Count in the interval of this time; if it is long over or in the future, in the current one."""
        if not self._now_us - MAX_REPORT_DELAY_US < finished_at < self._now_us + INTERVAL_US:
            finished_at = self._now_us
        at = finished_at // INTERVAL_US * INTERVAL_US
        if at != self._at:
            self.flush_cells()
            self._at, self._until = at, at + INTERVAL_US

    def count(self, job: ClaimedJob, outcome: Outcome, counter: int) -> None:
        """The store has accepted this outcome; `counter`: see `to_counter`."""
        started, finished = outcome.started_at, outcome.finished_at
        if finished is not None and not self._at <= finished < self._until:
            self._open_interval(finished)
        try:
            cell = self._cells[job.queue][job.task]
        except KeyError:
            cell = self._cells.setdefault(job.queue, {})[job.task] = [0] * _CELL
        cell[counter] += 1
        if started is None or finished is None:
            return
        waited, took = started - job.run_at, finished - started
        # As `core.stats.bucket`. A clock that stepped back makes no duration negative.
        if waited > 1_000:
            cell[_WAIT_US] += waited
            cell[_WAIT + ((waited - 1) // 1_000).bit_length()] += 1
        else:
            cell[_WAIT] += 1
            if waited > 0:
                cell[_WAIT_US] += waited
        if took > 1_000:
            cell[_RUN_US] += took
            cell[_RUN + ((took - 1) // 1_000).bit_length()] += 1
        else:
            cell[_RUN] += 1
            if took > 0:
                cell[_RUN_US] += took

    def flush_cells(self) -> None:
        """Add the cells to the entries."""
        cells, self._cells = self._cells, {}
        intervals = [(each, stats.interval_of(each, self._at)) for each in stats.INTERVALS]
        for queue, tasks in cells.items():
            for task, cell in tasks.items():
                counts = _counts(cell)
                self._add((Resolution.TOTAL, 0, queue, task), counts)
                for resolution, at in intervals:
                    self._add((resolution, at, queue, task), counts)
                    self._add((resolution, at, stats.OVERALL, stats.OVERALL), counts)

    def _add(self, key: RollupKey, counts: list[int]) -> None:
        entry = self._entries.setdefault(key, StatsEntry())
        entry.counts = stats.add_counts(entry.counts, counts)

    def unwritten(self) -> list[Rollup]:
        """The rows that the store does not have in their present form."""
        return [
            stats.from_counts(*key, entry.counts)
            for key, entry in self._entries.items()
            if entry.counts != entry.written
        ]

    def mark_written(self, rollups: Iterable[Rollup]) -> None:
        """The store has these."""
        for each in rollups:
            if (entry := self._entries.get((each.resolution, each.at, each.queue, each.task))) is not None:
                entry.written = stats.to_counts(each)

    def prune(self) -> None:
        """Drop entries of intervals that are over and written, and of those that are too old to be read."""
        now = self.now()
        for key, entry in list(self._entries.items()):
            resolution, at, _, _ = key
            retention = (
                stats.TEN_SECONDS_RETENTION_US if resolution is Resolution.TEN_SECONDS else UNWRITTEN_RETENTION_US
            )
            age = now - at - resolution
            if resolution is not Resolution.TOTAL and (
                age > retention or (age > OPEN_GRACE_US and entry.counts == entry.written)
            ):
                del self._entries[key]
        if len(self._entries) > MAX_ENTRIES:
            keys = sorted((key for key in self._entries if key[0] is not Resolution.TOTAL), key=itemgetter(1))
            for key in keys[: len(self._entries) - MAX_ENTRIES]:
                del self._entries[key]

    def rebase(self) -> None:
        """The instance id has changed: subtract what is written under the old one."""
        for key, entry in list(self._entries.items()):
            if entry.written is not None:
                entry.counts = [count - before for count, before in zip(entry.counts, entry.written, strict=True)]
                entry.written = None
            if not any(entry.counts):
                del self._entries[key]


class StatsWriter:
    """Writes the entries to the store shortly after the end of each interval."""

    name = "stats writer"

    def __init__(
        self,
        recorder: StatsRecorder,
        stats: StatsStore,
        clock: Clock,
        *,
        identity: Callable[[], InstanceId],
        backoff: OutageBackoff,
        spread: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._recorder = recorder
        self._stats = stats
        self._clock = clock
        self._identity = identity
        self._backoff = backoff
        self._instance = InstanceId("")
        self._lag = spread(0.1, MAX_SPREAD_SECONDS)
        # Serialises writes: an older row must not replace a newer one.
        self._write_lock = asyncio.Lock()
        self._is_refused = False

    async def run(self) -> None:
        while True:
            left_us = INTERVAL_US - self._recorder.now() % INTERVAL_US
            delay = left_us / 1e6 + self._lag
            await self._clock.sleep(min(delay, RETRY_DELAY) if self._backoff.is_active else delay)
            await self.write()

    async def finish(self) -> None:
        """Write what is left before this instance leaves, within LEAVE_TIMEOUT."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_TIMEOUT):
                await self.write()

    async def write(self) -> None:
        """Write everything that the store does not have; what it does not accept is kept."""
        async with self._write_lock:
            self._recorder.begin()
            self._recorder.flush_cells()
            if self._instance != (identity := self._identity()):
                self._recorder.rebase()
                self._instance = identity
            try:
                await self._write(self._recorder.unwritten())
            except StoreUnavailable as error:
                self._backoff.record_failure(error)
            except StoreError as error:
                if not self._is_refused:
                    log.warning("the store does not accept counts: they are kept", extra={"reason": str(error)})
                self._is_refused = True
            else:
                self._is_refused = False
                self._backoff.reset()
            self._recorder.prune()

    async def _write(self, rollups: list[Rollup]) -> None:
        for first in range(0, len(rollups), MAX_ROWS):
            part = rollups[first : first + MAX_ROWS]
            if not await self._stats.put(self._instance, part):
                return  # this instance was declared dead: the heartbeat brings a new id
            self._recorder.mark_written(part)


def to_counter(kind: OutcomeKind, dead: bool) -> int:
    """The counter for an outcome; `dead`: the job is a dead letter now."""
    return _CRASHED_AND_DIED if dead and kind is OutcomeKind.CRASHED else _KINDS.get(kind, _OTHERWISE)


def _counts(cell: list[int]) -> list[int]:
    """A cell in the order of `core.stats.to_counts`."""
    wait, run = _histogram(cell[_WAIT:_RUN]), _histogram(cell[_RUN:])
    return [
        sum(wait),
        cell[SUCCEEDED],
        cell[_RETRIED] + cell[_DIED],
        cell[_DIED] + cell[_CRASHED_AND_DIED],
        cell[_CANCELLED],
        cell[_CRASHED] + cell[_CRASHED_AND_DIED],
        cell[_WAIT_US],
        cell[_RUN_US],
        *wait,
        *run,
    ]


def _histogram(numbers: list[int]) -> list[int]:
    return [*numbers[: stats.BUCKETS - 1], sum(numbers[stats.BUCKETS - 1 :])]
