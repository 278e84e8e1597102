"""Roll-ups, on Redis. The contract is in `store.protocol.Stats`.

The counts of a roll-up are a text of numbers with commas. In the hash of a stretch the field is queue, task and instance, in
the totals of an instance queue and task, in the sums of those that have gone queue, task and the place of one number, from 1;
with NUL between them.
"""

from collections.abc import Iterator, Sequence

from drumbeat.ids import InstanceId
from drumbeat.model.instance import InstanceState
from drumbeat.model.stats import TENS_KEPT_US, WIDTH, Grain, Rollup, Row, RunEnd, Written, counts_of, merged, rollup_of
from drumbeat.store.malformed import explain, tell
from drumbeat.store.redis import texts
from drumbeat.store.redis.connections import Link

TENS_KEPT_S = TENS_KEPT_US // 1_000_000
MINUTES_KEPT_S = 366 * 86_400
"""Where nobody prunes. A controller does, sooner: as soon as history is."""
_PAGE = 200
"""Stretches that one call reads."""
_ENDS = 2_000
"""Ends of history that one call looks at."""


class RedisStats:
    def __init__(self, link: Link) -> None:
        self._link = link

    async def put(self, instance: InstanceId, rollups: Sequence[Rollup], *, buried: bool = False) -> bool:
        texts = [
            value
            for each in rollups
            for value in (int(each.grain), each.at, f"{each.queue}\0{each.task}", ",".join(map(str, counts_of(each))))
        ]
        state = (InstanceState.DEAD if buried else InstanceState.ALIVE).value
        kept: int = await self._link.run("stats_put", instance, TENS_KEPT_S, MINUTES_KEPT_S, state, *texts)
        return bool(kept)

    async def read(
        self, grain: Grain, since: int, until: int, *, queue: str | None = None, task: str | None = None
    ) -> list[Rollup]:
        if grain is Grain.TOTAL:
            return [each for each in await self.totals() if _is_wanted(each.queue, each.task, queue, task)]
        found = await self._stretches("stretch", grain, since, until)
        return merged(grain, [row for row in found if _is_wanted(row[1], row[2], queue, task)])

    async def overall(self, grain: Grain, since: int, until: int) -> list[Rollup]:
        return merged(grain, await self._stretches("overall", grain, since, until))

    async def _stretches(self, kind: str, grain: Grain, since: int, until: int) -> list[Row]:
        found: list[Row] = []
        while True:
            page = await self._link.run("stats_read", int(grain), since, until, _PAGE, kind)
            for at, stretch in zip(page[::2], page[1::2], strict=True):
                found += _rows(texts.number_or_0(at), stretch)
            if len(page) < 2 * _PAGE:
                return found
            since = max(since, texts.number_or_0(page[-2])) + 1

    async def totals(self) -> list[Rollup]:
        folded, *others = await self._link.run("stats_totals")
        sums: dict[tuple[str, str], list[int]] = {}
        for field, number in texts.pairs(folded).items():
            try:
                queue, task, place = field.decode().split("\0")
                sums.setdefault((queue, task), [0] * WIDTH)[int(place) - 1] = int(number)
            except (ValueError, IndexError) as error:
                tell("roll-up", field, [("sum", explain("sum", number, error))])
        found: list[Row] = [(0, queue, task, counts) for (queue, task), counts in sums.items()]
        return merged(Grain.TOTAL, found + [row for each in others for row in _rows(0, each)])

    async def written(self, instance: InstanceId, since: int) -> Written:
        grains = (int(Grain.TEN_SECONDS), int(Grain.MINUTE))
        at, totals, *flat = await self._link.run("stats_written", instance, since, *grains)
        found = [rollup_of(Grain.TOTAL, *row) for row in _rows(0, totals)]
        for grain, moment, place, counts in zip(*[iter(flat)] * 4, strict=True):
            found += [rollup_of(Grain(int(grain)), *row) for row in _rows(int(moment), (place, counts))]
        return Written(None if at is None else int(at), found)

    async def run_ends(self, instance: InstanceId, since: int) -> list[RunEnd]:
        found: list[RunEnd] = []
        seen = 0
        while True:
            looked, *flat = await self._link.run("stats_run_ends", instance, since, seen, _ENDS)
            for queue, task, outcome, died, due, started, finished in zip(*[iter(flat)] * 7, strict=True):
                began = None if started == b"null" else int(started)
                found.append(
                    RunEnd(
                        queue.decode(), task.decode(), outcome.decode(), died == b"1", int(due), began, int(finished)
                    )
                )
            seen += looked
            if looked < _ENDS:
                return found

    async def prune(self, *, tens: int, minutes: int, gone: int, limit: int) -> int:
        done: int = await self._link.run(
            "stats_prune", int(Grain.TEN_SECONDS), tens, int(Grain.MINUTE), minutes, gone, limit
        )
        return done


def _rows(at: int, flat: Sequence[bytes]) -> Iterator[Row]:
    for field, counts in zip(flat[::2], flat[1::2], strict=True):
        try:
            queue, task, *_ = field.decode().split("\0")
            yield at, queue, task, [int(number) for number in counts.split(b",")]
        except ValueError as error:
            tell("roll-up", field, [("counts", explain("counts", counts, error))])


def _is_wanted(queue: str, task: str, wanted_queue: str | None, wanted_task: str | None) -> bool:
    return wanted_queue in (None, queue) and wanted_task in (None, task)
