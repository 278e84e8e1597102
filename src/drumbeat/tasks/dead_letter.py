"""The task behind `@task.on_dead`. The transaction that makes a job dead writes its arguments, not an enqueue."""

from __future__ import annotations

from typing import Any

from drumbeat.codec import MAX_PAYLOAD, decode_result
from drumbeat.core.dead_letter import SIGNATURE, DeadLetterPayload
from drumbeat.errors import InvalidArguments
from drumbeat.handle import job_error


class DeadLetterSignature:
    """Replaces `codec.Signature`: `(job, error)`, decoded from a DeadLetterPayload."""

    hash = SIGNATURE
    returns: Any = Any

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, limit: int = MAX_PAYLOAD) -> str:
        raise InvalidArguments("an on_dead task is enqueued by the death of a job, and in no other way")

    def decode(self, raw: str | bytes, *, limit: int = MAX_PAYLOAD) -> tuple[tuple[Any, ...], dict[str, Any]]:
        payload: DeadLetterPayload = decode_result(raw, DeadLetterPayload)
        job = payload.job
        return (job, job_error(job.id, job.task, job.state, payload.error)), {}
