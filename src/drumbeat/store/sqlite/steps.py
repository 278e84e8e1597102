"""Steps of jobs on SQLite. The contract is in `store.protocol.StepStore`."""

from collections.abc import Sequence

from drumbeat.core.claim import WriteStatus
from drumbeat.core.step import NewStep, StepKind, StepRecord
from drumbeat.ids import InstanceId, JobId
from drumbeat.store.records import STEPS, as_json
from drumbeat.store.sqlfile import Statements
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.connection import NULL
from drumbeat.store.sqlite.parts import SqliteOperations
from drumbeat.store.sqlite.row_decoder import RowDecoder
from drumbeat.store.sqlite.writer import WriteContext
from drumbeat.store.step_rows import group_by_job, to_statuses

_STEP = StepKind.STEP.value
_read_steps = RowDecoder.of(STEPS).read


class SqliteSteps(SqliteOperations):
    async def record(self, instance: InstanceId, steps: Sequence[NewStep]) -> list[WriteStatus]:
        if not steps:
            return []
        self._disk_space.check()
        return await self._writer.write(self._record, (instance, steps))

    async def load(self, ids: Sequence[JobId]) -> dict[JobId, list[StepRecord]]:
        found = await self._worker_reader.read(lambda db: _read_steps(db, self._sql.load, {"ids": as_json(ids)}))
        return group_by_job(ids, (row.to_record() for row in found))

    def _record(self, write: WriteContext, given: tuple[InstanceId, Sequence[NewStep]]) -> list[WriteStatus]:
        return record_steps(self._sql, write, *given)


def record_steps(
    sql: Statements, write: WriteContext, instance: InstanceId, steps: Sequence[NewStep]
) -> list[WriteStatus]:
    """Inside the writer's transaction, or a caller's own."""
    wanted = {"ids": as_json([step.claim.id for step in steps]), "instance": instance}
    current = {(claim.id, claim.token) for claim in rows.claim_refs(write.db, sql.current_claims, wanted)}
    kept = [
        (each.claim.id, _STEP, each.name, each.claim.token, each.started_at, NULL, each.finished_at, NULL, each.result)
        for each in steps
        if (each.claim.id, each.claim.token) in current
    ]
    if kept:
        write.db.run_rows(sql.insert, 9, kept)
    return to_statuses(steps, current)
