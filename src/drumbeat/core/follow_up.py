"""Follow-ups: the jobs that are stored in the very step that ends another one. `on_dead` when it becomes dead (by a worker, a
crash, an expired block), `on_success` when it has succeeded (by its worker, or inside the handler's own transaction)."""

import msgspec

from drumbeat.core.job import Failure, Job, NewJob
from drumbeat.core.lanes import lane_name
from drumbeat.ids import new_job_id

DEAD_SIGNATURE = "on_dead"
SUCCESS_SIGNATURE = "on_success"
_encoder = msgspec.json.Encoder()


class DeadLetterPayload(msgspec.Struct, frozen=True):
    """The arguments of an on_dead task."""

    job: Job
    error: Failure


class SuccessPayload(msgspec.Struct, frozen=True):
    """The arguments of an on_success task; the result is in the job."""

    job: Job


def make_on_dead_job(job: Job, error: Failure) -> NewJob | None:
    """The on_dead job of a dead job; None where it has no on_dead."""
    if job.on_dead is None:
        return None
    return _make_follow_up(job, job.on_dead, DEAD_SIGNATURE, DeadLetterPayload(job, error))


def make_on_success_job(job: Job, task: str) -> NewJob:
    """The job of the on_success task `task` of a job that has succeeded."""
    return _make_follow_up(job, task, SUCCESS_SIGNATURE, SuccessPayload(job))


def _make_follow_up(job: Job, task: str, signature: str, payload: DeadLetterPayload | SuccessPayload) -> NewJob:
    """It goes into the queue of the ended job, whose workers know the task and so its follow-ups, into its group and its trace.
    It stays in the lane if that is one of the queue's; what stands over it where the lane was the task's, its worker knows."""
    return NewJob(
        id=new_job_id(),
        task=task,
        queue=job.queue,
        args=_encoder.encode(payload).decode(),
        signature=signature,
        priority=job.priority,
        group=job.group,
        lane=job.lane if job.lane.startswith(lane_name("", "")) else "",
        trace=job.trace,
        parent=job.id,
    )
