"""What this worker counts: how runs ended, how long they waited and took, for each queue and task; and how the store gets it.

    reporter --each verdict--> Recorder (cells of the stretch under way) --harvest--> books --every 10 s--> Recording --> store

A run counts in the stretch in which it finished, so that others can count it from history if we die before we have written
(`store/lost_counts.py`). Counting is on the way of every job: no allocation, no call to a clock, about 0.4 µs. Writing is in
nobody's way: it is a service of its own, and what could not be written is kept, and written later. Each row is the whole of
its stretch, so that writing it twice is harmless (`store.protocol.Stats`).
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from operator import itemgetter

from drumbeat.clock import Clock
from drumbeat.core.claim import ClaimedJob, Outcome
from drumbeat.core.job import OutcomeKind
from drumbeat.core.stats import (
    BUCKETS,
    COUNTS_LENGTH,
    OVERALL,
    TEN_SECONDS_RETENTION_US,
    Resolution,
    Rollup,
    add_counts,
    from_counts,
    to_counts,
)
from drumbeat.errors import StoreError, StoreUnavailable
from drumbeat.ids import InstanceId
from drumbeat.service import OutageBackoff
from drumbeat.store.lost_counts import MAX_REPORT_DELAY_US, RollupKey
from drumbeat.store.protocol import StatsStore

log = logging.getLogger(__name__)

INTERVAL_US = int(Resolution.TEN_SECONDS)
MAX_SPREAD_SECONDS = 1.0
"""Instances write within so long after the end of a stretch, each at its own moment."""
LEAVE_TIMEOUT = 2.0
RETRY_DELAY = 2.0
"""So soon what could not be written is tried again."""
MAX_ROWS = 500
"""Rows in one call."""
MINUTE_RETENTION_US = 86_400_000_000
"""What could not be written for so long is given up."""
MAX_ENTRIES = 20_000
"""So many, of about a kilobyte each, are kept for a store that takes none: one that is full may be so for days."""
OPEN_GRACE_US = 60_000_000
"""A clock that steps back so little finds the books of its stretch still open."""

# How a run ended: the first numbers of a cell.
SUCCEEDED = 0
_RETRIED, _DIED, _CANCELLED, _CRASHED, _CRASHED_AND_DIED, _OTHERWISE = range(1, 7)
_KINDS = {
    OutcomeKind.SUCCEEDED: SUCCEEDED,
    OutcomeKind.RETRY: _RETRIED,
    OutcomeKind.DEAD: _DIED,
    OutcomeKind.CANCELLED: _CANCELLED,
    OutcomeKind.CRASHED: _CRASHED,
}
# Then sums and histograms, of as many buckets as the bits of any length may need: no bound is checked for each job.
_WAIT_US, _RUN_US = 7, 8
_SPACE = 64
_WAIT = 9
_RUN = _WAIT + _SPACE
_CELL = _RUN + _SPACE


class StatsEntry:
    """The numbers of one place, and what the store has of them."""

    __slots__ = ("counts", "written")

    def __init__(self) -> None:
        self.counts: list[int] = [0] * COUNTS_LENGTH
        self.written: list[int] | None = None


class StatsRecorder:
    """Counts. Talks to nobody; `now` is the store's clock."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._at = self._until = 0
        self._now_us = 0
        self._cells: dict[str, dict[str, list[int]]] = {}
        self._entries: dict[RollupKey, StatsEntry] = {}

    def begin(self) -> None:
        """Before the verdicts of a call: open a new stretch if its moment has come."""
        now = self._now_us = self._now()
        if not self._at <= now < self._until:
            self._open_interval(now)

    def _open_interval(self, moment: int) -> None:
        """Count in the stretch of this moment; of one that is long over, or far off, in that of now."""
        if not self._now_us - MAX_REPORT_DELAY_US < moment < self._now_us + INTERVAL_US:
            moment = self._now_us
        at = moment // INTERVAL_US * INTERVAL_US
        if at != self._at:
            self.flush_cells()
            self._at, self._until = at, at + INTERVAL_US

    def count(self, job: ClaimedJob, outcome: Outcome, how: int) -> None:
        """A claim has ended in this way, and the store knows."""
        began, ended = outcome.started_at, outcome.finished_at
        if ended is not None and not self._at <= ended < self._until:
            self._open_interval(ended)
        try:
            cell = self._cells[job.queue][job.task]
        except KeyError:
            cell = self._cells.setdefault(job.queue, {})[job.task] = [0] * _CELL
        cell[how] += 1
        if began is None or ended is None:
            return
        waited, took = began - job.run_at, ended - began
        # As `core.stats.bucket`. Clocks that step back make no length negative.
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
        """Enter what was counted into the books."""
        cells, self._cells = self._cells, {}
        minute = self._at // Resolution.MINUTE * Resolution.MINUTE
        for queue, tasks in cells.items():
            for task, cell in tasks.items():
                counts = _counts(cell)
                self._add((Resolution.TOTAL, 0, queue, task), counts)
                for resolution, at in ((Resolution.TEN_SECONDS, self._at), (Resolution.MINUTE, minute)):
                    self._add((resolution, at, queue, task), counts)
                    self._add((resolution, at, OVERALL, OVERALL), counts)

    def _add(self, place: RollupKey, counts: list[int]) -> None:
        book = self._entries.setdefault(place, StatsEntry())
        book.counts = add_counts(book.counts, counts)

    def unwritten(self) -> list[Rollup]:
        """What the store does not have, as it is now."""
        return [
            from_counts(*place, book.counts) for place, book in self._entries.items() if book.counts != book.written
        ]

    def mark_written(self, rollups: Iterable[Rollup]) -> None:
        """The store has these."""
        for each in rollups:
            if (book := self._entries.get((each.resolution, each.at, each.queue, each.task))) is not None:
                book.written = to_counts(each)

    def prune(self) -> None:
        """Close the books of stretches that are over and written, and of those that nobody would look for any more."""
        now = self._now()
        for place, book in list(self._entries.items()):
            resolution, at, _, _ = place
            kept = TEN_SECONDS_RETENTION_US if resolution is Resolution.TEN_SECONDS else MINUTE_RETENTION_US
            age = now - at - resolution
            if resolution is not Resolution.TOTAL and (
                age > kept or (age > OPEN_GRACE_US and book.counts == book.written)
            ):
                del self._entries[place]
        if len(self._entries) > MAX_ENTRIES:
            stretches = sorted(
                (place for place in self._entries if place[0] is not Resolution.TOTAL), key=itemgetter(1)
            )
            for place in stretches[: len(self._entries) - MAX_ENTRIES]:
                del self._entries[place]

    def rebase(self) -> None:
        """This instance has another name now: what is written stays under the old one, and counts no more under the new."""
        for place, book in list(self._entries.items()):
            if book.written is not None:
                book.counts = [count - before for count, before in zip(book.counts, book.written, strict=True)]
                book.written = None
            if not any(book.counts):
                del self._entries[place]


class StatsWriter:
    """Brings the books to the store, a moment after each stretch has ended."""

    name = "recording"

    def __init__(
        self,
        recorder: StatsRecorder,
        stats: StatsStore,
        clock: Clock,
        *,
        now: Callable[[], int],
        identity: Callable[[], InstanceId],
        backoff: OutageBackoff,
        spread: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._recorder = recorder
        self._stats = stats
        self._clock = clock
        self._now = now
        self._identity = identity
        self._backoff = backoff
        self._instance = InstanceId("")
        self._lag = spread(0.1, MAX_SPREAD_SECONDS)
        # An earlier call must not overtake a later one: its rows would replace newer ones.
        self._write_lock = asyncio.Lock()
        self._is_refused = False

    async def run(self) -> None:
        while True:
            left_us = INTERVAL_US - self._now() % INTERVAL_US
            pause = left_us / 1e6 + self._lag
            await self._clock.sleep(min(pause, RETRY_DELAY) if self._backoff.is_active else pause)
            await self.write()

    async def finish(self) -> None:
        """Write what is left, before this instance leaves; not for long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_TIMEOUT):
                await self.write()

    async def write(self) -> None:
        """Write everything that the store does not have; what it does not take is kept."""
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
                    log.warning("the store does not take counts: they are kept", extra={"reason": str(error)})
                self._is_refused = True
            else:
                self._is_refused = False
                self._backoff.reset()
            self._recorder.prune()

    async def _write(self, rollups: list[Rollup]) -> None:
        for first in range(0, len(rollups), MAX_ROWS):
            part = rollups[first : first + MAX_ROWS]
            if not await self._stats.put(self._instance, part):
                return  # others have declared us dead: the heart will bring another name
            self._recorder.mark_written(part)


def to_counter(kind: OutcomeKind, dead: bool) -> int:
    """How a run ended, for `Recorder.count`; `dead`: the job is a dead letter now."""
    return _CRASHED_AND_DIED if dead and kind is OutcomeKind.CRASHED else _KINDS.get(kind, _OTHERWISE)


def _counts(cell: list[int]) -> list[int]:
    """A cell's numbers in the order of `core.stats.counts_of`."""
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
    return [*numbers[: BUCKETS - 1], sum(numbers[BUCKETS - 1 :])]
