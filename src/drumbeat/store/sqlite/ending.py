"""How runs end: the verdict on each outcome, and what becomes of the job. Runs on the writer's thread.

Success is the hot path: two statements for a whole batch, and no row of it is ever looked at in Python. Everything else is
decided here, job by job, from the few columns that matter, and then written in batches: to history (cancelled), to the dead
letters, or back to pending.
"""

from collections.abc import Sequence

from drumbeat.ids import InstanceId, JobId
from drumbeat.model.job import Failure, NewJob, Outcome, OutcomeKind, Unique, Verdict
from drumbeat.store.outcomes import UNHARMED, is_the_same
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.adding import Adding, Keys
from drumbeat.store.sqlite.connection import NULL
from drumbeat.store.sqlite.rows import Held, as_json
from drumbeat.store.sqlite.shapes import scalars
from drumbeat.store.sqlite.statements import JobSql
from drumbeat.store.sqlite.writer import Write

Row = tuple[str | int | None, ...]

_SUCCEEDED, _CANCELLED = OutcomeKind.SUCCEEDED.value, OutcomeKind.CANCELLED.value


class Fates:
    """What is to be written about a batch of runs that ended otherwise than well."""

    def __init__(self, instance: InstanceId, now: int) -> None:
        self._instance = instance
        self._now = now
        self.cancelled: dict[str | None, list[Row]] = {}
        self.dead: list[Row] = []
        self.back: list[tuple[Held, Row]] = []
        self.attempts: list[Row] = []
        self.follow_ups: list[NewJob] = []
        self.soonest: int | None = None

    def settle(self, held: Held, outcome: Outcome) -> None:
        """Decide one outcome of a claim that is current."""
        kind = outcome.kind
        crashes = held.crashes + (kind is OutcomeKind.CRASHED)
        if kind is OutcomeKind.DEAD or (kind is OutcomeKind.CRASHED and crashes >= held.crash_limit):
            self.die(held, outcome, crashes)
        elif kind is OutcomeKind.CANCELLED or held.cancel_requested:
            self.cancel(held, outcome, _CANCELLED)
        else:
            self.go_back(held, outcome, crashes)

    def cancel(self, held: Held, outcome: Outcome, recorded: str | None) -> None:
        finished_at = outcome.finished_at or self._now
        row = (held.id, held.token, _or_null(outcome.started_at), finished_at, NULL, NULL, _text(outcome.error))
        self.cancelled.setdefault(recorded, []).append(row)

    def die(self, held: Held, outcome: Outcome, crashes: int) -> None:
        failures = held.failures + (outcome.kind is OutcomeKind.DEAD)
        started_at, finished_at = _or_null(outcome.started_at), _or_null(outcome.finished_at)
        self.dead.append(
            (held.id, outcome.kind.value, started_at, finished_at, failures, crashes, _text(outcome.error))
        )
        if outcome.follow_up is not None:
            self.follow_ups.append(outcome.follow_up)

    def go_back(self, held: Held, outcome: Outcome, crashes: int) -> None:
        kind = outcome.kind
        charged = kind is OutcomeKind.RETRY
        started = outcome.started_at is not None or kind not in UNHARMED
        waits_for = outcome.waits_for if kind is OutcomeKind.PARKED else None
        waits_since = None if started else held.waits_since
        if waits_for is not None and waits_since is None:
            waits_since = self._now
        run_at = held.run_at
        if kind is OutcomeKind.RETRY or kind is OutcomeKind.SNOOZED:
            run_at = self._now + outcome.delay
        elif kind is not OutcomeKind.PARKED:
            run_at = min(run_at, self._now)
        error = _text(outcome.error)
        unique = held.unique.value if held.unique else ""
        waits = (waits_for or NULL, _or_null(waits_since))
        row = (held.seq, run_at, held.failures + charged, crashes, unique, *waits, error)
        self.back.append((held, row))
        self.soonest = run_at if self.soonest is None else min(run_at, self.soonest)
        if started:
            finished_at = outcome.finished_at or self._now
            self.attempts.append(
                (held.id, held.token, self._instance, kind.value, _or_null(outcome.started_at), finished_at, error)
            )


class Ending:
    def __init__(self, sql: JobSql, adding: Adding) -> None:
        self._sql = sql
        self._adding = adding

    def end(self, write: Write, instance: InstanceId, outcomes: Sequence[Outcome]) -> list[Verdict]:
        """Record outcomes; one verdict for each."""
        done: set[tuple[JobId, int]] = set()
        good = [outcome for outcome in outcomes if outcome.kind is OutcomeKind.SUCCEEDED]
        if good:
            ended = self._succeed(write, instance, good)
            if ended is None and len(good) == len(outcomes):
                return [Verdict.DONE] * len(outcomes)
            done |= {(each.id, each.token) for each in good} if ended is None else ended
        if len(good) < len(outcomes):
            others = [outcome for outcome in outcomes if outcome.kind is not OutcomeKind.SUCCEEDED]
            done |= self._settle(write, instance, others)
        return self._verdicts(write, instance, outcomes, done)

    def give_back(self, write: Write, instance: InstanceId, outcomes: Sequence[Outcome]) -> int:
        """Like `end` for claims that never started; how many were current."""
        return len(self._settle(write, instance, outcomes))

    def write(self, write: Write, instance: InstanceId, fates: Fates) -> None:
        """Carry out what was decided."""
        for recorded, ended in fates.cancelled.items():
            self._delete(write, self._move(write, (instance, "cancelled", recorded, write.now), ended))
        if fates.dead:
            write.db.run_rows(self._sql.die, 7, fates.dead, (write.now,))
            ids = as_json([row[0] for row in fates.dead])
            if take_out(write, self._sql.delete_jobs, {"ids": ids}):
                write.db.run(self._sql.rearm_after_dead, {"ids": ids, "now": write.now})
        if fates.attempts:
            write.db.run_rows(self._sql.keep_attempts, 7, fates.attempts)
        if fates.back:
            write.db.run_rows(self._sql.give_back, 8, self._without_taken_keys(write, fates.back))
        if fates.soonest is not None:
            write.ring(fates.soonest)
        self._adding.follow(write, fates.follow_ups)

    def _succeed(self, write: Write, instance: InstanceId, good: Sequence[Outcome]) -> set[tuple[JobId, int]] | None:
        """None: all of them, which is nearly always so."""
        plain: list[Row] = []
        others: list[Row] = []
        for each in good:
            if each.result is None and each.result_error is None and each.started_at and each.finished_at:
                plain.append((each.id, each.token, each.started_at, each.finished_at))
            else:
                times = (_or_null(each.started_at), _or_null(each.finished_at))
                results = (_or_null(each.result), _or_null(each.result_error))
                others.append((each.id, each.token, *times, *results, NULL))
        finished = write.db.run_rows(self._sql.succeed, 4, plain, (instance,)) if plain else 0
        finished += self._move(write, (instance, "succeeded", _SUCCEEDED, write.now), others)
        self._delete(write, finished)
        if finished == len(good):
            return None
        if not finished:
            return set()
        found = rows.holds(write.db, self._sql.finished_after, {"seq": write.db.last_inserted - finished})
        return {(hold.id, hold.token) for hold in found}

    def _move(self, write: Write, fixed: Row, ended: Sequence[Row]) -> int:
        """Move jobs to history; how many were current."""
        return write.db.run_rows(self._sql.finish, 7, ended, fixed) if ended else 0

    def _delete(self, write: Write, finished: int) -> None:
        """Take out of the live table what was just moved: the last so many rows of history, which are in one piece."""
        if finished:
            seq = write.db.last_inserted - finished
            if take_out(write, self._sql.delete_finished, {"seq": seq}):
                write.db.run(self._sql.rearm_after_finished, {"seq": seq, "now": write.now})

    def _settle(self, write: Write, instance: InstanceId, outcomes: Sequence[Outcome]) -> set[tuple[JobId, int]]:
        if not outcomes:
            return set()
        ids = as_json([outcome.id for outcome in outcomes])
        found = rows.held(write.db, self._sql.held, {"ids": ids, "instance": instance})
        current = {(held.id, held.token): held for held in found}
        fates = Fates(instance, write.now)
        done: set[tuple[JobId, int]] = set()
        for outcome in outcomes:
            # Taken out: a second outcome of the same claim in this very call finds nothing.
            held = current.pop((outcome.id, outcome.token), None)
            if held is not None:
                fates.settle(held, outcome)
                done.add((outcome.id, outcome.token))
        self.write(write, instance, fates)
        return done

    def _verdicts(
        self, write: Write, instance: InstanceId, outcomes: Sequence[Outcome], done: set[tuple[JobId, int]]
    ) -> list[Verdict]:
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
            holds = as_json([(outcomes[at].id, outcomes[at].token) for at in unsure])
            recorded = scalars(write.db, self._sql.recorded, str, {"holds": holds, "instance": instance})
            for at, kind in zip(unsure, recorded, strict=True):
                if is_the_same(outcomes[at].kind, kind):
                    verdicts[at] = Verdict.ALREADY
            if refused := verdicts.count(Verdict.STALE):
                write.db.run(self._sql.count_refused, {"refused": refused, "instance": instance})
        return verdicts

    def _without_taken_keys(self, write: Write, back: Sequence[tuple[Held, Row]]) -> list[Row]:
        """A job of Unique.PENDING whose key was taken while it ran comes back as one that is not unique."""
        returning = [held for held, _ in back if held.unique is Unique.PENDING and held.key is not None]
        if not returning:
            return [row for _, row in back]
        keys = Keys(self._sql, write, ((held.task, held.key) for held in returning if held.key is not None))
        result: list[Row] = []
        for held, row in back:
            if held.unique is Unique.PENDING:
                if keys.holder(held.task, held.key, Unique.PENDING) is not None:
                    row = (*row[:4], "", *row[5:])
                else:
                    keys.take(held.task, held.key, Unique.PENDING, held.id)
            result.append(row)
        return result


def take_out(write: Write, statement: str, parameters: dict[str, str | int]) -> bool:
    """Delete jobs that have ended from the live table. By a trigger that may let a schedule go on: whether one did."""
    before = write.db.changes
    deleted = write.db.run(statement, parameters)
    if write.db.changes - before == deleted:
        return False
    write.ring(write.now)
    return True


def _or_null(value: str | int | None) -> str | int:
    return NULL if value is None else value


def _text(error: Failure | None) -> str | int:
    return NULL if error is None else as_json(error)
