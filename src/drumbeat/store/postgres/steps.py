"""Steps of jobs on PostgreSQL. The contract is in `store.protocol.StepStore`."""

from collections.abc import Sequence
from functools import partial

import msgspec

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
from drumbeat.core.step import NewStep, StepRecord
from drumbeat.ids import InstanceId, JobId, is_job_id
from drumbeat.store.postgres.connections import Session
from drumbeat.store.postgres.parts import PostgresParts
from drumbeat.store.postgres.rows import to_columns
from drumbeat.store.protocol.steps import MAX_FOUND_JOBS
from drumbeat.store.records import SIGNALS, STEPS, as_json
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

    async def send_signal(self, signal: NewSignal) -> SignalAnswer:
        if not is_job_id(signal.job):
            return SignalAnswer.UNKNOWN
        text = encode_signal(signal, alone=True)
        return SignalAnswer(await self._connection.call(lambda session: session.fetchval(self._sql.send_signal, text)))

    async def find_live(self, task: str, key: str) -> list[JobId]:
        found = await self._connection.call(
            lambda session: session.fetch(self._sql.live_of_key, task, key, MAX_FOUND_JOBS)
        )
        return [row["id"] for row in found]

    async def take_signal(self, instance: InstanceId, wait: SignalWait) -> TakenSignal:
        return await self._connection.transact(partial(self._take_signal, instance, wait))

    async def list_signals(self, ids: Sequence[JobId]) -> dict[JobId, list[SignalRecord]]:
        wanted = [id for id in ids if is_job_id(id)]
        found = (
            await self._connection.call(lambda session: session.fetch(self._sql.list_signals, wanted)) if wanted else []
        )
        return group_by_job(ids, (row.to_record() for row in SIGNALS.read_rows(found)))

    async def _take_signal(self, instance: InstanceId, wait: SignalWait, session: Session) -> TakenSignal:
        id, token = wait.claim.id, wait.claim.token
        now = await session.fetchval(self._sql.lock_claim, id, token, instance)
        if now is None:
            return STALE_WAIT
        known = await session.fetchrow(self._sql.wait, id, wait.name)
        if known is not None and known["finished_at"] is not None:
            return TakenSignal(is_over=True, payload=known["result"])
        payload = await session.fetchval(self._sql.read_oldest, id, wait.signal, wait.name)
        is_late = known is not None and known["until"] is not None and known["until"] <= now
        if payload is None and not is_late:
            return STILL_WAITING
        await session.execute(self._sql.end_wait, id, wait.name, token, wait.signal, payload)
        return TakenSignal(is_over=True, payload=payload)


def encode_signal(signal: NewSignal, *, alone: bool = False) -> str:
    """`alone`: in a transaction of its own."""
    return as_json(msgspec.structs.asdict(signal) | {"limit": MAX_UNREAD_SIGNALS, "alone": alone})
