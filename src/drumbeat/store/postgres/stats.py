"""Roll-ups on PostgreSQL. The contract is in `store.protocol.StatsStore`."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from drumbeat.core import stats
from drumbeat.core.instance import InstanceState
from drumbeat.core.stats import Resolution
from drumbeat.ids import InstanceId
from drumbeat.store.malformed import explain_fault, log_faults
from drumbeat.store.postgres.connections import LONG_TIMEOUT, Session
from drumbeat.store.postgres.parts import PostgresParts
from drumbeat.store.postgres.rows import to_columns
from drumbeat.store.records import as_json

_decode_counts = msgspec.json.Decoder(list[int]).decode


class PostgresStats:
    def __init__(self, parts: PostgresParts) -> None:
        self._sql = parts.sql.stats
        self._connection = parts.connection
        self._report_connection = parts.report_connection

    async def put(self, instance: InstanceId, rollups: Sequence[stats.Rollup], *, instance_died: bool = False) -> bool:
        ordered = sorted(rollups, key=lambda each: (each.resolution, each.at, each.queue, each.task))
        state = (InstanceState.DEAD if instance_died else InstanceState.ALIVE).value
        kept: bool = await self._connection.call(
            lambda session: session.fetchval(self._sql.put, instance, state, *_to_columns(ordered))
        )
        return kept

    async def read(
        self, resolution: Resolution, since: int, until: int, *, queue: str | None = None, task: str | None = None
    ) -> list[stats.Rollup]:
        wanted: tuple[object, ...] = (int(resolution), since, until)
        statement = self._sql.overall
        if queue != stats.OVERALL:
            wanted, statement = (*wanted, queue, task), self._sql.read
        found = await self._report_connection.call(
            lambda session: session.fetch(statement, *wanted), timeout=LONG_TIMEOUT
        )
        return stats.merge_rows(resolution, _readable_rows(found))

    async def read_written(self, instance: InstanceId, since: int) -> stats.WrittenRollups:
        found = await self._report_connection.call(
            lambda session: session.fetch(self._sql.written, instance, since), timeout=LONG_TIMEOUT
        )
        return stats.WrittenRollups(
            max((row["written_at"] for row in found), default=None),
            [
                stats.from_counts(
                    Resolution(row["resolution"]),
                    row["at"],
                    row["queue"],
                    row["task"],
                    _decode_counts(row["counts"]),
                )
                for row in found
            ],
        )

    async def read_run_ends(self, instance: InstanceId, since: int) -> list[stats.RunEnd]:
        found = await self._report_connection.call(
            lambda session: session.fetch(self._sql.run_ends, instance, since), timeout=LONG_TIMEOUT
        )
        return [stats.RunEnd(*row) for row in found]

    async def prune(self, before: Mapping[Resolution, int], *, idle_since: int, limit: int) -> int:
        done = 0
        for resolution, first in before.items():
            wanted = (int(resolution), first, limit - done)
            done += len(await self._connection.call(lambda session: session.fetch(self._sql.prune, *wanted)))  # noqa: B023, awaited here
        return done + await self._connection.transact(partial(self._fold_totals, idle_since, limit - done))

    async def _fold_totals(self, idle_since: int, limit: int, session: Session) -> int:
        await session.execute(self._sql.lock_folded)
        taken = await session.fetch(self._sql.delete_gone_totals, idle_since, limit)
        if taken:
            before = await session.fetch(self._sql.folded_totals)
            sums = stats.merge_rows(Resolution.TOTAL, [*_readable_rows(before), *_readable_rows(taken)])
            await session.execute(self._sql.put, "", None, *_to_columns(sums))
        return len(taken)


def _to_columns(rollups: Sequence[stats.Rollup]) -> list[list[Any]]:
    rows = [(int(each.resolution), each.at, each.queue, each.task, as_json(stats.to_counts(each))) for each in rollups]
    return to_columns(rows) if rows else [[]] * 5


def _readable_rows(found: Iterable[Any]) -> list[stats.CountsRow]:
    rows: list[stats.CountsRow] = []
    for row in found:
        try:
            rows.append((row["at"], row["queue"], row["task"], _decode_counts(row["counts"])))
        except (TypeError, msgspec.DecodeError) as error:
            log_faults(
                "roll-up", f"{row['queue']}/{row['task']}", [("counts", explain_fault("counts", row["counts"], error))]
            )
    return rows
