"""The tasks behind `@task.on_dead` and `@task.on_success`. The step that ends a job writes their arguments, not an enqueue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drumbeat.codec import MAX_PAYLOAD, decode_result
from drumbeat.core.follow_up import DEAD_SIGNATURE, SUCCESS_SIGNATURE, DeadLetterPayload, SuccessPayload
from drumbeat.errors import InvalidArguments
from drumbeat.handle import job_error


class DeadLetterSignature:
    """Replaces `codec.Signature`: `(job, error)`, decoded from a DeadLetterPayload."""

    hash = DEAD_SIGNATURE
    returns: Any = Any

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, limit: int = MAX_PAYLOAD) -> str:
        raise InvalidArguments("an on_dead task is enqueued by the death of a job, and in no other way")

    def decode(self, raw: str | bytes, *, limit: int = MAX_PAYLOAD) -> tuple[tuple[Any, ...], dict[str, Any]]:
        payload: DeadLetterPayload = decode_result(raw, DeadLetterPayload)
        job = payload.job
        return (job, job_error(job.id, job.task, job.state, payload.error)), {}


class SuccessSignature:
    """Likewise `(job, result)`, decoded from a SuccessPayload. `result_type`: that of the task which succeeded."""

    hash = SUCCESS_SIGNATURE
    returns: Any = Any

    def __init__(self, result_type: Callable[[], Any]) -> None:
        self._result_type = result_type

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, limit: int = MAX_PAYLOAD) -> str:
        raise InvalidArguments("an on_success task is enqueued by the success of a job, and in no other way")

    def decode(self, raw: str | bytes, *, limit: int = MAX_PAYLOAD) -> tuple[tuple[Any, ...], dict[str, Any]]:
        job = decode_result(raw, SuccessPayload).job
        return (job, None if job.result is None else decode_result(job.result, self._result_type())), {}
