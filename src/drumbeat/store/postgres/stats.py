"""Roll-ups, on PostgreSQL. The contract is in `store.protocol.Stats`."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import msgspec

from drumbeat.ids import InstanceId
from drumbeat.model.instance import InstanceState
from drumbeat.model.stats import Grain, Rollup, Row, RunEnd, Written, counts_of, merged, rollup_of
from drumbeat.store.malformed import explain, tell
from drumbeat.store.postgres.connections import LONG, Link, Session
from drumbeat.store.postgres.statements import Statements

_encoded = msgspec.json.Encoder().encode
_counts = msgspec.json.Decoder(list[int]).decode


class PostgresStats:
    def __init__(self, sql: Statements, *, link: Link, lists: Link) -> None:
        """lists: for what may take long."""
        self._sql = sql.stats
        self._link = link
        self._lists = lists

    async def put(self, instance: InstanceId, rollups: Sequence[Rollup], *, buried: bool = False) -> bool:
        ordered = sorted(rollups, key=lambda each: (each.grain, each.at, each.queue, each.task))
        columns = (
            [int(each.grain) for each in ordered],
            [each.at for each in ordered],
            [each.queue for each in ordered],
            [each.task for each in ordered],
            [_text(each) for each in ordered],
        )
        state = (InstanceState.DEAD if buried else InstanceState.ALIVE).value
        kept: bool = await self._link.call(lambda session: session.fetchval(self._sql.put, instance, *columns, state))
        return kept

    async def read(
        self, grain: Grain, since: int, until: int, *, queue: str | None = None, task: str | None = None
    ) -> list[Rollup]:
        wanted = (int(grain), since, until, queue, task)
        found = await self._lists.call(lambda session: session.fetch(self._sql.read, *wanted), patience=LONG)
        return merged(grain, _rows(found))

    async def overall(self, grain: Grain, since: int, until: int) -> list[Rollup]:
        wanted = (int(grain), since, until)
        found = await self._lists.call(lambda session: session.fetch(self._sql.overall, *wanted), patience=LONG)
        return merged(grain, _rows(found))

    async def totals(self) -> list[Rollup]:
        return await self.read(Grain.TOTAL, 0, 1)

    async def written(self, instance: InstanceId, since: int) -> Written:
        found = await self._lists.call(lambda session: session.fetch(self._sql.written, instance, since), patience=LONG)
        return Written(
            max((row["written_at"] for row in found), default=None),
            [
                rollup_of(Grain(row["grain"]), row["at"], row["queue"], row["task"], _counts(row["counts"]))
                for row in found
            ],
        )

    async def run_ends(self, instance: InstanceId, since: int) -> list[RunEnd]:
        found = await self._lists.call(
            lambda session: session.fetch(self._sql.run_ends, instance, since), patience=LONG
        )
        return [RunEnd(*row) for row in found]

    async def prune(self, *, tens: int, minutes: int, gone: int, limit: int) -> int:
        done = 0
        for grain, before in ((Grain.TEN_SECONDS, tens), (Grain.MINUTE, minutes)):
            wanted = (int(grain), before, limit - done)
            done += len(await self._link.call(lambda session: session.fetch(self._sql.prune, *wanted)))  # noqa: B023, awaited here
        return done + await self._link.transact(partial(self._fold, gone, limit - done))

    async def _fold(self, gone: int, limit: int, session: Session) -> int:
        await session.execute(self._sql.lock_folded)
        taken = await session.fetch(self._sql.take_gone, gone, limit)
        if taken:
            before = await session.fetch(self._sql.folded)
            sums = merged(Grain.TOTAL, [*_rows(before), *_rows(taken)])
            columns = ([each.queue for each in sums], [each.task for each in sums], [_text(each) for each in sums])
            await session.execute(self._sql.keep_folded, *columns)
        return len(taken)


def _text(rollup: Rollup) -> str:
    return _encoded(counts_of(rollup)).decode()


def _rows(found: Iterable[Any]) -> list[Row]:
    rows: list[Row] = []
    for row in found:
        try:
            rows.append((row["at"], row["queue"], row["task"], _counts(row["counts"])))
        except (TypeError, msgspec.DecodeError) as error:
            tell("roll-up", f"{row['queue']}/{row['task']}", [("counts", explain("counts", row["counts"], error))])
    return rows
