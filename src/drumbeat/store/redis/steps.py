"""Steps of jobs on Redis. The contract is in `store.protocol.StepStore`.

A record is a field of the hash steps:<id>:
kind, NUL, name -> JSON array [token, started_at, until, finished_at, signal, result].
A signal is a field of the hash signals:<id>: its id -> lines of sent_at, read_by (or empty), name and payload.
"""

from collections.abc import Sequence
from typing import Any

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
from drumbeat.core.step import NewStep, StepKind, StepRecord
from drumbeat.ids import InstanceId, JobId, is_job_id, pack_id, unpack_id
from drumbeat.store.malformed import explain_fault, log_faults
from drumbeat.store.protocol.steps import MAX_FOUND_JOBS
from drumbeat.store.records import SignalRow, StepRow
from drumbeat.store.redis.connection import Value
from drumbeat.store.redis.pool import RedisPool
from drumbeat.store.redis.record_format import pairs
from drumbeat.store.redis.rows import encode_json

_MAX_OF_KEY = 1_000_000


class RedisSteps:
    def __init__(self, pool: RedisPool) -> None:
        self._pool = pool

    async def record(self, instance: InstanceId, steps: Sequence[NewStep]) -> list[WriteStatus]:
        if not steps:
            return []
        values: list[Value] = [instance]
        for each in steps:
            values += step_arguments(each)
        answers = await self._pool.run("record_steps", *values)
        return [WriteStatus.APPLIED if kept else WriteStatus.STALE for kept in answers]

    async def load(self, ids: Sequence[JobId]) -> dict[JobId, list[StepRecord]]:
        wanted = [id for id in ids if is_job_id(id)]
        answers = await self._pool.run("load_steps", *map(pack_id, wanted)) if wanted else []
        known = {id: decode_steps(id, flat) for id, flat in zip(wanted, answers, strict=True)}
        return {id: known.get(id, []) for id in ids}

    async def send_signal(self, signal: NewSignal) -> SignalAnswer:
        if not is_job_id(signal.job):
            return SignalAnswer.UNKNOWN
        facts = (pack_id(signal.job), signal.id, signal.name, signal.payload, MAX_UNREAD_SIGNALS)
        answer: bytes = await self._pool.run("send_signal", *facts)
        return SignalAnswer(answer.decode())

    async def find_live(self, task: str, key: str) -> list[JobId]:
        found = await self._pool.run("list_ids_of_key", task, key, _MAX_OF_KEY)
        return [unpack_id(id) for id in (found or ())[:MAX_FOUND_JOBS]]

    async def take_signal(self, instance: InstanceId, wait: SignalWait) -> TakenSignal:
        claim = wait.claim
        is_current, is_over, record = await self._pool.run(
            "take_signal", instance, pack_id(claim.id), claim.token, wait.name, wait.signal
        )
        if not is_current:
            return STALE_WAIT
        return TakenSignal(is_over=True, payload=msgspec.json.decode(record)[-1]) if is_over else STILL_WAITING

    async def list_signals(self, ids: Sequence[JobId]) -> dict[JobId, list[SignalRecord]]:
        wanted = [id for id in ids if is_job_id(id)]
        answers = await self._pool.run("list_signals", *map(pack_id, wanted)) if wanted else []
        known = {id: _decode_signals(id, flat) for id, flat in zip(wanted, answers, strict=True)}
        return {id: known.get(id, []) for id in ids}


def step_arguments(step: NewStep) -> list[Value]:
    """Id, token, field and record of a step's result."""
    token, times = step.claim.token, (step.started_at, None, step.finished_at)
    record = encode_json((token, *times, None, step.result))
    return [pack_id(step.claim.id), token, f"{StepKind.STEP}\0{step.name}", record]


def _decode_signals(id: JobId, flat: Sequence[bytes]) -> list[SignalRecord]:
    found: list[SignalRecord] = []
    for field, text in pairs(flat):
        try:
            sent_at, read_by, name, payload = text.decode().split("\n", 3)
            row = [id, field.decode(), name, int(sent_at), payload, read_by or None]
            found.append(msgspec.convert(row, SignalRow).to_record())
        except (ValueError, msgspec.DecodeError) as error:
            log_faults("signal", field, [("record", explain_fault("record", text, error))])
    return sorted(found, key=lambda signal: (signal.sent_at, signal.id))


def decode_steps(id: JobId, flat: Sequence[bytes]) -> list[StepRecord]:
    """Those that can be read, in the order in which they began."""
    found: list[StepRecord] = []
    for field, text in pairs(flat):
        kind, _, name = field.partition(b"\0")
        try:
            values: list[Any] = [id, kind.decode(), name.decode(), *msgspec.json.decode(text, type=list)]
            found.append(msgspec.convert(values, StepRow).to_record())
        except (ValueError, TypeError, msgspec.DecodeError) as error:
            log_faults("step", field, [("record", explain_fault("record", text, error))])
    return sorted(found, key=lambda step: (step.started_at, step.kind, step.name))
