"""Reads what a store says at the end, as records of a history. The simulation and chaos share it."""

from collections.abc import Sequence

from drumbeat.core.dependencies import BLOCKED_ON_PARENTS
from drumbeat.core.job import Attempt, Job
from drumbeat.core.schedule import Fire
from drumbeat.durations import to_us
from drumbeat.ids import JobId
from drumbeat.store.protocol import Store
from tests.proof.history import AttemptRecord, FireRecord, JobRecord, SignalRead

MAX_ASKED = 100


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
            AttemptRecord(
                token=each.token,
                outcome=str(each.outcome),
                started=each.started_at is not None,
                finished_at=to_us(each.finished_at),
            )
            for each in attempts
        ),
        schedule=job.schedule,
        waits_for_parents=job.blocked_on == BLOCKED_ON_PARENTS,
        error=None if job.error is None else job.error.type,
        group=job.group,
    )


async def read_signals(store: Store, jobs: Sequence[JobRecord]) -> list[SignalRead]:
    """The signals of sagas that were read."""
    sagas = [JobId(job.id) for job in jobs if job.task == "saga"]
    found: list[SignalRead] = []
    for first in range(0, len(sagas), MAX_ASKED):
        signals = await store.steps.list_signals(sagas[first : first + MAX_ASKED])
        found += [
            SignalRead(job=str(signal.job), value=signal.id, wait=signal.read_by)
            for some in signals.values()
            for signal in some
            if signal.read_by is not None
        ]
    return found


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
