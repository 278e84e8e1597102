"""How runs end: the verdict on each outcome, and what becomes of the job. Runs on the writer's thread.

Success is the hot path: two statements for a whole batch, and no row of it is ever looked at in Python. Everything else is
decided here, job by job, from the few columns that matter, and then written in batches: to history (cancelled), to the dead
letters, or back to pending.
"""

from collections.abc import Sequence

from drumbeat.core.claim import Outcome, WriteStatus
from drumbeat.core.job import Failure, NewJob, OutcomeKind, Unique
from drumbeat.ids import InstanceId, JobId
from drumbeat.store.outcomes import UNCHARGED, is_same_outcome
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.connection import NULL
from drumbeat.store.sqlite.insert import SqliteInserter, SqliteUniqueKeys
from drumbeat.store.sqlite.row_decoder import read_scalars
from drumbeat.store.sqlite.rows import SqliteHeldJob, as_json
from drumbeat.store.sqlite.statements import SqliteJobSql
from drumbeat.store.sqlite.writer import WriteContext

Row = tuple[str | int | None, ...]

_SUCCEEDED, _CANCELLED = OutcomeKind.SUCCEEDED.value, OutcomeKind.CANCELLED.value


class SqliteTransitions:
    """What is to be written about a batch of runs that ended otherwise than well."""

    def __init__(self, instance: InstanceId, now: int) -> None:
        self._instance = instance
        self._now = now
        self.cancelled: dict[str | None, list[Row]] = {}
        self.dead: list[Row] = []
        self.requeued: list[tuple[SqliteHeldJob, Row]] = []
        self.attempts: list[Row] = []
        self.follow_ups: list[NewJob] = []
        self.earliest_run_at: int | None = None

    def decide(self, held: SqliteHeldJob, outcome: Outcome) -> None:
        """Decide one outcome of a claim that is current."""
        kind = outcome.kind
        crashes = held.crashes + (kind is OutcomeKind.CRASHED)
        if kind is OutcomeKind.DEAD or (kind is OutcomeKind.CRASHED and crashes >= held.crash_limit):
            self.make_dead(held, outcome, crashes)
        elif kind is OutcomeKind.CANCELLED or held.cancel_requested:
            self.cancel(held, outcome, _CANCELLED)
        else:
            self.requeue(held, outcome, crashes)

    def cancel(self, held: SqliteHeldJob, outcome: Outcome, recorded: str | None) -> None:
        finished_at = outcome.finished_at or self._now
        row = (held.id, held.token, _or_null(outcome.started_at), finished_at, NULL, NULL, _error_json(outcome.error))
        self.cancelled.setdefault(recorded, []).append(row)

    def make_dead(self, held: SqliteHeldJob, outcome: Outcome, crashes: int) -> None:
        failures = held.failures + (outcome.kind is OutcomeKind.DEAD)
        started_at, finished_at = _or_null(outcome.started_at), _or_null(outcome.finished_at)
        self.dead.append(
            (held.id, outcome.kind.value, started_at, finished_at, failures, crashes, _error_json(outcome.error))
        )
        if outcome.follow_up is not None:
            self.follow_ups.append(outcome.follow_up)

    def requeue(self, held: SqliteHeldJob, outcome: Outcome, crashes: int) -> None:
        kind = outcome.kind
        charged = kind is OutcomeKind.RETRY
        started = outcome.started_at is not None or kind not in UNCHARGED
        blocked_on = outcome.blocked_on if kind is OutcomeKind.BLOCKED else None
        blocked_since = None if started else held.blocked_since
        if blocked_on is not None and blocked_since is None:
            blocked_since = self._now
        run_at = held.run_at
        if kind is OutcomeKind.RETRY or kind is OutcomeKind.SNOOZED:
            run_at = self._now + outcome.delay
        elif kind is not OutcomeKind.BLOCKED:
            run_at = min(run_at, self._now)
        error = _error_json(outcome.error)
        unique = held.unique.value if held.unique else ""
        waits = (blocked_on or NULL, _or_null(blocked_since))
        row = (held.seq, run_at, held.failures + charged, crashes, unique, *waits, error)
        self.requeued.append((held, row))
        self.earliest_run_at = run_at if self.earliest_run_at is None else min(run_at, self.earliest_run_at)
        if started:
            finished_at = outcome.finished_at or self._now
            self.attempts.append(
                (held.id, held.token, self._instance, kind.value, _or_null(outcome.started_at), finished_at, error)
            )


class SqliteCompletionWriter:
    def __init__(self, sql: SqliteJobSql, inserter: SqliteInserter) -> None:
        self._sql = sql
        self._inserter = inserter

    def record_outcomes(
        self, write: WriteContext, instance: InstanceId, outcomes: Sequence[Outcome]
    ) -> list[WriteStatus]:
        """Record outcomes; one verdict for each."""
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
        """Like `end` for claims that never started; how many were current."""
        return len(self._record_others(write, instance, outcomes))

    def apply(self, write: WriteContext, instance: InstanceId, transitions: SqliteTransitions) -> None:
        """Carry out what was decided."""
        for recorded, ended in transitions.cancelled.items():
            self._delete_finished(
                write, self._move_to_history(write, (instance, "cancelled", recorded, write.now), ended)
            )
        if transitions.dead:
            write.db.run_rows(self._sql.insert_dead_letters, 7, transitions.dead, (write.now,))
            ids = as_json([row[0] for row in transitions.dead])
            if delete_ended_jobs(write, self._sql.delete_jobs, {"ids": ids}):
                write.db.run(self._sql.advance_after_dead, {"ids": ids, "now": write.now})
        if transitions.attempts:
            write.db.run_rows(self._sql.insert_attempts, 7, transitions.attempts)
        if transitions.requeued:
            write.db.run_rows(self._sql.requeue, 8, self._drop_taken_keys(write, transitions.requeued))
        if transitions.earliest_run_at is not None:
            write.notify(transitions.earliest_run_at)
        self._inserter.add_follow_ups(write, transitions.follow_ups)

    def _record_successes(
        self, write: WriteContext, instance: InstanceId, successes: Sequence[Outcome]
    ) -> set[tuple[JobId, int]] | None:
        """None: all of them, which is nearly always so."""
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
        return {(hold.id, hold.token) for hold in found}

    def _move_to_history(self, write: WriteContext, fixed: Row, ended: Sequence[Row]) -> int:
        """Move jobs to history; how many were current."""
        return write.db.run_rows(self._sql.move_to_history, 7, ended, fixed) if ended else 0

    def _delete_finished(self, write: WriteContext, finished: int) -> None:
        """Take out of the live table what was just moved: the last so many rows of history, which are in one piece."""
        if finished:
            seq = write.db.last_rowid - finished
            if delete_ended_jobs(write, self._sql.delete_finished, {"seq": seq}):
                write.db.run(self._sql.advance_after_finished, {"seq": seq, "now": write.now})

    def _record_others(
        self, write: WriteContext, instance: InstanceId, outcomes: Sequence[Outcome]
    ) -> set[tuple[JobId, int]]:
        if not outcomes:
            return set()
        ids = as_json([outcome.id for outcome in outcomes])
        found = rows.held(write.db, self._sql.held, {"ids": ids, "instance": instance})
        current = {(held.id, held.token): held for held in found}
        transitions = SqliteTransitions(instance, write.now)
        applied: set[tuple[JobId, int]] = set()
        for outcome in outcomes:
            # Taken out: a second outcome of the same claim in this very call finds nothing.
            held = current.pop((outcome.id, outcome.token), None)
            if held is not None:
                transitions.decide(held, outcome)
                applied.add((outcome.id, outcome.token))
        self.apply(write, instance, transitions)
        return applied

    def _build_statuses(
        self, write: WriteContext, instance: InstanceId, outcomes: Sequence[Outcome], applied: set[tuple[JobId, int]]
    ) -> list[WriteStatus]:
        statuses: list[WriteStatus] = []
        unsure: list[int] = []
        for outcome in outcomes:
            hold = (outcome.id, outcome.token)
            if hold in applied:
                applied.remove(hold)
                statuses.append(WriteStatus.APPLIED)
            else:
                unsure.append(len(statuses))
                statuses.append(WriteStatus.STALE)
        if unsure:
            holds = as_json([(outcomes[at].id, outcomes[at].token) for at in unsure])
            recorded = read_scalars(write.db, self._sql.recorded_outcomes, str, {"holds": holds, "instance": instance})
            for at, kind in zip(unsure, recorded, strict=True):
                if is_same_outcome(outcomes[at].kind, kind):
                    statuses[at] = WriteStatus.DUPLICATE
            if refused := statuses.count(WriteStatus.STALE):
                write.db.run(self._sql.count_refused, {"refused": refused, "instance": instance})
        return statuses

    def _drop_taken_keys(self, write: WriteContext, requeued: Sequence[tuple[SqliteHeldJob, Row]]) -> list[Row]:
        """A job of Unique.PENDING whose key was taken while it ran comes back as one that is not unique."""
        returning = [held for held, _ in requeued if held.unique is Unique.PENDING and held.key is not None]
        if not returning:
            return [row for _, row in requeued]
        keys = SqliteUniqueKeys(self._sql, write, ((held.task, held.key) for held in returning if held.key is not None))
        result: list[Row] = []
        for held, row in requeued:
            if held.unique is Unique.PENDING:
                if keys.find_holder(held.task, held.key, Unique.PENDING) is not None:
                    row = (*row[:4], "", *row[5:])
                else:
                    keys.take(held.task, held.key, Unique.PENDING, held.id)
            result.append(row)
        return result


def delete_ended_jobs(write: WriteContext, statement: str, parameters: dict[str, str | int]) -> bool:
    """Delete jobs that have ended from the live table. By a trigger that may let a schedule go on: whether one did."""
    before = write.db.total_changes
    deleted = write.db.run(statement, parameters)
    if write.db.total_changes - before == deleted:
        return False
    write.notify(write.now)
    return True


def _or_null(value: str | int | None) -> str | int:
    return NULL if value is None else value


def _error_json(error: Failure | None) -> str | int:
    return NULL if error is None else as_json(error)
