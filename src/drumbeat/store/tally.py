"""The counts of an instance that died: completed from what is on record, by whoever has buried it.

An instance writes what it has counted every 10 s (`worker/recording.py`); what it counted since then dies with it, but the ends
of its runs are in the store. A stretch of time is counted by the moment at which runs finished, so it can be counted again
from the record and compared with what was written: the difference is what is missing. To do so twice is harmless.

What is not kept (no retention, a full Redis) cannot be counted, and the wait of a run that was not its job's last is not on
record. No lost count is worth a failed burial: nothing here raises.
"""

import logging
from collections.abc import Iterable

from drumbeat.ids import InstanceId
from drumbeat.model.job import OutcomeKind
from drumbeat.model.stats import (
    BUCKETS,
    OVERALL,
    RUN_AT,
    WAIT_AT,
    WIDTH,
    Grain,
    Rollup,
    RunEnd,
    added,
    bucket,
    counts_of,
    rollup_of,
)
from drumbeat.store.protocol import Store

log = logging.getLogger(__name__)

LATE_US = 20_000_000
"""The end of a run that is told later than this counts in the stretch in which it was told."""
MAX_LOOK_BACK_US = 300_000_000

Place = tuple[Grain, int, str, str]
"""grain, at, queue, task."""

_STARTED, _SUCCEEDED, _FAILED, _DEAD, _CANCELLED, _CRASHED, _WAIT_US, _RUN_US = range(WAIT_AT)
_COUNTED_AS = {
    OutcomeKind.SUCCEEDED.value: _SUCCEEDED,
    OutcomeKind.RETRY.value: _FAILED,
    OutcomeKind.DEAD.value: _FAILED,
    OutcomeKind.CANCELLED.value: _CANCELLED,
    OutcomeKind.CRASHED.value: _CRASHED,
}


async def complete_counts(store: Store, instance: InstanceId) -> None:
    """Write what this instance, which has been buried, had counted and not yet written."""
    try:
        now = await store.inspect.now()
        first = (now - MAX_LOOK_BACK_US) // Grain.MINUTE * Grain.MINUTE
        written = await store.stats.written(instance, first)
        since = (
            first if written.at is None else max(first, (written.at - LATE_US) // Grain.TEN_SECONDS * Grain.TEN_SECONDS)
        )
        rollups = missing(written.rollups, await store.stats.run_ends(instance, since))
        if rollups:
            await store.stats.put(instance, rollups, buried=True)
    except Exception as error:  # a record that cannot be read, too: no count is worth a heart
        log.warning("the last counts of a dead instance are lost", extra={"instance": instance, "reason": str(error)})


def missing(written: Iterable[Rollup], ends: Iterable[RunEnd]) -> list[Rollup]:
    """The roll-ups of an instance that must be written anew, so that these ends are in them."""
    books = {(each.grain, each.at, each.queue, each.task): counts_of(each) for each in written}
    changed: set[Place] = set()
    for place, counts in _counted(ends).items():
        before = books.get(place, [0] * WIDTH)
        lost = [max(0, count - known) for count, known in zip(counts, before, strict=True)]
        _trim(lost, WAIT_AT)
        _trim(lost, RUN_AT)
        if not any(lost[:WAIT_AT]):
            continue
        _, at, queue, task = place
        minute = at // Grain.MINUTE * Grain.MINUTE
        for each in (
            (Grain.TOTAL, 0, queue, task),
            place,
            (Grain.TEN_SECONDS, at, OVERALL, OVERALL),
            (Grain.MINUTE, minute, queue, task),
            (Grain.MINUTE, minute, OVERALL, OVERALL),
        ):
            books[each] = added(books.get(each, [0] * WIDTH), lost)
            changed.add(each)
    return [rollup_of(*place, books[place]) for place in sorted(changed)]


def _trim(lost: list[int], histogram: int) -> None:
    """No more in a histogram than runs are missing: the wait of some is not on record, and they stand in its first bucket."""
    over = sum(lost[histogram : histogram + BUCKETS]) - lost[_STARTED]
    for place in range(histogram, histogram + BUCKETS):
        if over <= 0:
            return
        taken = min(over, lost[place])
        lost[place] -= taken
        over -= taken


def _counted(ends: Iterable[RunEnd]) -> dict[Place, list[int]]:
    """By stretches of 10 s, as `worker.recording.Recorder` counts."""
    found: dict[Place, list[int]] = {}
    for end in ends:
        at = end.finished_at // Grain.TEN_SECONDS * Grain.TEN_SECONDS
        counts = found.setdefault((Grain.TEN_SECONDS, at, end.queue, end.task), [0] * WIDTH)
        if (how := _COUNTED_AS.get(end.outcome)) is not None:
            counts[how] += 1
        if end.dead:
            counts[_DEAD] += 1
        if end.started_at is None:
            continue
        waited, took = max(0, end.started_at - end.due_at), max(0, end.finished_at - end.started_at)
        counts[_STARTED] += 1
        counts[_WAIT_US] += waited
        counts[_RUN_US] += took
        counts[WAIT_AT + bucket(waited)] += 1
        counts[RUN_AT + bucket(took)] += 1
    return found
