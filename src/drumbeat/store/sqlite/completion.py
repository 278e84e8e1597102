"""Completion of runs on SQLite: which outcomes still count, and what is written about them. Runs on the writer's thread.

Success is the hot path: two statements for a whole batch, no row of which is read into Python. Every other outcome is
decided by `core.transitions` from a few columns of its job, and written in batches: to history (cancelled), to the dead
letters, or back to pending.
"""

from collections.abc import Sequence

from drumbeat.core.claim import Outcome, WriteStatus
from drumbeat.core.job import Failure, JobState, OutcomeKind
from drumbeat.core.transitions import Transition, decide_outcomes, mark_duplicates, split_statuses
from drumbeat.core.uniqueness import returning_keys, unique_after_return
from drumbeat.ids import InstanceId, JobId
from drumbeat.store.sqlfile import Statements
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.connection import NULL
from drumbeat.store.sqlite.insert import SqliteInserter, load_unique_keys
from drumbeat.store.sqlite.row_decoder import read_scalars
from drumbeat.store.sqlite.rows import SqliteHeldJob, as_json
from drumbeat.store.sqlite.writer import WriteContext

Row = tuple[str | int | None, ...]
Decided = tuple[SqliteHeldJob, Transition]

_SUCCEEDED, _CANCELLED = OutcomeKind.SUCCEEDED.value, OutcomeKind.CANCELLED.value


class SqliteCompletionWriter:
    def __init__(self, sql: Statements, inserter: SqliteInserter) -> None:
        self._sql = sql
        self.inserter = inserter

    def record_outcomes(
        self, write: WriteContext, instance: InstanceId, outcomes: Sequence[Outcome]
    ) -> list[WriteStatus]:
        """Record outcomes; one status for each."""
        applied: set[tuple[JobId, int]] = set()
        successes = [outcome for outcome in outcomes if outcome.kind is OutcomeKind.SUCCEEDED]
        if successes:
            ended = self._record_successes(write, instance, successes)
            if ended is None and len(successes) == len(outcomes):
                return [WriteStatus.APPLIED] * len(outcomes)
            applied |= {(each.id, each.token) for each in successes} if ended is None else ended
        if len(successes) < len(outcomes):
            others = [outcome for outcome in outcomes if outcome.kind is not OutcomeKind.SUCCEEDED]
            applied |= self._record_others(write, instance, others)
        return self._build_statuses(write, instance, outcomes, applied)

    def release(self, write: WriteContext, instance: InstanceId, outcomes: Sequence[Outcome]) -> int:
        """Record the outcomes of claims that never started; return how many were current."""
        return len(self._record_others(write, instance, outcomes))

    def apply(self, write: WriteContext, instance: InstanceId, decided: Sequence[Decided]) -> None:
        """Write transitions of jobs that run under this instance, in a few statements for all of them."""
        self._write_cancelled(write, instance, [each for each in decided if each[1].state is JobState.CANCELLED])
        self._write_dead(write, [each for each in decided if each[1].state is JobState.DEAD])
        self._write_pending(write, instance, [each for each in decided if each[1].state is JobState.PENDING])
        follow_ups = [transition.follow_up for _, transition in decided if transition.follow_up is not None]
        self.inserter.add_follow_ups(write, follow_ups)

    def _write_cancelled(self, write: WriteContext, instance: InstanceId, decided: Sequence[Decided]) -> None:
        by_outcome: dict[str | None, list[Row]] = {}
        for job, to in decided:
            times = (_or_null(to.started_at), to.finished_at)
            recorded = None if to.recorded is None else to.recorded.value
            by_outcome.setdefault(recorded, []).append((job.id, job.token, *times, NULL, NULL, _error_json(to.error)))
        for recorded, ended in by_outcome.items():
            fixed = (instance, _CANCELLED, recorded, write.now)
            self._delete_finished(write, self._move_to_history(write, fixed, ended))

    def _write_dead(self, write: WriteContext, decided: Sequence[Decided]) -> None:
        if not decided:
            return
        dead = []
        for job, to in decided:
            recorded = NULL if to.recorded is None else to.recorded.value
            times = (_or_null(to.started_at), to.finished_at)
            dead.append((job.id, recorded, *times, to.failures, to.crashes, _error_json(to.error)))
        write.db.run_rows(self._sql.insert_dead_letters, 7, dead, (write.now,))
        delete_ended_jobs(write, self._sql, self._sql.delete_jobs, {"ids": as_json([job.id for job, _ in decided])})

    def _write_pending(self, write: WriteContext, instance: InstanceId, decided: Sequence[Decided]) -> None:
        if not decided:
            return
        jobs = [job for job, _ in decided]
        keys = load_unique_keys(self._sql, write, returning_keys(jobs))
        requeued: list[Row] = []
        attempts: list[Row] = []
        for (job, to), unique in zip(decided, unique_after_return(jobs, keys), strict=True):
            error = _error_json(to.error)
            blocked = (to.blocked_on or NULL, _or_null(to.blocked_since))
            requeued.append((job.seq, to.run_at, to.failures, to.crashes, unique, *blocked, error))
            if to.recorded is not None:
                run = (to.recorded.value, _or_null(to.started_at), to.finished_at, error)
                attempts.append((job.id, job.token, instance, *run))
        if attempts:
            write.db.run_rows(self._sql.insert_attempts, 7, attempts)
        write.db.run_rows(self._sql.requeue, 8, requeued)
        write.notify(min(to.run_at for _, to in decided))

    def _record_successes(
        self, write: WriteContext, instance: InstanceId, successes: Sequence[Outcome]
    ) -> set[tuple[JobId, int]] | None:
        """Record successes; return the claims that were current. None: all of them, which is nearly always so."""
        plain: list[Row] = []
        others: list[Row] = []
        for each in successes:
            if each.result is None and each.result_error is None and each.started_at and each.finished_at:
                plain.append((each.id, each.token, each.started_at, each.finished_at))
            else:
                times = (_or_null(each.started_at), _or_null(each.finished_at))
                results = (_or_null(each.result), _or_null(each.result_error))
                others.append((each.id, each.token, *times, *results, NULL))
        finished = write.db.run_rows(self._sql.move_succeeded, 4, plain, (instance,)) if plain else 0
        finished += self._move_to_history(write, (instance, "succeeded", _SUCCEEDED, write.now), others)
        self._delete_finished(write, finished)
        if finished == len(successes):
            return None
        if not finished:
            return set()
        found = rows.claim_refs(write.db, self._sql.moved_after, {"seq": write.db.last_rowid - finished})
        return {(claim.id, claim.token) for claim in found}

    def _move_to_history(self, write: WriteContext, fixed: Row, ended: Sequence[Row]) -> int:
        """Move jobs to history; return how many were current."""
        return write.db.run_rows(self._sql.move_to_history, 7, ended, fixed) if ended else 0

    def _delete_finished(self, write: WriteContext, count: int) -> None:
        """Delete from the live table what was just moved: the last `count` rows of history, which have adjacent rowids."""
        if count:
            delete_ended_jobs(write, self._sql, self._sql.delete_finished, {"seq": write.db.last_rowid - count})

    def _record_others(
        self, write: WriteContext, instance: InstanceId, outcomes: Sequence[Outcome]
    ) -> set[tuple[JobId, int]]:
        """Record outcomes other than success; return the claims that were current."""
        if not outcomes:
            return set()
        ids = as_json([outcome.id for outcome in outcomes])
        running = rows.held(write.db, self._sql.held, {"ids": ids, "instance": instance})
        decided = decide_outcomes(running, outcomes, write.now)
        self.apply(write, instance, decided)
        return {(job.id, job.token) for job, _ in decided}

    def _build_statuses(
        self, write: WriteContext, instance: InstanceId, outcomes: Sequence[Outcome], applied: set[tuple[JobId, int]]
    ) -> list[WriteStatus]:
        statuses, unsure = split_statuses(outcomes, applied)
        if unsure:
            claims = as_json([(outcomes[at].id, outcomes[at].token) for at in unsure])
            recorded = read_scalars(write.db, self._sql.recorded_outcomes, str, {"holds": claims, "instance": instance})
            if refused := mark_duplicates(statuses, outcomes, unsure, recorded):
                write.db.run(self._sql.count_refused, {"refused": refused, "instance": instance})
        return statuses


def delete_ended_jobs(write: WriteContext, sql: Statements, statement: str, parameters: dict[str, str | int]) -> None:
    """Delete jobs that have ended from the live table.

    A trigger starts the successor of a schedule's job. Where there is none, the next fire of an interval counts from now,
    when the store records the end; `finished_at` is the worker's word, and may be long ago.
    """
    before = write.db.total_changes
    deleted = write.db.run(statement, parameters)
    if write.db.total_changes - before > deleted:
        write.db.run(sql.advance_intervals, {"now": write.now})
        write.notify(write.now)


def _or_null(value: str | int | None) -> str | int:
    return NULL if value is None else value


def _error_json(error: Failure | None) -> str | int:
    return NULL if error is None else as_json(error)
