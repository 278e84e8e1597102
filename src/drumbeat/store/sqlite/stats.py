"""Roll-ups, on SQLite. The contract is in `store.protocol.Stats`.

Nothing here waits for the disk: what a power cut takes of it, people do not miss.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from drumbeat.ids import InstanceId
from drumbeat.model.instance import InstanceState
from drumbeat.model.stats import Grain, Rollup, Row, RunEnd, Written, counts_of, merged, rollup_of
from drumbeat.store.records import RollupRow
from drumbeat.store.sqlite.connection import Connection
from drumbeat.store.sqlite.place import Room
from drumbeat.store.sqlite.reader import Reader
from drumbeat.store.sqlite.rows import as_json
from drumbeat.store.sqlite.shapes import Shape, leave_out
from drumbeat.store.sqlite.statements import StatsSql
from drumbeat.store.sqlite.writer import Write, Writer

NOBODY = InstanceId("")
_written = msgspec.json.Decoder(list[tuple[int, int, str, str, list[int], int]]).decode
_run_ends = msgspec.json.Decoder(list[RunEnd]).decode


class FoldableRow(msgspec.Struct, frozen=True, array_like=True):
    queue: str
    task: str
    instance: InstanceId
    counts: list[int]


_rollups = Shape(RollupRow, "roll-up", id="task", mend=leave_out).read
_foldable = Shape(FoldableRow, "roll-up", id="task", mend=leave_out).read


def _rows(db: Connection, sql: str, wanted: dict[str, Any] | None = None) -> list[Row]:
    return [(row.at, row.queue, row.task, row.counts) for row in _rollups(db, sql, wanted)]


class SqliteStats:
    def __init__(self, sql: StatsSql, *, writer: Writer, lists: Reader, room: Room) -> None:
        self._sql = sql
        self._writer = writer
        self._lists = lists
        self._room = room

    async def put(self, instance: InstanceId, rollups: Sequence[Rollup], *, buried: bool = False) -> bool:
        self._room.check()
        state = InstanceState.DEAD if buried else InstanceState.ALIVE
        return await self._writer.write(self._put, (instance, state, rollups), durable=False)

    async def read(
        self, grain: Grain, since: int, until: int, *, queue: str | None = None, task: str | None = None
    ) -> list[Rollup]:
        wanted = {"grain": int(grain), "since": since, "until": until, "queue": queue, "task": task}
        return merged(grain, await self._lists.read(lambda db: _rows(db, self._sql.read, wanted)))

    async def overall(self, grain: Grain, since: int, until: int) -> list[Rollup]:
        wanted = {"grain": int(grain), "since": since, "until": until}
        return merged(grain, await self._lists.read(lambda db: _rows(db, self._sql.overall, wanted)))

    async def totals(self) -> list[Rollup]:
        return await self.read(Grain.TOTAL, 0, 1)

    async def written(self, instance: InstanceId, since: int) -> Written:
        found = _written(await self._lists.text(self._sql.written, {"instance": instance, "since": since}))
        return Written(
            max((row[-1] for row in found), default=None),
            [rollup_of(Grain(grain), at, queue, task, counts) for grain, at, queue, task, counts, _ in found],
        )

    async def run_ends(self, instance: InstanceId, since: int) -> list[RunEnd]:
        return _run_ends(await self._lists.text(self._sql.run_ends, {"instance": instance, "since": since}))

    async def prune(self, *, tens: int, minutes: int, gone: int, limit: int) -> int:
        return await self._writer.write(self._prune, (tens, minutes, gone, limit), durable=False)

    # On the writer's thread, inside its transaction.

    def _put(self, write: Write, given: tuple[InstanceId, InstanceState, Sequence[Rollup]]) -> bool:
        instance, state, rollups = given
        if not write.db.value(self._sql.is_in_state, {"instance": instance, "state": state.value}):
            return False
        self._keep(write, instance, rollups)
        return True

    def _keep(self, write: Write, instance: InstanceId, rollups: Sequence[Rollup]) -> None:
        rows = [(each.at, int(each.grain), each.queue, each.task, as_json(counts_of(each))) for each in rollups]
        write.db.run_rows(self._sql.put, 5, rows, (instance, write.now))

    def _prune(self, write: Write, given: tuple[int, int, int, int]) -> int:
        tens, minutes, gone, limit = given
        done = 0
        for grain, before in ((Grain.TEN_SECONDS, tens), (Grain.MINUTE, minutes)):
            wanted = {"grain": int(grain), "before": before, "limit": limit - done}
            done += write.db.run(self._sql.prune, wanted)
        return done + self._fold(write, gone, limit - done)

    def _fold(self, write: Write, gone: int, limit: int) -> int:
        taken = _foldable(write.db, self._sql.foldable, {"gone": gone, "limit": limit})
        if taken:
            before = _rows(write.db, self._sql.folded)
            counted = [(0, row.queue, row.task, row.counts) for row in taken]
            self._keep(write, NOBODY, merged(Grain.TOTAL, [*before, *counted]))
            write.db.run(self._sql.drop, {"rows": as_json([(row.queue, row.task, row.instance) for row in taken])})
        return len(taken)
