"""Roll-ups on PostgreSQL. The contract is in `store.protocol.StatsStore`."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import msgspec

from drumbeat.core.instance import InstanceState
from drumbeat.core.stats import (
    OVERALL,
    CountsRow,
    Resolution,
    Rollup,
    RunEnd,
    WrittenRollups,
    from_counts,
    merge_rows,
    to_counts,
)
from drumbeat.ids import InstanceId
from drumbeat.store.malformed import explain_fault, log_faults
from drumbeat.store.postgres.connections import LONG_TIMEOUT, Session
from drumbeat.store.postgres.parts import PostgresParts

_encode = msgspec.json.Encoder().encode
_decode_counts = msgspec.json.Decoder(list[int]).decode


class PostgresStats:
    def __init__(self, parts: PostgresParts) -> None:
        self._sql = parts.sql.stats
        self._connection = parts.connection
        self._report_connection = parts.report_connection

    async def put(self, instance: InstanceId, rollups: Sequence[Rollup], *, instance_died: bool = False) -> bool:
        ordered = sorted(rollups, key=lambda each: (each.resolution, each.at, each.queue, each.task))
        columns = (
            [int(each.resolution) for each in ordered],
            [each.at for each in ordered],
            [each.queue for each in ordered],
            [each.task for each in ordered],
            [_counts_text(each) for each in ordered],
        )
        state = (InstanceState.DEAD if instance_died else InstanceState.ALIVE).value
        kept: bool = await self._connection.call(
            lambda session: session.fetchval(self._sql.put, instance, *columns, state)
        )
        return kept

    async def read(
        self, resolution: Resolution, since: int, until: int, *, queue: str | None = None, task: str | None = None
    ) -> list[Rollup]:
        wanted: tuple[object, ...] = (int(resolution), since, until)
        statement = self._sql.overall
        if queue != OVERALL:
            wanted, statement = (*wanted, queue, task), self._sql.read
        found = await self._report_connection.call(
            lambda session: session.fetch(statement, *wanted), timeout=LONG_TIMEOUT
        )
        return merge_rows(resolution, _readable_rows(found))

    async def read_written(self, instance: InstanceId, since: int) -> WrittenRollups:
        found = await self._report_connection.call(
            lambda session: session.fetch(self._sql.written, instance, since), timeout=LONG_TIMEOUT
        )
        return WrittenRollups(
            max((row["written_at"] for row in found), default=None),
            [
                from_counts(
                    Resolution(row["resolution"]), row["at"], row["queue"], row["task"], _decode_counts(row["counts"])
                )
                for row in found
            ],
        )

    async def read_run_ends(self, instance: InstanceId, since: int) -> list[RunEnd]:
        found = await self._report_connection.call(
            lambda session: session.fetch(self._sql.run_ends, instance, since), timeout=LONG_TIMEOUT
        )
        return [RunEnd(*row) for row in found]

    async def prune(self, *, ten_seconds_before: int, minutes_before: int, idle_since: int, limit: int) -> int:
        done = 0
        for resolution, before in ((Resolution.TEN_SECONDS, ten_seconds_before), (Resolution.MINUTE, minutes_before)):
            wanted = (int(resolution), before, limit - done)
            done += len(await self._connection.call(lambda session: session.fetch(self._sql.prune, *wanted)))  # noqa: B023, awaited here
        return done + await self._connection.transact(partial(self._fold_totals, idle_since, limit - done))

    async def _fold_totals(self, idle_since: int, limit: int, session: Session) -> int:
        await session.execute(self._sql.lock_folded)
        taken = await session.fetch(self._sql.delete_gone_totals, idle_since, limit)
        if taken:
            before = await session.fetch(self._sql.folded_totals)
            sums = merge_rows(Resolution.TOTAL, [*_readable_rows(before), *_readable_rows(taken)])
            columns = (
                [each.queue for each in sums],
                [each.task for each in sums],
                [_counts_text(each) for each in sums],
            )
            await session.execute(self._sql.upsert_folded, *columns)
        return len(taken)


def _counts_text(rollup: Rollup) -> str:
    return _encode(to_counts(rollup)).decode()


def _readable_rows(found: Iterable[Any]) -> list[CountsRow]:
    rows: list[CountsRow] = []
    for row in found:
        try:
            rows.append((row["at"], row["queue"], row["task"], _decode_counts(row["counts"])))
        except (TypeError, msgspec.DecodeError) as error:
            log_faults(
                "roll-up", f"{row['queue']}/{row['task']}", [("counts", explain_fault("counts", row["counts"], error))]
            )
    return rows
