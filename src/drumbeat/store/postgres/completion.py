"""Completion of runs on PostgreSQL: which outcomes still count, and what is written about them.

Success is the hot path and belongs to `claim.py`: one statement records it and claims. Every other outcome is decided by
`core.transitions` from a few columns of its job, and written in batches: to history (cancelled), to the dead letters, or
back to pending. The rows are locked first, in the order of ids.
"""

from collections.abc import Collection, Sequence

from drumbeat.core.claim import Outcome, WriteStatus
from drumbeat.core.job import JobState
from drumbeat.core.transitions import Transition, decide_outcomes, mark_duplicates, split_statuses
from drumbeat.core.uniqueness import returning_keys, unique_after_return
from drumbeat.ids import InstanceId, JobId
from drumbeat.store.postgres import rows
from drumbeat.store.postgres.connections import Session
from drumbeat.store.postgres.insert import PostgresInserter, load_unique_keys
from drumbeat.store.postgres.rows import PostgresHeldJob, encode_failure, to_columns
from drumbeat.store.sqlfile import Statements

Decided = tuple[PostgresHeldJob, Transition]


class PostgresCompletionWriter:
    def __init__(self, sql: Statements, inserter: PostgresInserter) -> None:
        self._sql = sql
        self._inserter = inserter

    async def record_outcomes(
        self, session: Session, instance: InstanceId, outcomes: Sequence[Outcome]
    ) -> tuple[list[WriteStatus], int | None]:
        """Record outcomes; return the status of each, and the earliest run_at of what is pending again."""
        applied, earliest = await self.record_current(session, instance, outcomes)
        return await self.build_statuses(session, instance, outcomes, applied), earliest

    async def record_current(
        self, session: Session, instance: InstanceId, outcomes: Sequence[Outcome]
    ) -> tuple[set[tuple[JobId, int]], int | None]:
        """Record those outcomes whose claim is current; return these claims, and the earliest run_at of what is pending."""
        found = await session.fetch(self._sql.lock_running, instance, [outcome.id for outcome in outcomes])
        running = [rows.held_job(row) for row in found]
        decided = decide_outcomes(running, outcomes, running[0].now if running else 0)
        earliest = await self.apply(session, instance, decided)
        return {(job.id, job.token) for job, _ in decided}, earliest

    async def apply(self, session: Session, instance: InstanceId, decided: Sequence[Decided]) -> int | None:
        """Write transitions of jobs that run under this instance; return the earliest run_at of what is pending."""
        await self._write_finished(
            session, [each for each in decided if each[1].state in (JobState.SUCCEEDED, JobState.CANCELLED)]
        )
        await self._write_dead(session, [each for each in decided if each[1].state is JobState.DEAD])
        pending = [each for each in decided if each[1].state is JobState.PENDING]
        await self._write_pending(session, instance, pending)
        follow_ups = [to.follow_up for _, to in decided if to.follow_up is not None]
        dues = await self._inserter.add_in_transaction(session, follow_ups)
        return min([*dues, *(to.run_at for _, to in pending)], default=None)

    async def build_statuses(
        self,
        session: Session,
        instance: InstanceId,
        outcomes: Sequence[Outcome],
        applied: Collection[tuple[JobId, int]],
    ) -> list[WriteStatus]:
        """The status of each outcome, `applied` being the claims that were current; stale ones are counted."""
        statuses, unsure = split_statuses(outcomes, applied)
        if unsure:
            ids, tokens = [outcomes[at].id for at in unsure], [outcomes[at].token for at in unsure]
            found = await session.fetch(self._sql.recorded_outcomes, instance, ids, tokens)
            if refused := mark_duplicates(statuses, outcomes, unsure, [row[0] for row in found]):
                await session.execute(self._sql.count_refused, instance, refused)
        return statuses

    async def _write_finished(self, session: Session, decided: Sequence[Decided]) -> None:
        finished = [
            (
                *(job.id, to.state.value, None if to.recorded is None else to.recorded.value),
                *(to.started_at, to.finished_at, to.result, to.result_error, encode_failure(to.error)),
            )
            for job, to in decided
        ]
        if finished:
            await session.execute(self._sql.move_to_history, *to_columns(finished, 8))

    async def _write_dead(self, session: Session, decided: Sequence[Decided]) -> None:
        dead = [
            (
                *(job.id, None if to.recorded is None else to.recorded.value, to.started_at, to.finished_at),
                *(to.failures, to.crashes, encode_failure(to.error)),
            )
            for job, to in decided
        ]
        if dead:
            await session.execute(self._sql.move_to_dead, *to_columns(dead, 7))

    async def _write_pending(self, session: Session, instance: InstanceId, decided: Sequence[Decided]) -> None:
        if not decided:
            return
        jobs = [job for job, _ in decided]
        keys = await load_unique_keys(self._sql, session, returning_keys(jobs))
        requeued, attempts = [], []
        for (job, to), unique in zip(decided, unique_after_return(jobs, keys), strict=True):
            error = encode_failure(to.error)
            requeued.append(
                (job.id, to.run_at, to.failures, to.crashes, unique, to.blocked_on, to.blocked_since, error)
            )
            if to.recorded is not None:
                run = (to.recorded.value, to.started_at, to.finished_at, error)
                attempts.append((job.id, job.token, instance, *run))
        if attempts:
            await session.execute(self._sql.insert_attempts, *to_columns(attempts, 7))
        await session.execute(self._sql.requeue, *to_columns(requeued, 8))
