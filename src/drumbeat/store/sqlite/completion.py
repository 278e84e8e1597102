"""Completion of runs on SQLite: which outcomes still count, and what is written about them. Runs on the writer's thread.

Success is the hot path: two statements for a whole batch, no row of which is read into Python. Every other outcome is
decided by `core.transitions` from a few columns of its job, and written in batches: to history (cancelled, expired), to the
dead letters, or back to pending.
"""

from collections.abc import Iterable, Sequence

from drumbeat.core.claim import Outcome, WriteStatus
from drumbeat.core.job import JobState, OutcomeKind
from drumbeat.core.transitions import HeldJob, Transition, decide_outcomes, mark_duplicates, split_statuses
from drumbeat.core.uniqueness import returning_keys
from drumbeat.ids import InstanceId, JobId
from drumbeat.store.completion_rows import (
    Row,
    awaited_signals,
    dead_row,
    encode_failure,
    pending_rows,
    recorded_outcome,
    select_state,
    suspension_rows,
)
from drumbeat.store.records import as_json
from drumbeat.store.sqlfile import Statements
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.connection import NULL
from drumbeat.store.sqlite.insert import SqliteInserter, load_unique_keys
from drumbeat.store.sqlite.row_decoder import read_scalars
from drumbeat.store.sqlite.writer import WriteContext

Decided = tuple[HeldJob, Transition]

_SUCCEEDED = OutcomeKind.SUCCEEDED.value


class SqliteCompletionWriter:
    def __init__(self, sql: Statements, limits: Statements, inserter: SqliteInserter) -> None:
        self._sql = sql
        self._limits = limits
        self.inserter = inserter

    def record_outcomes(
        self, write: WriteContext, instance: InstanceId, outcomes: Sequence[Outcome]
    ) -> list[WriteStatus]:
        """Record outcomes; one status for each."""
        applied: set[tuple[JobId, int]] = set()
        successes = [outcome for outcome in outcomes if outcome.kind is OutcomeKind.SUCCEEDED]
        if successes:
            ended = self._record_successes(write, instance, successes)
            self.inserter.add_follow_ups(
                write,
                [
                    each.follow_up
                    for each in successes
                    if each.follow_up is not None and (ended is None or (each.id, each.token) in ended)
                ],
            )
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
        self._write_finished(write, instance, select_state(decided, JobState.CANCELLED, JobState.EXPIRED))
        if dead := [dead_row(*each) for each in select_state(decided, JobState.DEAD)]:
            self.insert_dead(write, dead)
        self._write_pending(write, instance, select_state(decided, JobState.PENDING))
        follow_ups = [transition.follow_up for _, transition in decided if transition.follow_up is not None]
        self.inserter.add_follow_ups(write, follow_ups)

    def insert_dead(self, write: WriteContext, dead: Sequence[Row]) -> None:
        """Make dead letters of live jobs; rows as `dead_row`."""
        write.db.run_rows(self._sql.insert_dead_letters, 7, without_none(dead), (write.now,))
        self.delete_ended(write, self._sql.delete_jobs, {"ids": as_json([row[0] for row in dead])})

    def delete_ended(self, write: WriteContext, statement: str, parameters: dict[str, str | int]) -> None:
        """Delete jobs that have ended from the live table.

        Triggers leave the releases of parents, give back the room of jobs of lanes, and start the successor of a schedule's
        job. Where there is none, the next fire of an interval counts from now, when the store records the end; `finished_at` is
        the worker's word, and may be long ago.
        """
        before = write.db.total_changes
        deleted = write.db.run(statement, parameters)
        changed = write.db.total_changes - before - deleted
        if changed:
            write.has_releases = True  # or a schedule has changed: the trigger of either
        if changed and (
            write.db.run(self._sql.advance_intervals, {"now": write.now})
            or changed > 1
            or write.db.value(self._limits.has_ready_lane, {"now": write.now})
        ):
            write.notify(write.now)  # not where one schedule alone has changed: then no successor was started

    def _write_finished(self, write: WriteContext, instance: InstanceId, decided: Sequence[Decided]) -> None:
        """Write what ended without a result or a dead letter."""
        by_outcome: dict[tuple[str, str | None], list[Row]] = {}
        for job, to in decided:
            ended = (job.id, job.token, to.started_at, to.finished_at, None, None, encode_failure(to.error))
            by_outcome.setdefault((to.state.value, recorded_outcome(to)), []).append(ended)
        for (state, recorded), rows_of_outcome in by_outcome.items():
            fixed = (instance, state, recorded, write.now)
            self._delete_finished(write, self._move_to_history(write, fixed, without_none(rows_of_outcome)))

    def _write_pending(self, write: WriteContext, instance: InstanceId, decided: Sequence[Decided]) -> None:
        if not decided:
            return
        keys = load_unique_keys(self._sql, write, returning_keys(job for job, _ in decided))
        requeued, attempts = pending_rows(instance, decided, keys)
        if attempts:
            write.db.run_rows(self._sql.insert_attempts, 7, without_none(attempts))
        write.db.run_rows(self._sql.requeue, 10, without_none(requeued))
        if moved := [job.id for job, to in decided if to.lane is not None]:
            write.db.run(self._limits.place_moved, {"ids": as_json(moved)})
        if suspensions := suspension_rows(decided):
            write.db.run_rows(self._sql.insert_suspensions, 7, without_none(suspensions))
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
            self.delete_ended(write, self._sql.delete_finished, {"seq": write.db.last_rowid - count})

    def _record_others(
        self, write: WriteContext, instance: InstanceId, outcomes: Sequence[Outcome]
    ) -> set[tuple[JobId, int]]:
        """Record outcomes other than success; return the claims that were current."""
        if not outcomes:
            return set()
        ids = as_json([outcome.id for outcome in outcomes])
        running = rows.held(write.db, self._sql.held, {"ids": ids, "instance": instance})
        signalled: list[JobId] = []
        if waits := awaited_signals(outcomes):
            signalled = rows.ids(write.db.value(self._sql.signalled, {"waits": as_json(waits)}))
        decided = decide_outcomes(running, outcomes, write.now, signalled)
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


def _or_null(value: str | int | None) -> str | int:
    return NULL if value is None else value


def without_none(rows: Iterable[Row]) -> list[Row]:
    """Rows for VALUES: with NULL in the place of None."""
    return [tuple([NULL if value is None else value for value in row]) for row in rows]
