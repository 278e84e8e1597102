"""Steps of jobs on SQLite. The contract is in `store.protocol.StepStore`."""

from collections.abc import Sequence

from drumbeat.core.claim import WriteStatus
from drumbeat.core.signals import (
    MAX_UNREAD_SIGNALS,
    STALE_WAIT,
    STILL_WAITING,
    NewSignal,
    SignalAnswer,
    SignalRecord,
    SignalWait,
    TakenSignal,
)
from drumbeat.core.step import NewStep, StepKind, StepRecord
from drumbeat.ids import InstanceId, JobId
from drumbeat.store.protocol.steps import MAX_FOUND_JOBS
from drumbeat.store.records import SIGNALS, STEPS, as_json
from drumbeat.store.sqlfile import Statements
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.connection import NULL
from drumbeat.store.sqlite.parts import SqliteOperations
from drumbeat.store.sqlite.row_decoder import RowDecoder
from drumbeat.store.sqlite.writer import WriteContext
from drumbeat.store.step_rows import group_by_job, to_statuses

_STEP = StepKind.STEP.value
_read_signals = RowDecoder.of(SIGNALS).read
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

    async def send_signal(self, signal: NewSignal) -> SignalAnswer:
        self._disk_space.check()
        return await self._writer.write(lambda write, given: send_signal(self._sql, write, given), signal)

    async def find_live(self, task: str, key: str) -> list[JobId]:
        wanted = {"task": task, "key": key, "limit": MAX_FOUND_JOBS}
        return rows.ids(await self._worker_reader.read_value(self._sql.live_of_key, wanted))

    async def take_signal(self, instance: InstanceId, wait: SignalWait) -> TakenSignal:
        return await self._writer.write(self._take_signal, (instance, wait))

    async def list_signals(self, ids: Sequence[JobId]) -> dict[JobId, list[SignalRecord]]:
        wanted = {"ids": as_json(ids)}
        found = await self._worker_reader.read(lambda db: _read_signals(db, self._sql.list_signals, wanted))
        return group_by_job(ids, (row.to_record() for row in found))

    def _take_signal(self, write: WriteContext, given: tuple[InstanceId, SignalWait]) -> TakenSignal:
        instance, wait = given
        claim, db = wait.claim, write.db
        current = {"ids": as_json([claim.id]), "instance": instance}
        if claim not in rows.claim_refs(db, self._sql.current_claims, current):
            return STALE_WAIT
        facts = {"job": claim.id, "name": wait.name}
        [known] = db.rows(self._sql.wait, facts) or [(None, None, None, None)]
        _, until, finished_at, result = known
        if finished_at is not None:
            return TakenSignal(is_over=True, payload=result)
        unread = db.rows(self._sql.oldest_unread, {"job": claim.id, "signal": wait.signal})
        if not unread and (until is None or until > write.now):
            return STILL_WAITING
        payload = unread[0][1] if unread else None
        if unread:
            db.run(self._sql.mark_read, facts | {"id": unread[0][0]})
        end = facts | {"token": claim.token, "now": write.now, "signal": wait.signal, "result": payload}
        db.run(self._sql.end_wait, end)
        return TakenSignal(is_over=True, payload=payload)

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


def send_signal(sql: Statements, write: WriteContext, signal: NewSignal) -> SignalAnswer:
    """Inside the writer's transaction, or a caller's own."""
    state, unread = write.db.row(sql.state_of, {"job": signal.job})
    is_live = state in ("pending", "running")
    if not is_live or unread >= MAX_UNREAD_SIGNALS:
        if write.db.rows(sql.find_signal, {"job": signal.job, "id": signal.id}):
            return SignalAnswer.SENT
        if is_live:
            return SignalAnswer.TOO_MANY
        return SignalAnswer.UNKNOWN if state is None else SignalAnswer(state)
    facts = {"job": signal.job, "id": signal.id, "name": signal.name, "payload": signal.payload, "now": write.now}
    if write.db.run(sql.insert_signal, facts) and write.db.run(
        sql.wake, {"job": signal.job, "name": signal.name, "now": write.now}
    ):
        write.notify(write.now)
    return SignalAnswer.SENT
