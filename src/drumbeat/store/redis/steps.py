"""Steps of jobs on Redis. The contract is in `store.protocol.StepStore`.

A record is a field of the hash steps:<id>:
kind, NUL, name -> JSON array [token, started_at, until, finished_at, signal, result].
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from drumbeat.core.claim import WriteStatus
from drumbeat.core.step import NewStep, StepKind, StepRecord
from drumbeat.ids import InstanceId, JobId, is_job_id, pack_id
from drumbeat.store.malformed import explain_fault, log_faults
from drumbeat.store.records import StepRow
from drumbeat.store.redis.connection import Value
from drumbeat.store.redis.pool import RedisPool
from drumbeat.store.redis.record_format import pairs
from drumbeat.store.redis.rows import encode_json


class RedisSteps:
    def __init__(self, pool: RedisPool) -> None:
        self._pool = pool

    async def record(self, instance: InstanceId, steps: Sequence[NewStep]) -> list[WriteStatus]:
        if not steps:
            return []
        values: list[Value] = [instance]
        for each in steps:
            token, times = each.claim.token, (each.started_at, None, each.finished_at)
            values += (pack_id(each.claim.id), token, f"{StepKind.STEP}\0{each.name}")
            values.append(encode_json((token, *times, None, each.result)))
        answers = await self._pool.run("record_steps", *values)
        return [WriteStatus.APPLIED if kept else WriteStatus.STALE for kept in answers]

    async def load(self, ids: Sequence[JobId]) -> dict[JobId, list[StepRecord]]:
        wanted = [id for id in ids if is_job_id(id)]
        answers = await self._pool.run("load_steps", *map(pack_id, wanted)) if wanted else []
        known = {id: decode_steps(id, flat) for id, flat in zip(wanted, answers, strict=True)}
        return {id: known.get(id, []) for id in ids}


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
