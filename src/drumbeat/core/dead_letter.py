"""Dead letters: groups of them, and the on_dead job that follows when a job becomes dead (by a worker, a crash, an expired
block)."""

from datetime import datetime
from typing import Annotated

import msgspec

from drumbeat.core.field_doc import doc
from drumbeat.core.job import Failure, Job, NewJob
from drumbeat.ids import JobId, new_job_id

SIGNATURE = "on_dead"
_encoder = msgspec.json.Encoder()


class DeadLetterPayload(msgspec.Struct, frozen=True):
    """The arguments of an on_dead task."""

    job: Job
    error: Failure


class DeadLetterGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters of one task with the same type of error."""

    task: str
    error: Annotated[str, doc("The type; empty: no error is on record.")]
    count: int
    first_at: Annotated[datetime, doc("When the first and the last of them died.")]
    last_at: datetime
    sample: Annotated[JobId, doc("The one that died last.")]
    message: Annotated[str, doc("Of its error.")]


def make_follow_up(job: Job, error: Failure) -> NewJob | None:
    """The on_dead job of a dead job; None where it has no on_dead.

    It goes into the queue of the dead job, whose workers know the task and so its on_dead as well, and into its trace.
    """
    if job.on_dead is None:
        return None
    return NewJob(
        id=new_job_id(),
        task=job.on_dead,
        queue=job.queue,
        args=_encoder.encode(DeadLetterPayload(job, error)).decode(),
        signature=SIGNATURE,
        priority=job.priority,
        tenant=job.tenant,
        trace=job.trace,
        parent=job.id,
    )
