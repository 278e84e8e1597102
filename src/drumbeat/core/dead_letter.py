"""The follow-up of a death: the on_dead job, made by whoever makes a job dead (worker, rescuer, canceller of versions); and
what dead letters have in common."""

from datetime import datetime

import msgspec

from drumbeat.core.job import Failure, Job, NewJob
from drumbeat.ids import JobId, new_job_id

SIGNATURE = "on_dead"
_encoder = msgspec.json.Encoder()


class DeadLetterPayload(msgspec.Struct, frozen=True):
    """The arguments of an on_dead task."""

    job: Job
    error: Failure


class DeadLetterGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters of one task that died of the same type of error."""

    task: str
    error: str
    """The type; empty: none is on record."""
    count: int
    first_at: datetime
    """When the first of them died, and the last."""
    last_at: datetime
    sample: JobId
    """The one that died last."""
    message: str
    """Of its error."""


def make_follow_up(job: Job, error: Failure) -> NewJob | None:
    """The on_dead job for this death; None when nobody asked for one.

    It goes into the dead job's own queue: workers of that queue knew the task, so they know its on_dead as well; and into
    its trace.
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
    )
