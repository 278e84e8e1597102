"""Recovery of the statistics of a dead instance, by the instance that declared it dead.

An instance writes its counts every 10 s (`worker/stats_recorder.py`). What it counted since is lost with it, but the ends of
its runs are in the store. Intervals count runs by when they finished, so they can be counted again from the record; the
difference to what was written is what is missing. Recovering twice is harmless.

What is not kept (no retention, a full Redis) cannot be counted, and the wait of earlier runs of a job is not on record.
Nothing here raises: lost counts must not keep an instance from being declared dead.
"""

import logging
from collections.abc import Iterable

from drumbeat.core import stats
from drumbeat.core.job import OutcomeKind
from drumbeat.core.stats import OVERALL, Resolution, Rollup, RunEnd
from drumbeat.ids import InstanceId
from drumbeat.store.protocol import Store

log = logging.getLogger(__name__)

MAX_REPORT_DELAY_US = 20_000_000
"""The end of a run that is reported later than this counts in the interval of the report."""
MAX_LOOK_BACK_US = 300_000_000

RollupKey = tuple[Resolution, int, str, str]
"""resolution, at, queue, task."""

_STARTED, _SUCCEEDED, _FAILED, _DEAD, _CANCELLED, _CRASHED, _WAIT_US, _RUN_US = range(stats.WAIT_OFFSET)
_COUNTED_AS = {
    OutcomeKind.SUCCEEDED.value: _SUCCEEDED,
    OutcomeKind.RETRY.value: _FAILED,
    OutcomeKind.DEAD.value: _FAILED,
    OutcomeKind.CANCELLED.value: _CANCELLED,
    OutcomeKind.CRASHED.value: _CRASHED,
}


async def recover_counts(store: Store, instance: InstanceId) -> None:
    """Write what this dead instance had counted and not yet written."""
    try:
        now = await store.inspect.now()
        first = (now - MAX_LOOK_BACK_US) // Resolution.MINUTE * Resolution.MINUTE
        written = await store.stats.read_written(instance, first)
        earliest = (written.written_at or 0) - MAX_REPORT_DELAY_US
        since = max(first, earliest // Resolution.TEN_SECONDS * Resolution.TEN_SECONDS)
        rollups = find_missing_rollups(written.rollups, await store.stats.read_run_ends(instance, since))
        if rollups:
            await store.stats.put(instance, rollups, instance_died=True)
    except Exception as error:  # including unreadable records
        log.warning("the last counts of a dead instance are lost", extra={"instance": instance, "reason": str(error)})


def find_missing_rollups(written: Iterable[Rollup], run_ends: Iterable[RunEnd]) -> list[Rollup]:
    """The roll-ups of an instance that must be written again to include these ends."""
    known = {(each.resolution, each.at, each.queue, each.task): stats.to_counts(each) for each in written}
    changed: set[RollupKey] = set()
    for place, counts in _count_run_ends(run_ends).items():
        before = known.get(place, [0] * stats.COUNTS_LENGTH)
        lost = [max(0, count - known) for count, known in zip(counts, before, strict=True)]
        _trim_histogram(lost, stats.WAIT_OFFSET)
        _trim_histogram(lost, stats.RUN_OFFSET)
        if not any(lost[: stats.WAIT_OFFSET]):
            continue
        _, at, queue, task = place
        intervals = [(each, stats.interval_of(each, at)) for each in stats.INTERVALS]
        for each in (
            (Resolution.TOTAL, 0, queue, task),
            *((*interval, queue, task) for interval in intervals),
            *((*interval, OVERALL, OVERALL) for interval in intervals),
        ):
            known[each] = stats.add_counts(known.get(each, [0] * stats.COUNTS_LENGTH), lost)
            changed.add(each)
    return [stats.from_counts(*place, known[place]) for place in sorted(changed)]


def _trim_histogram(lost: list[int], histogram: int) -> None:
    """Limit a histogram to the number of missing runs: those without a recorded wait are in its first bucket."""
    over = sum(lost[histogram : histogram + stats.BUCKETS]) - lost[_STARTED]
    for place in range(histogram, histogram + stats.BUCKETS):
        if over <= 0:
            return
        taken = min(over, lost[place])
        lost[place] -= taken
        over -= taken


def _count_run_ends(ends: Iterable[RunEnd]) -> dict[RollupKey, list[int]]:
    """By intervals of 10 s, as `worker/stats_recorder.py` counts."""
    found: dict[RollupKey, list[int]] = {}
    for end in ends:
        at = end.finished_at // Resolution.TEN_SECONDS * Resolution.TEN_SECONDS
        counts = found.setdefault((Resolution.TEN_SECONDS, at, end.queue, end.task), [0] * stats.COUNTS_LENGTH)
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
        counts[stats.WAIT_OFFSET + stats.bucket_index(waited)] += 1
        counts[stats.RUN_OFFSET + stats.bucket_index(took)] += 1
    return found
