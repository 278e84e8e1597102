"""Completion of runs on PostgreSQL: which outcomes still count, and what is written about them.

Success is the hot path and belongs to `claim.py`: one statement records it and claims. Every other outcome is decided by
`core.transitions` from a few columns of its job, and written in batches: to history (cancelled), to the dead letters, or
back to pending. The rows are locked first, in the order of ids.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from drumbeat.core.claim import Outcome, WriteStatus
from drumbeat.core.job import JobState
from drumbeat.core.transitions import Transition, decide_outcomes, mark_duplicates, split_statuses
from drumbeat.core.uniqueness import returning_keys
from drumbeat.ids import InstanceId, JobId
from drumbeat.store.completion_rows import (
    awaited_signals,
    dead_row,
    finished_row,
    pending_rows,
    select_state,
    suspension_rows,
)
from drumbeat.store.postgres import rows
from drumbeat.store.postgres.connections import Session
from drumbeat.store.postgres.insert import PostgresInserter, load_unique_keys
from drumbeat.store.postgres.rows import PostgresHeldJob, to_columns
from drumbeat.store.sqlfile import Statements

_FINISHED = (JobState.SUCCEEDED, JobState.CANCELLED, JobState.EXPIRED)
Decided = tuple[PostgresHeldJob, Transition]


class Applied(NamedTuple):
    """What became of outcomes."""

    earliest: int | None
    """The earliest run_at of what is pending."""
    released: int
    """Parents that ended: their children are to be followed."""
    lane_ends: int
    """Runs of lanes that ended: there is room for others."""


class PostgresCompletionWriter:
    def __init__(self, sql: Statements, inserter: PostgresInserter) -> None:
        self._sql = sql
        self._inserter = inserter

    async def record_outcomes(
        self, session: Session, instance: InstanceId, outcomes: Sequence[Outcome]
    ) -> tuple[list[WriteStatus], Applied]:
        """Record outcomes; return the status of each."""
        current, applied = await self.record_current(session, instance, outcomes)
        return await self.build_statuses(session, instance, outcomes, current), applied

    async def record_current(
        self, session: Session, instance: InstanceId, outcomes: Sequence[Outcome]
    ) -> tuple[set[tuple[JobId, int]], Applied]:
        """Record those outcomes whose claim is current; return these claims."""
        found = await session.fetch(self._sql.lock_running, instance, [outcome.id for outcome in outcomes])
        running = [rows.held_job(row) for row in found]
        signalled: list[JobId] = []
        if waits := awaited_signals(outcomes):  # read after the rows were locked: sending a signal locks them too
            signalled = [row[0] for row in await session.fetch(self._sql.signalled, *to_columns(waits))]
        decided = decide_outcomes(running, outcomes, running[0].now if running else 0, signalled)
        applied = await self.apply(session, instance, decided)
        return {(job.id, job.token) for job, _ in decided}, applied

    async def apply(self, session: Session, instance: InstanceId, decided: Sequence[Decided]) -> Applied:
        """Write transitions of jobs that run under this instance."""
        released = 0
        finished = [finished_row(*each) for each in select_state(decided, *_FINISHED)]
        if finished:
            released += await session.fetchval(self._sql.move_to_history, *to_columns(finished))
        if dead := [dead_row(*each) for each in select_state(decided, JobState.DEAD)]:
            released += await session.fetchval(self._sql.move_to_dead, *to_columns(dead))
        pending = select_state(decided, JobState.PENDING)
        if pending:
            keys = await load_unique_keys(self._sql, session, returning_keys(job for job, _ in pending))
            requeued, attempts = pending_rows(instance, pending, keys)
            if attempts:
                await session.execute(self._sql.insert_attempts, *to_columns(attempts))
            await session.execute(self._sql.requeue, *to_columns(requeued))
            if suspensions := suspension_rows(pending):
                await session.execute(self._sql.insert_suspensions, *to_columns(suspensions))
        follow_ups = [to.follow_up for _, to in decided if to.follow_up is not None]
        dues = await self._inserter.add_in_transaction(session, follow_ups)
        lane_ends = sum(job.in_lane for job, _ in decided)
        return Applied(min([*dues, *(to.run_at for _, to in pending)], default=None), released, lane_ends)

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
