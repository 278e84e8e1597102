"""Roll-ups on Redis. The contract is in `store.protocol.StatsStore`.

The counts of a roll-up are a text of numbers with commas. The fields are, with NUL between the parts: queue, task and
instance in the hash of an interval; queue and task in the totals of an instance; queue, task and the index of one
count, from 1, in the sums of instances that have gone.
"""

from collections.abc import Iterator, Mapping, Sequence

from drumbeat.core import stats
from drumbeat.core.instance import InstanceState
from drumbeat.core.stats import CountsRow, Resolution, Rollup
from drumbeat.ids import InstanceId
from drumbeat.store.malformed import explain_fault, log_faults
from drumbeat.store.redis import record_format
from drumbeat.store.redis.pool import RedisPool

_RETENTION_S = {
    Resolution.TOTAL: 0,
    Resolution.TEN_SECONDS: stats.TEN_SECONDS_RETENTION_US // 1_000_000,
    Resolution.MINUTE: 366 * 86_400,
    Resolution.HOUR: stats.HOUR_RETENTION_US // 1_000_000,
}
"""Used where no controller prunes; one does so sooner, minutes with history. TOTAL does not expire."""
_INTERVALS_PER_CALL = {Resolution.TEN_SECONDS: 200, Resolution.MINUTE: 200, Resolution.HOUR: 24}
"""Intervals that one call reads; of hours fewer, since more tasks and instances have run in each."""
_RUN_ENDS_PER_CALL = 2_000
"""Rows of history that one call scans."""


class RedisStats:
    def __init__(self, pool: RedisPool) -> None:
        self._pool = pool

    async def put(self, instance: InstanceId, rollups: Sequence[Rollup], *, instance_died: bool = False) -> bool:
        texts = [
            value
            for each in rollups
            for value in (
                int(each.resolution),
                _RETENTION_S[each.resolution],
                each.at,
                f"{each.queue}\0{each.task}",
                ",".join(map(str, stats.to_counts(each))),
            )
        ]
        state = (InstanceState.DEAD if instance_died else InstanceState.ALIVE).value
        return bool(await self._pool.run("put_stats", instance, state, *texts))

    async def read(
        self, resolution: Resolution, since: int, until: int, *, queue: str | None = None, task: str | None = None
    ) -> list[Rollup]:
        if resolution is Resolution.TOTAL:
            found = await self._read_totals()
        else:
            kind = "interval_total" if queue == stats.OVERALL else "interval"
            found = await self._read_intervals(kind, resolution, since, until)
        return stats.merge_rows(
            resolution, [row for row in found if queue in (None, row[1]) and task in (None, row[2])]
        )

    async def _read_intervals(self, kind: str, resolution: Resolution, since: int, until: int) -> list[CountsRow]:
        found: list[CountsRow] = []
        limit = _INTERVALS_PER_CALL[resolution]
        while True:
            page = await self._pool.run("read_stats", int(resolution), since, until, limit, kind)
            for at, interval in zip(page[::2], page[1::2], strict=True):
                found += _decode_rows(record_format.int_or_zero(at), interval)
            if len(page) < 2 * limit:
                return found
            since = max(since, record_format.int_or_zero(page[-2])) + 1

    async def _read_totals(self) -> list[CountsRow]:
        folded, *others = await self._pool.run("read_totals")
        sums: dict[tuple[str, str], list[int]] = {}
        for field, number in record_format.pairs_to_dict(folded).items():
            try:
                queue, task, place = field.decode().split("\0")
                sums.setdefault((queue, task), [0] * stats.COUNTS_LENGTH)[int(place) - 1] = int(number)
            except (ValueError, IndexError) as error:
                log_faults("roll-up", field, [("sum", explain_fault("sum", number, error))])
        found: list[CountsRow] = [(0, queue, task, counts) for (queue, task), counts in sums.items()]
        return found + [row for each in others for row in _decode_rows(0, each)]

    async def read_written(self, instance: InstanceId, since: int) -> stats.WrittenRollups:
        intervals = [value for each in stats.INTERVALS for value in (int(each), since - each)]
        at, totals, *flat = await self._pool.run("read_written_stats", instance, *intervals)
        found = [stats.from_counts(Resolution.TOTAL, *row) for row in _decode_rows(0, totals)]
        for resolution, begin, place, counts in zip(*[iter(flat)] * 4, strict=True):
            found += [
                stats.from_counts(Resolution(int(resolution)), *row)
                for row in _decode_rows(int(begin), (place, counts))
            ]
        return stats.WrittenRollups(None if at is None else int(at), found)

    async def read_run_ends(self, instance: InstanceId, since: int) -> list[stats.RunEnd]:
        found: list[stats.RunEnd] = []
        seen = 0
        while True:
            scanned, *flat = await self._pool.run("read_run_ends", instance, since, seen, _RUN_ENDS_PER_CALL)
            for queue, task, outcome, died, due, started, finished in zip(*[iter(flat)] * 7, strict=True):
                started_at = None if started == b"null" else int(started)
                names = (queue.decode(), task.decode(), outcome.decode())
                found.append(stats.RunEnd(*names, died == b"1", int(due), started_at, int(finished)))
            seen += scanned
            if scanned < _RUN_ENDS_PER_CALL:
                return found

    async def prune(self, before: Mapping[Resolution, int], *, idle_since: int, limit: int) -> int:
        intervals = [value for resolution, first in before.items() for value in (int(resolution), first)]
        return int(await self._pool.run("prune_stats", idle_since, limit, *intervals))


def _decode_rows(at: int, flat: Sequence[bytes]) -> Iterator[CountsRow]:
    for field, counts in zip(flat[::2], flat[1::2], strict=True):
        try:
            queue, task, *_ = field.decode().split("\0")
            yield at, queue, task, [int(number) for number in counts.split(b",")]
        except ValueError as error:
            log_faults("roll-up", field, [("counts", explain_fault("counts", counts, error))])
