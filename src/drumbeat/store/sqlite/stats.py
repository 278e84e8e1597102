"""Roll-ups on SQLite. The contract is in `store.protocol.StatsStore`.

Writes here do not wait for the disk: the counts that a power cut takes are no loss.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from drumbeat.core import stats
from drumbeat.core.instance import InstanceState
from drumbeat.core.stats import Resolution
from drumbeat.ids import InstanceId
from drumbeat.store.records import ROLLUPS, as_json
from drumbeat.store.sqlite.connection import SqliteConnection
from drumbeat.store.sqlite.parts import SqliteOperations
from drumbeat.store.sqlite.row_decoder import RowDecoder
from drumbeat.store.sqlite.writer import WriteContext

NO_INSTANCE = InstanceId("")
_decode_written = msgspec.json.Decoder(list[tuple[int, int, str, str, list[int], int]]).decode
_decode_run_ends = msgspec.json.Decoder(list[stats.RunEnd]).decode


_read_rollups = RowDecoder.of(ROLLUPS).read


def _read_rows(db: SqliteConnection, sql: str, wanted: dict[str, Any] | None = None) -> list[stats.CountsRow]:
    return [(row.at, row.queue, row.task, row.counts) for row in _read_rollups(db, sql, wanted)]


class SqliteStats(SqliteOperations):
    async def put(self, instance: InstanceId, rollups: Sequence[stats.Rollup], *, instance_died: bool = False) -> bool:
        self._disk_space.check()
        state = InstanceState.DEAD if instance_died else InstanceState.ALIVE
        return await self._writer.write(self._put, (instance, state, rollups), durable=False)

    async def read(
        self, resolution: Resolution, since: int, until: int, *, queue: str | None = None, task: str | None = None
    ) -> list[stats.Rollup]:
        wanted = {"resolution": int(resolution), "since": since, "until": until, "queue": queue, "task": task}
        statement = self._sql.overall if queue == stats.OVERALL else self._sql.read
        return stats.merge_rows(resolution, await self._admin_reader.read(lambda db: _read_rows(db, statement, wanted)))

    async def read_written(self, instance: InstanceId, since: int) -> stats.WrittenRollups:
        found = _decode_written(
            await self._admin_reader.read_value(self._sql.written, {"instance": instance, "since": since})
        )
        return stats.WrittenRollups(
            max((row[-1] for row in found), default=None),
            [
                stats.from_counts(Resolution(resolution), at, queue, task, counts)
                for resolution, at, queue, task, counts, _ in found
            ],
        )

    async def read_run_ends(self, instance: InstanceId, since: int) -> list[stats.RunEnd]:
        return _decode_run_ends(
            await self._admin_reader.read_value(self._sql.run_ends, {"instance": instance, "since": since})
        )

    async def prune(self, before: Mapping[Resolution, int], *, idle_since: int, limit: int) -> int:
        return await self._writer.write(self._prune, (before, idle_since, limit), durable=False)

    # On the writer's thread, inside its transaction.

    def _put(self, write: WriteContext, given: tuple[InstanceId, InstanceState, Sequence[stats.Rollup]]) -> bool:
        instance, state, rollups = given
        if not write.db.value(self._sql.is_in_state, {"instance": instance, "state": state.value}):
            return False
        self._write_rollups(write, instance, rollups)
        return True

    def _write_rollups(self, write: WriteContext, instance: InstanceId, rollups: Sequence[stats.Rollup]) -> None:
        rows = [
            (each.at, int(each.resolution), each.queue, each.task, as_json(stats.to_counts(each))) for each in rollups
        ]
        write.db.run_rows(self._sql.put, 5, rows, (instance, write.now))

    def _prune(self, write: WriteContext, given: tuple[Mapping[Resolution, int], int, int]) -> int:
        before, idle_since, limit = given
        done = 0
        for resolution, first in before.items():
            wanted = {"resolution": int(resolution), "before": first, "limit": limit - done}
            done += write.db.run(self._sql.prune, wanted)
        return done + self._fold(write, idle_since, limit - done)

    def _fold(self, write: WriteContext, idle_since: int, limit: int) -> int:
        taken = write.db.rows(self._sql.delete_gone_totals, {"gone": idle_since, "limit": limit})
        if taken:
            before = _read_rows(write.db, self._sql.folded)
            sums = stats.merge_rows(
                Resolution.TOTAL, [*before, *map(msgspec.structs.astuple, ROLLUPS.read_rows(taken))]
            )
            self._write_rollups(write, NO_INSTANCE, sums)
        return len(taken)
