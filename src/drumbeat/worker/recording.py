"""What this worker counts: how runs ended, how long they waited and took, for each queue and task; and how the store gets it.

    reporter --each verdict--> Recorder (cells of the stretch under way) --harvest--> books --every 10 s--> Recording --> store

A run counts in the stretch in which it finished, so that others can count it from history if we die before we have written
(`store/tally.py`). Counting is on the way of every job: no allocation, no call to a clock, about 0.4 µs. Writing is in nobody's
way: it is a service of its own, and what could not be written is kept, and written later. Each row is the whole of its stretch,
so that writing it twice is harmless (`store.protocol.Stats`).
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from operator import itemgetter

from drumbeat.clock import Clock
from drumbeat.errors import StoreError, StoreUnavailable
from drumbeat.ids import InstanceId
from drumbeat.model.job import Claimed, Outcome, OutcomeKind
from drumbeat.model.stats import BUCKETS, OVERALL, TENS_KEPT_US, WIDTH, Grain, Rollup, added, counts_of, rollup_of
from drumbeat.service import Patience
from drumbeat.store.protocol import Stats
from drumbeat.store.tally import LATE_US, Place

log = logging.getLogger(__name__)

STRETCH_US = int(Grain.TEN_SECONDS)
SPREAD_S = 1.0
"""Instances write within so long after the end of a stretch, each at its own moment."""
LEAVE_WITHIN_S = 2.0
AGAIN_S = 2.0
"""So soon what could not be written is tried again."""
AT_ONCE = 500
"""Rows in one call."""
MINUTES_KEPT_US = 86_400_000_000
"""What could not be written for so long is given up."""
MOST_BOOKS = 20_000
"""So many, of about a kilobyte each, are kept for a store that takes none: one that is full may be so for days."""
OPEN_US = 60_000_000
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


class Book:
    """The numbers of one place, and what the store has of them."""

    __slots__ = ("counts", "written")

    def __init__(self) -> None:
        self.counts: list[int] = [0] * WIDTH
        self.written: list[int] | None = None


class Recorder:
    """Counts. Talks to nobody; `now` is the store's clock."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._at = self._until = 0
        self._told_at = 0
        self._cells: dict[str, dict[str, list[int]]] = {}
        self._books: dict[Place, Book] = {}

    def begin(self) -> None:
        """Before the verdicts of a call: open a new stretch if its moment has come."""
        now = self._told_at = self._now()
        if not self._at <= now < self._until:
            self._turn_to(now)

    def _turn_to(self, moment: int) -> None:
        """Count in the stretch of this moment; of one that is long over, or far off, in that of now."""
        if not self._told_at - LATE_US < moment < self._told_at + STRETCH_US:
            moment = self._told_at
        at = moment // STRETCH_US * STRETCH_US
        if at != self._at:
            self.harvest()
            self._at, self._until = at, at + STRETCH_US

    def count(self, job: Claimed, outcome: Outcome, how: int) -> None:
        """A claim has ended in this way, and the store knows."""
        began, ended = outcome.started_at, outcome.finished_at
        if ended is not None and not self._at <= ended < self._until:
            self._turn_to(ended)
        try:
            cell = self._cells[job.queue][job.task]
        except KeyError:
            cell = self._cells.setdefault(job.queue, {})[job.task] = [0] * _CELL
        cell[how] += 1
        if began is None or ended is None:
            return
        waited, took = began - job.run_at, ended - began
        # As `model.stats.bucket`. Clocks that step back make no length negative.
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

    def harvest(self) -> None:
        """Enter what was counted into the books."""
        cells, self._cells = self._cells, {}
        minute = self._at // Grain.MINUTE * Grain.MINUTE
        for queue, tasks in cells.items():
            for task, cell in tasks.items():
                counts = _counts(cell)
                self._enter((Grain.TOTAL, 0, queue, task), counts)
                for grain, at in ((Grain.TEN_SECONDS, self._at), (Grain.MINUTE, minute)):
                    self._enter((grain, at, queue, task), counts)
                    self._enter((grain, at, OVERALL, OVERALL), counts)

    def _enter(self, place: Place, counts: list[int]) -> None:
        book = self._books.setdefault(place, Book())
        book.counts = added(book.counts, counts)

    def unwritten(self) -> list[Rollup]:
        """What the store does not have, as it is now."""
        return [rollup_of(*place, book.counts) for place, book in self._books.items() if book.counts != book.written]

    def written(self, rollups: Iterable[Rollup]) -> None:
        """The store has these."""
        for each in rollups:
            if (book := self._books.get((each.grain, each.at, each.queue, each.task))) is not None:
                book.written = counts_of(each)

    def forget(self) -> None:
        """Close the books of stretches that are over and written, and of those that nobody would look for any more."""
        now = self._now()
        for place, book in list(self._books.items()):
            grain, at, _, _ = place
            kept = TENS_KEPT_US if grain is Grain.TEN_SECONDS else MINUTES_KEPT_US
            age = now - at - grain
            if grain is not Grain.TOTAL and (age > kept or (age > OPEN_US and book.counts == book.written)):
                del self._books[place]
        if len(self._books) > MOST_BOOKS:
            stretches = sorted((place for place in self._books if place[0] is not Grain.TOTAL), key=itemgetter(1))
            for place in stretches[: len(self._books) - MOST_BOOKS]:
                del self._books[place]

    def begin_anew(self) -> None:
        """This instance has another name now: what is written stays under the old one, and counts no more under the new."""
        for place, book in list(self._books.items()):
            if book.written is not None:
                book.counts = [count - before for count, before in zip(book.counts, book.written, strict=True)]
                book.written = None
            if not any(book.counts):
                del self._books[place]


class Recording:
    """Brings the books to the store, a moment after each stretch has ended."""

    name = "recording"

    def __init__(
        self,
        recorder: Recorder,
        stats: Stats,
        clock: Clock,
        *,
        now: Callable[[], int],
        identity: Callable[[], InstanceId],
        patience: Patience,
        spread: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._recorder = recorder
        self._stats = stats
        self._clock = clock
        self._now = now
        self._identity = identity
        self._patience = patience
        self._name = InstanceId("")
        self._lag = spread(0.1, SPREAD_S)
        # An earlier call must not overtake a later one: its rows would replace newer ones.
        self._turn = asyncio.Lock()
        self._is_refused = False

    async def run(self) -> None:
        while True:
            left_us = STRETCH_US - self._now() % STRETCH_US
            pause = left_us / 1e6 + self._lag
            await self._clock.sleep(min(pause, AGAIN_S) if self._patience.is_out else pause)
            await self.write()

    async def finish(self) -> None:
        """Write what is left, before this instance leaves; not for long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_WITHIN_S):
                await self.write()

    async def write(self) -> None:
        """Write everything that the store does not have; what it does not take is kept."""
        async with self._turn:
            self._recorder.begin()
            self._recorder.harvest()
            if self._name != (identity := self._identity()):
                self._recorder.begin_anew()
                self._name = identity
            try:
                await self._write(self._recorder.unwritten())
            except StoreUnavailable as error:
                self._patience.failed(error)
            except StoreError as error:
                if not self._is_refused:
                    log.warning("the store does not take counts: they are kept", extra={"reason": str(error)})
                self._is_refused = True
            else:
                self._is_refused = False
                self._patience.over()
            self._recorder.forget()

    async def _write(self, rollups: list[Rollup]) -> None:
        for first in range(0, len(rollups), AT_ONCE):
            part = rollups[first : first + AT_ONCE]
            if not await self._stats.put(self._name, part):
                return  # others have declared us dead: the heart will bring another name
            self._recorder.written(part)


def counted_as(kind: OutcomeKind, dead: bool) -> int:
    """How a run ended, for `Recorder.count`; `dead`: the job is a dead letter now."""
    return _CRASHED_AND_DIED if dead and kind is OutcomeKind.CRASHED else _KINDS.get(kind, _OTHERWISE)


def _counts(cell: list[int]) -> list[int]:
    """A cell's numbers in the order of `model.stats.counts_of`."""
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
