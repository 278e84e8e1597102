"""How runs end: the verdict on each outcome, and what becomes of the job.

Success is the hot path and is in `claiming`, in the statement that also claims. Everything else is decided here, job by job,
from the few columns that matter, and then written in batches: to history (cancelled), to the dead letters, or back to
pending. The rows are locked first, in the order of ids.
"""

from collections.abc import Sequence
from typing import Any

from drumbeat.ids import InstanceId, JobId
from drumbeat.model.job import NewJob, Outcome, OutcomeKind, Unique, Verdict
from drumbeat.store.outcomes import UNHARMED, is_the_same
from drumbeat.store.postgres.adding import Adding, keys_of
from drumbeat.store.postgres.connections import Session
from drumbeat.store.postgres.rows import Held, columns, failure_text
from drumbeat.store.postgres.rows import held as held_of
from drumbeat.store.postgres.statements import JobSql

Row = tuple[Any, ...]

_SUCCEEDED, _CANCELLED = OutcomeKind.SUCCEEDED.value, OutcomeKind.CANCELLED.value


class Fates:
    """What is to be written about a batch of runs."""

    def __init__(self, instance: InstanceId) -> None:
        self._instance = instance
        self.finished: list[Row] = []
        self.dead: list[Row] = []
        self.back: list[tuple[Held, Row]] = []
        self.attempts: list[Row] = []
        self.follow_ups: list[NewJob] = []

    def settle(self, held: Held, outcome: Outcome) -> None:
        """Decide one outcome of a claim that is current."""
        kind = outcome.kind
        crashes = held.crashes + (kind is OutcomeKind.CRASHED)
        if kind is OutcomeKind.SUCCEEDED:
            self.finish(held, outcome, _SUCCEEDED, _SUCCEEDED)
        elif kind is OutcomeKind.DEAD or (kind is OutcomeKind.CRASHED and crashes >= held.crash_limit):
            self.die(held, outcome, crashes)
        elif kind is OutcomeKind.CANCELLED or held.cancel_requested:
            self.finish(held, outcome, _CANCELLED, _CANCELLED)
        else:
            self.go_back(held, outcome, crashes)

    def finish(self, held: Held, outcome: Outcome, state: str, recorded: str | None) -> None:
        error = failure_text(outcome.error)
        times = (outcome.started_at, outcome.finished_at)
        self.finished.append((held.id, state, recorded, *times, outcome.result, outcome.result_error, error))

    def die(self, held: Held, outcome: Outcome, crashes: int) -> None:
        failures = held.failures + (outcome.kind is OutcomeKind.DEAD)
        times = (outcome.started_at, outcome.finished_at)
        self.dead.append((held.id, outcome.kind.value, *times, failures, crashes, failure_text(outcome.error)))
        if outcome.follow_up is not None:
            self.follow_ups.append(outcome.follow_up)

    def go_back(self, held: Held, outcome: Outcome, crashes: int) -> None:
        kind = outcome.kind
        started = outcome.started_at is not None or kind not in UNHARMED
        waits_for = outcome.waits_for if kind is OutcomeKind.PARKED else None
        waits_since = None if started else held.waits_since
        if waits_for is not None and waits_since is None:
            waits_since = held.now
        run_at = held.run_at
        if kind is OutcomeKind.RETRY or kind is OutcomeKind.SNOOZED:
            run_at = held.now + outcome.delay
        elif kind is not OutcomeKind.PARKED:
            run_at = min(run_at, held.now)
        error = failure_text(outcome.error)
        failures = held.failures + (kind is OutcomeKind.RETRY)
        self.back.append((held, (held.id, run_at, failures, crashes, held.unique, waits_for, waits_since, error)))
        if started:
            times = (outcome.started_at, outcome.finished_at or held.now)
            self.attempts.append((held.id, held.token, self._instance, kind.value, *times, error))


class Ending:
    def __init__(self, sql: JobSql, adding: Adding) -> None:
        self._sql = sql
        self._adding = adding

    async def end(
        self, session: Session, instance: InstanceId, outcomes: Sequence[Outcome]
    ) -> tuple[list[Verdict], int | None]:
        """Record outcomes: one verdict for each, and the earliest due moment of what is pending again."""
        done, soonest = await self.settle(session, instance, outcomes)
        return await self.verdicts(session, instance, outcomes, done), soonest

    async def settle(
        self, session: Session, instance: InstanceId, outcomes: Sequence[Outcome]
    ) -> tuple[set[tuple[JobId, int]], int | None]:
        """What was current, and the earliest due moment of what is pending again."""
        found = await session.fetch(self._sql.held, instance, [outcome.id for outcome in outcomes])
        current = {(held.id, held.token): held for held in map(held_of, found)}
        fates = Fates(instance)
        done: set[tuple[JobId, int]] = set()
        for outcome in outcomes:
            # Taken out: a second outcome of the same claim in this very call finds nothing.
            held = current.pop((outcome.id, outcome.token), None)
            if held is not None:
                fates.settle(held, outcome)
                done.add((outcome.id, outcome.token))
        return done, await self.write(session, fates)

    async def write(self, session: Session, fates: Fates) -> int | None:
        """Carry out what was decided; gives the earliest due moment of what is pending now."""
        dues: list[int] = []
        if fates.finished:
            await session.execute(self._sql.finish, *columns(fates.finished, 8))
        if fates.dead:
            await session.execute(self._sql.die, *columns(fates.dead, 7))
        if fates.attempts:
            await session.execute(self._sql.keep_attempts, *columns(fates.attempts, 7))
        if fates.back:
            back = await self._without_taken_keys(session, fates.back)
            await session.execute(self._sql.give_back, *columns(back, 8))
            dues += [row[1] for row in back]
        dues += await self._adding.add_within(session, fates.follow_ups)
        return min(dues, default=None)

    async def verdicts(
        self, session: Session, instance: InstanceId, outcomes: Sequence[Outcome], done: set[tuple[JobId, int]]
    ) -> list[Verdict]:
        """DONE for what is in `done` (once each), ALREADY for what is on record, STALE for the rest, which is counted."""
        verdicts: list[Verdict] = []
        unsure: list[int] = []
        for outcome in outcomes:
            hold = (outcome.id, outcome.token)
            if hold in done:
                done.remove(hold)
                verdicts.append(Verdict.DONE)
            else:
                unsure.append(len(verdicts))
                verdicts.append(Verdict.STALE)
        if unsure:
            asked = [outcomes[at] for at in unsure]
            rows = await session.fetch(
                self._sql.recorded, instance, [each.id for each in asked], [each.token for each in asked]
            )
            for at, row in zip(unsure, rows, strict=True):
                if is_the_same(outcomes[at].kind, row[0]):
                    verdicts[at] = Verdict.ALREADY
            if refused := verdicts.count(Verdict.STALE):
                await session.execute(self._sql.count_refused, instance, refused)
        return verdicts

    async def _without_taken_keys(self, session: Session, back: Sequence[tuple[Held, Row]]) -> list[Row]:
        """A job of Unique.PENDING whose key was taken while it ran comes back as one that is not unique."""
        returning = [held for held, _ in back if held.unique == Unique.PENDING]
        if not returning:
            return [row for _, row in back]
        keys = await keys_of(self._sql, session, ((held.task, held.key) for held in returning))
        result: list[Row] = []
        for held, row in back:
            if held.unique == Unique.PENDING:
                if keys.holder(held.task, held.key, held.unique) is not None:
                    row = (*row[:4], "", *row[5:])
                else:
                    keys.take(held.task, held.key, held.unique, held.id)
            result.append(row)
        return result
