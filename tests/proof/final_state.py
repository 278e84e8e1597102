"""Reads what a store says at the end, as records of a history. The simulation and chaos share it."""

from collections.abc import Sequence

from drumbeat.core.dependencies import BLOCKED_ON_PARENTS
from drumbeat.core.job import Attempt, Job
from drumbeat.core.schedule import Fire
from tests.proof.history import AttemptRecord, FireRecord, JobRecord


def read_job(job: Job, attempts: Sequence[Attempt]) -> JobRecord:
    return JobRecord(
        id=str(job.id),
        task=job.task,
        state=str(job.state),
        failures=job.failures,
        crashes=job.crashes,
        replays=job.replays,
        result=job.result,
        unique_key=job.key if job.task == "unique" else None,
        attempts=tuple(
            AttemptRecord(token=each.token, outcome=str(each.outcome), started=each.started_at is not None)
            for each in attempts
        ),
        schedule=job.schedule,
        waits_for_parents=job.blocked_on == BLOCKED_ON_PARENTS,
        error=None if job.error is None else job.error.type,
    )


def read_fire(fire: Fire) -> FireRecord:
    return FireRecord(
        schedule=fire.schedule,
        at=fire.at / 1e6,
        last=fire.last / 1e6,
        count=fire.count,
        outcome=str(fire.outcome),
        job=None if fire.job is None else str(fire.job),
        recorded_at=fire.recorded_at / 1e6,
        reason=fire.reason,
    )
