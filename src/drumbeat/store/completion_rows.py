"""Rows that the SQL engines write about runs that ended, in the order of columns in their `completion.sql`. Pure."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from drumbeat.core.claim import Outcome
from drumbeat.core.follow_up import make_on_dead_job
from drumbeat.core.job import Failure, JobState, NewJob
from drumbeat.core.suspension import FOREVER_US
from drumbeat.core.transitions import HeldJob, Transition, expired_block_failure
from drumbeat.core.uniqueness import UniqueKeys, unique_after_return
from drumbeat.ids import InstanceId, JobId
from drumbeat.store.records import StoredJobRow, as_json

Row = tuple[str | int | None, ...]
H = TypeVar("H", bound=HeldJob)


def encode_failure(error: Failure | None) -> str | None:
    return None if error is None else as_json(error)


def select_state(decided: Iterable[tuple[H, Transition]], *states: JobState) -> list[tuple[H, Transition]]:
    """Those that get one of these states."""
    return [each for each in decided if each[1].state in states]


def recorded_outcome(to: Transition) -> str | None:
    return None if to.recorded is None else to.recorded.value


def finished_row(job: HeldJob, to: Transition) -> Row:
    """id, state, outcome, started_at, finished_at, result, result_error, error."""
    results = (to.result, to.result_error, encode_failure(to.error))
    return (job.id, to.state.value, recorded_outcome(to), to.started_at, to.finished_at, *results)


def dead_row(job: HeldJob, to: Transition) -> Row:
    """id, outcome, started_at, finished_at, failures, crashes, error."""
    counts = (to.failures, to.crashes)
    return (job.id, recorded_outcome(to), to.started_at, to.finished_at, *counts, encode_failure(to.error))


def pending_rows(
    instance: InstanceId, decided: Sequence[tuple[HeldJob, Transition]], keys: UniqueKeys
) -> tuple[list[Row], list[Row]]:
    """Jobs that are pending again: id, run_at, failures, crashes, unique, blocked_on, blocked_since, error, suspended,
    lane; and their attempts: id, token, instance, outcome, started_at, finished_at, error."""
    requeued: list[Row] = []
    attempts: list[Row] = []
    for (job, to), unique in zip(decided, unique_after_return([job for job, _ in decided], keys), strict=True):
        error = encode_failure(to.error)
        blocked = (to.blocked_on, to.blocked_since)
        requeued.append((job.id, to.run_at, to.failures, to.crashes, unique, *blocked, error, to.suspended, to.lane))
        if to.recorded is not None:
            attempts.append((job.id, job.token, instance, to.recorded.value, to.started_at, to.finished_at, error))
    return requeued, attempts


def awaited_signals(outcomes: Iterable[Outcome]) -> list[tuple[JobId, str]]:
    """Job and name of the signals that runs begin to wait for: one that is there already makes its job due at once."""
    return [
        (each.id, each.suspension.signal)
        for each in outcomes
        if each.suspension is not None and each.suspension.signal is not None
    ]


def suspension_rows(decided: Iterable[tuple[HeldJob, Transition]]) -> list[Row]:
    """Sleeps and waits of jobs that are suspended: job, kind, name, token, started_at, until, signal."""
    found: list[Row] = []
    for job, to in decided:
        if (each := to.suspension) is not None:
            until = None if each.until == FOREVER_US else each.until
            found.append((job.id, each.kind.value, each.name, job.token, to.finished_at, until, each.signal))
    return found


def expired_rows(jobs: Iterable[StoredJobRow], now: int) -> tuple[list[Row], list[NewJob]]:
    """Rows as `dead_row` of jobs that were blocked for too long, and their on_dead jobs."""
    dead: list[Row] = []
    follow_ups: list[NewJob] = []
    for job in jobs:
        error = expired_block_failure(job.blocked_on or "", job.blocked_since or now, now)
        dead.append((job.id, None, None, now, job.failures, job.crashes, as_json(error)))
        if (follow_up := make_on_dead_job(job.to_record(), error)) is not None:
            follow_ups.append(follow_up)
    return dead, follow_ups
