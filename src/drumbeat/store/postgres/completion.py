"""How runs end: the verdict on each outcome, and what becomes of the job.

Success is the hot path and is in `claiming`, in the statement that also claims. Everything else is decided here, job by job,
from the few columns that matter, and then written in batches: to history (cancelled), to the dead letters, or back to
pending. The rows are locked first, in the order of ids.
"""

from collections.abc import Sequence
from typing import Any

from drumbeat.core.claim import Outcome, WriteStatus
from drumbeat.core.job import NewJob, OutcomeKind, Unique
from drumbeat.ids import InstanceId, JobId
from drumbeat.store.outcomes import UNCHARGED, is_same_outcome
from drumbeat.store.postgres.connections import Session
from drumbeat.store.postgres.insert import PostgresInserter, load_unique_keys
from drumbeat.store.postgres.rows import PostgresHeldJob, encode_failure, to_columns
from drumbeat.store.postgres.rows import held_job as held_of
from drumbeat.store.postgres.statements import PostgresJobSql

Row = tuple[Any, ...]

_SUCCEEDED, _CANCELLED = OutcomeKind.SUCCEEDED.value, OutcomeKind.CANCELLED.value


class PostgresTransitions:
    """What is to be written about a batch of runs."""

    def __init__(self, instance: InstanceId) -> None:
        self._instance = instance
        self.finished: list[Row] = []
        self.dead: list[Row] = []
        self.requeued: list[tuple[PostgresHeldJob, Row]] = []
        self.attempts: list[Row] = []
        self.follow_ups: list[NewJob] = []

    def decide(self, held: PostgresHeldJob, outcome: Outcome) -> None:
        """Decide one outcome of a claim that is current."""
        kind = outcome.kind
        crashes = held.crashes + (kind is OutcomeKind.CRASHED)
        if kind is OutcomeKind.SUCCEEDED:
            self.finish(held, outcome, _SUCCEEDED, _SUCCEEDED)
        elif kind is OutcomeKind.DEAD or (kind is OutcomeKind.CRASHED and crashes >= held.crash_limit):
            self.make_dead(held, outcome, crashes)
        elif kind is OutcomeKind.CANCELLED or held.cancel_requested:
            self.finish(held, outcome, _CANCELLED, _CANCELLED)
        else:
            self.requeue(held, outcome, crashes)

    def finish(self, held: PostgresHeldJob, outcome: Outcome, state: str, recorded: str | None) -> None:
        error = encode_failure(outcome.error)
        times = (outcome.started_at, outcome.finished_at)
        self.finished.append((held.id, state, recorded, *times, outcome.result, outcome.result_error, error))

    def make_dead(self, held: PostgresHeldJob, outcome: Outcome, crashes: int) -> None:
        failures = held.failures + (outcome.kind is OutcomeKind.DEAD)
        times = (outcome.started_at, outcome.finished_at)
        self.dead.append((held.id, outcome.kind.value, *times, failures, crashes, encode_failure(outcome.error)))
        if outcome.follow_up is not None:
            self.follow_ups.append(outcome.follow_up)

    def requeue(self, held: PostgresHeldJob, outcome: Outcome, crashes: int) -> None:
        kind = outcome.kind
        started = outcome.started_at is not None or kind not in UNCHARGED
        blocked_on = outcome.blocked_on if kind is OutcomeKind.BLOCKED else None
        blocked_since = None if started else held.blocked_since
        if blocked_on is not None and blocked_since is None:
            blocked_since = held.now
        run_at = held.run_at
        if kind is OutcomeKind.RETRY or kind is OutcomeKind.SNOOZED:
            run_at = held.now + outcome.delay
        elif kind is not OutcomeKind.BLOCKED:
            run_at = min(run_at, held.now)
        error = encode_failure(outcome.error)
        failures = held.failures + (kind is OutcomeKind.RETRY)
        self.requeued.append(
            (held, (held.id, run_at, failures, crashes, held.unique, blocked_on, blocked_since, error))
        )
        if started:
            times = (outcome.started_at, outcome.finished_at or held.now)
            self.attempts.append((held.id, held.token, self._instance, kind.value, *times, error))


class PostgresCompletionWriter:
    def __init__(self, sql: PostgresJobSql, inserter: PostgresInserter) -> None:
        self._sql = sql
        self._inserter = inserter

    async def record_outcomes(
        self, session: Session, instance: InstanceId, outcomes: Sequence[Outcome]
    ) -> tuple[list[WriteStatus], int | None]:
        """Record outcomes: one verdict for each, and the earliest due moment of what is pending again."""
        done, soonest = await self.record_current(session, instance, outcomes)
        return await self.build_statuses(session, instance, outcomes, done), soonest

    async def record_current(
        self, session: Session, instance: InstanceId, outcomes: Sequence[Outcome]
    ) -> tuple[set[tuple[JobId, int]], int | None]:
        """What was current, and the earliest due moment of what is pending again."""
        found = await session.fetch(self._sql.lock_running, instance, [outcome.id for outcome in outcomes])
        current = {(held.id, held.token): held for held in map(held_of, found)}
        transitions = PostgresTransitions(instance)
        applied: set[tuple[JobId, int]] = set()
        for outcome in outcomes:
            # Taken out: a second outcome of the same claim in this very call finds nothing.
            held = current.pop((outcome.id, outcome.token), None)
            if held is not None:
                transitions.decide(held, outcome)
                applied.add((outcome.id, outcome.token))
        return applied, await self.apply(session, transitions)

    async def apply(self, session: Session, transitions: PostgresTransitions) -> int | None:
        """Carry out what was decided; gives the earliest due moment of what is pending now."""
        dues: list[int] = []
        if transitions.finished:
            await session.execute(self._sql.move_to_history, *to_columns(transitions.finished, 8))
        if transitions.dead:
            await session.execute(self._sql.move_to_dead, *to_columns(transitions.dead, 7))
        if transitions.attempts:
            await session.execute(self._sql.insert_attempts, *to_columns(transitions.attempts, 7))
        if transitions.requeued:
            back = await self._drop_taken_keys(session, transitions.requeued)
            await session.execute(self._sql.requeue, *to_columns(back, 8))
            dues += [row[1] for row in back]
        dues += await self._inserter.add_in_transaction(session, transitions.follow_ups)
        return min(dues, default=None)

    async def build_statuses(
        self, session: Session, instance: InstanceId, outcomes: Sequence[Outcome], applied: set[tuple[JobId, int]]
    ) -> list[WriteStatus]:
        """DONE for what is in `done` (once each), ALREADY for what is on record, STALE for the rest, which is counted."""
        verdicts: list[WriteStatus] = []
        unsure: list[int] = []
        for outcome in outcomes:
            hold = (outcome.id, outcome.token)
            if hold in applied:
                applied.remove(hold)
                verdicts.append(WriteStatus.APPLIED)
            else:
                unsure.append(len(verdicts))
                verdicts.append(WriteStatus.STALE)
        if unsure:
            asked = [outcomes[at] for at in unsure]
            rows = await session.fetch(
                self._sql.recorded, instance, [each.id for each in asked], [each.token for each in asked]
            )
            for at, row in zip(unsure, rows, strict=True):
                if is_same_outcome(outcomes[at].kind, row[0]):
                    verdicts[at] = WriteStatus.DUPLICATE
            if refused := verdicts.count(WriteStatus.STALE):
                await session.execute(self._sql.count_refused, instance, refused)
        return verdicts

    async def _drop_taken_keys(self, session: Session, back: Sequence[tuple[PostgresHeldJob, Row]]) -> list[Row]:
        """A job of Unique.PENDING whose key was taken while it ran comes back as one that is not unique."""
        returning = [held for held, _ in back if held.unique == Unique.PENDING]
        if not returning:
            return [row for _, row in back]
        keys = await load_unique_keys(self._sql, session, ((held.task, held.key) for held in returning))
        result: list[Row] = []
        for held, row in back:
            if held.unique == Unique.PENDING:
                if keys.find_holder(held.task, held.key, held.unique) is not None:
                    row = (*row[:4], "", *row[5:])
                else:
                    keys.take(held.task, held.key, held.unique, held.id)
            result.append(row)
        return result
