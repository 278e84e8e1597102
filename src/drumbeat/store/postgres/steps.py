"""Steps of jobs on PostgreSQL. The contract is in `store.protocol.StepStore`."""

from collections.abc import Sequence

from drumbeat.core.claim import WriteStatus
from drumbeat.core.step import NewStep, StepRecord
from drumbeat.ids import InstanceId, JobId, is_job_id
from drumbeat.store.postgres.parts import PostgresParts
from drumbeat.store.postgres.rows import to_columns
from drumbeat.store.records import STEPS
from drumbeat.store.step_rows import group_by_job, to_statuses


class PostgresSteps:
    def __init__(self, parts: PostgresParts) -> None:
        self._sql = parts.sql.steps
        self._connection = parts.connection

    async def record(self, instance: InstanceId, steps: Sequence[NewStep]) -> list[WriteStatus]:
        if not steps:
            return []
        columns = to_columns(
            (each.claim.id, each.claim.token, each.name, each.started_at, each.finished_at, each.result)
            for each in steps
        )
        found = await self._connection.call(lambda session: session.fetch(self._sql.record, instance, *columns))
        return to_statuses(steps, {(row["id"], row["token"]) for row in found})

    async def load(self, ids: Sequence[JobId]) -> dict[JobId, list[StepRecord]]:
        wanted = [id for id in ids if is_job_id(id)]
        found = await self._connection.call(lambda session: session.fetch(self._sql.load, wanted)) if wanted else []
        return group_by_job(ids, (row.to_record() for row in STEPS.read_rows(found)))
