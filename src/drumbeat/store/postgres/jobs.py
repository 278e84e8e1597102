"""Jobs on PostgreSQL: what `insert`, `claim`, `completion` and `history` do, and the smaller operations.

The contract is in `store.protocol.JobStore`. Claims and outcomes have a connection of their own, and use the other one
as well when it is free; everything else uses that one.
"""

import contextlib
from collections.abc import Sequence
from functools import partial

import msgspec

from drumbeat.core.claim import ClaimedJob, ClaimRef, ClaimRequest, ClaimResult, MalformedJob, Outcome, WriteStatus
from drumbeat.core.job import AddResult, CancelAnswer, EndedJob, JobState, NewJob, OutcomeKind, ReplayResult
from drumbeat.core.transitions import answer_cancel
from drumbeat.core.uniqueness import KeyedRow, select_replays, unique_keys
from drumbeat.errors import StoreError
from drumbeat.ids import InstanceId, JobId, created_us, is_job_id
from drumbeat.store.completion_rows import expired_rows
from drumbeat.store.job_reads import missing_job_error
from drumbeat.store.postgres import rows
from drumbeat.store.postgres.claim import Reported
from drumbeat.store.postgres.completion import Applied
from drumbeat.store.postgres.connections import PlanMode, PostgresConnection, Session
from drumbeat.store.postgres.history import DAY_US
from drumbeat.store.postgres.insert import load_unique_keys
from drumbeat.store.postgres.parts import PostgresParts

_CANCELLED, _EXPIRED = JobState.CANCELLED.value, JobState.EXPIRED.value


class PostgresJobs:
    def __init__(self, parts: PostgresParts) -> None:
        self._sql = parts.sql.jobs
        self._claim_connection = parts.claim_connection
        self._connection = parts.connection
        self._inserter = parts.inserter
        self._completion = parts.completion
        self._claimer = parts.claimer
        self._filler = parts.filler
        self._history = parts.history
        self._notifier = parts.notifier
        self._advancer = parts.advancer

    async def add(self, jobs: Sequence[NewJob]) -> list[AddResult]:
        return await self._inserter.add(jobs) if jobs else []

    async def report_and_claim(
        self, instance: InstanceId, outcomes: Sequence[Outcome], request: ClaimRequest | None
    ) -> ClaimResult:
        part = None if request is None else self._filler.plain_part(request)
        if _is_all_success(outcomes) and (request is None or not request.unblocks):
            # A busy worker has two calls under way: while one waits for the disk, the server works on the other.
            connection = (
                self._connection
                if self._connection.is_free and not self._claim_connection.is_free
                else self._claim_connection
            )
            reported = await connection.call(
                partial(self._report_successes_and_claim, instance, outcomes, part), plan_mode=PlanMode.GENERIC
            )
        else:
            connection = self._claim_connection
            reported, earliest = await connection.transact(
                partial(self._report_all_and_claim, instance, outcomes, request, part)
            )
            self._notifier.notify(earliest)
        if reported.released:
            reported = await self._follow_children(connection, instance, reported, part)
        return await self._filler.fill(connection, instance, reported, request, part)

    async def list_running(self, instance: InstanceId) -> list[ClaimRef]:
        found = await self._connection.call(lambda session: session.fetch(self._sql.list_running, instance))
        return [ClaimRef(row["id"], row["token"]) for row in found]

    async def save_progress(self, instance: InstanceId, notes: Sequence[tuple[ClaimRef, str]]) -> None:
        if notes:
            columns = rows.to_columns((claim.id, claim.token, progress) for claim, progress in notes)
            await self._connection.call(lambda session: session.execute(self._sql.save_progress, instance, *columns))

    async def cancel(self, ids: Sequence[JobId]) -> list[CancelAnswer]:
        wanted = [id for id in dict.fromkeys(ids) if is_job_id(id)]
        states, released = await self._connection.transact(partial(self._cancel, wanted)) if wanted else ({}, 0)
        await self._advancer.follow(released)
        return [answer_cancel(states.get(id)) for id in ids]

    async def cancel_keys(self, task: str, keys: Sequence[str]) -> list[CancelAnswer]:
        states, released = (
            await self._connection.transact(partial(self._cancel_keys, task, list(keys))) if keys else ({}, 0)
        )
        await self._advancer.follow(released)
        return [answer_cancel(state) for state in states.values()]

    async def run_now(self, ids: Sequence[JobId]) -> int:
        wanted = [id for id in ids if is_job_id(id)]
        changed = (
            await self._connection.call(lambda session: session.fetch(self._sql.run_now, wanted)) if wanted else []
        )
        if changed:
            self._notifier.notify(changed[0][0])
            await self._notifier.flush()
        return len(changed)

    async def replay(self, ids: Sequence[JobId]) -> list[ReplayResult]:
        if not ids:
            return []
        answers, soonest, released = await self._connection.transact(partial(self._replay, ids))
        self._notifier.notify(soonest)
        await self._advancer.follow(released)
        await self._notifier.flush()
        return answers

    async def discard(self, ids: Sequence[JobId]) -> int:
        wanted = [id for id in ids if is_job_id(id)]
        if not wanted:
            return 0
        count, released = await self._connection.transact(partial(self._discard, wanted))
        await self._advancer.follow(released)
        return count

    async def get_results(self, ids: Sequence[JobId]) -> list[EndedJob | None]:
        wanted = [id for id in dict.fromkeys(ids) if is_job_id(id)]
        found: dict[JobId, EndedJob | None] = {}
        if wanted:
            # Nearly always it ended lately. All days are searched only for one that was not found.
            since = created_us(min(wanted)) - DAY_US
            found = await self._load_ended(wanted, since)
            if len(found) < len(wanted):
                found = await self._load_ended(wanted, 0)
        for id in ids:
            if id not in found:
                raise missing_job_error(
                    id, await self._connection.call(lambda session: session.fetchval(self._sql.pruned_before))
                )
        return [found[id] for id in ids]

    async def expire(self, limit: int) -> int:
        count, released = await self._connection.transact(partial(self._expire, limit))
        await self._advancer.follow(released)
        return count

    async def expire_blocked(self, prefix: str, before: int, limit: int) -> int:
        count, applied = await self._connection.transact(partial(self._expire_waits, prefix, before, limit))
        self._notifier.notify(applied.earliest)
        await self._advancer.follow(applied.released)
        return count

    async def prune(self, before: int, limit: int) -> int:
        await self._advancer.follow(1)  # what its children bind is kept before it goes
        return await self._history.prune(before, limit)

    async def pause_queue(self, queue: str, *, by: str, reason: str) -> None:
        await self._connection.call(lambda session: session.execute(self._sql.pause, queue, by, reason))

    async def resume_queue(self, queue: str) -> bool:
        resumed = bool(await self._connection.call(lambda session: session.fetch(self._sql.resume, queue)))
        if resumed:
            self._notifier.notify(0)
            await self._notifier.flush()
        return resumed

    async def _report_successes_and_claim(
        self, instance: InstanceId, outcomes: Sequence[Outcome], claim: ClaimRequest | None, session: Session
    ) -> Reported:
        """The hot path: one statement. Only where an outcome was not applied there is more to read.

        It waits for the disk even if it only claims: a crash of the server must not take a claim from a living worker.
        """
        answer = await self._claimer.report_and_claim(session, instance, outcomes, claim)
        statuses = [WriteStatus.APPLIED] * len(outcomes)
        if answer.recorded_count < len(outcomes):
            recorded = set((answer.recorded_ids or "").split())
            done = {(each.id, each.token) for each in outcomes if each.id in recorded}
            statuses = await self._completion.build_statuses(session, instance, outcomes, done)
        return Reported(answer.to_result(statuses), answer.released_count, answer.lane_ends, answer.lanes)

    async def _follow_children(
        self, connection: PostgresConnection, instance: InstanceId, reported: Reported, request: ClaimRequest | None
    ) -> Reported:
        """Parents among what was reported have ended: follow their edges, and claim again, if there is room, what became due.
        In transactions of their own: the ends of the parents are on disk, and their rows not locked any more.

        What was reported and claimed stands: an outage from here on must not look as if it did not."""
        result, lanes = reported.result, reported.lanes
        with contextlib.suppress(StoreError):
            advanced = await self._advancer.advance(connection)
            result = msgspec.structs.replace(result, is_releasing=advanced.is_more)
            missing = 0 if request is None else request.limit - len(result.jobs) - len(result.malformed)
            if request is not None and advanced.earliest_due is not None and missing > 0:
                self._claimer.lower_bounds(advanced.earliest_due)
                queues = tuple((queue, missing) for queue, _ in request.queues)
                rest = ClaimRequest(queues=queues, limit=missing)
                more = await connection.call(
                    lambda session: self._claimer.report_and_claim(session, instance, (), rest),
                    plan_mode=PlanMode.GENERIC,
                )
                result, lanes = more.added_to(result), more.lanes
            self._advancer.notify(advanced, {job.id for job in result.jobs})
            return reported._replace(result=result, lanes=lanes)
        return reported._replace(result=msgspec.structs.replace(result, is_releasing=True), lanes=lanes)

    async def _report_all_and_claim(
        self,
        instance: InstanceId,
        outcomes: Sequence[Outcome],
        request: ClaimRequest | None,
        part: ClaimRequest | None,
        session: Session,
    ) -> tuple[Reported, int | None]:
        """Everything else: a transaction of several statements. Returns also the earliest run_at of what became pending."""
        statuses: list[WriteStatus] = []
        applied = Applied(None, 0, 0)
        if outcomes:
            statuses, applied = await self._completion.record_outcomes(session, instance, outcomes)
            if applied.earliest is not None:
                self._claimer.lower_bounds(applied.earliest)
        unblocked: list[ClaimedJob] = []
        malformed: list[MalformedJob] = []
        if request is not None and part is not None and request.unblocks and request.limit > 0:
            unblocked, malformed = await self._claimer.claim_blocked(session, instance, request)
            left = request.limit - len(unblocked) - len(malformed)
            part = ClaimRequest(queues=part.queues, limit=min(part.limit, left))
        answer = await self._claimer.report_and_claim(session, instance, (), part)
        answer.jobs[:0] = unblocked
        answer.malformed[:0] = malformed
        reported = Reported(answer.to_result(statuses), applied.released, applied.lane_ends, answer.lanes)
        return reported, applied.earliest

    async def _cancel(self, ids: Sequence[JobId], session: Session) -> tuple[dict[JobId, str], int]:
        """The states of these jobs, and how many parents were cancelled."""
        found = {row["id"]: row["state"] for row in await session.fetch(self._sql.lock_live, ids)}
        released = await self._cancel_locked(found, session)
        if missing := [id for id in ids if id not in found]:
            # A later statement: a job that ended while we waited for its lock is in history by now.
            ended = {row["id"]: row["state"] for row in await session.fetch(self._sql.ended_states, missing)}
            found |= ended
            if cancelled := [id for id, state in ended.items() if state == _CANCELLED]:
                await session.execute(self._sql.forget_cancellations, cancelled)
                # One that was revived before that is live again.
                revived = {row["id"]: row["state"] for row in await session.fetch(self._sql.lock_live, cancelled)}
                released += await self._cancel_locked(revived, session)
                found |= revived
        return found, released

    async def _cancel_keys(self, task: str, keys: list[str], session: Session) -> tuple[dict[JobId, str], int]:
        found = {row["id"]: row["state"] for row in await session.fetch(self._sql.lock_live_of_keys, task, keys)}
        return found, await self._cancel_locked(found, session)

    async def _cancel_locked(self, found: dict[JobId, str], session: Session) -> int:
        pending = [id for id, state in found.items() if state != "running"]
        running = [id for id, state in found.items() if state == "running"]
        released = await self._end_pending(pending, _CANCELLED, session)
        if running:
            await session.execute(self._sql.request_cancel, running)
        return released

    async def _end_pending(self, ids: Sequence[JobId], state: str, session: Session) -> int:
        """Move locked jobs that do not run to history; return how many parents are among them."""
        if not ids:
            return 0
        columns = rows.to_columns((id, state, *[None] * 6) for id in ids)
        released: int = await session.fetchval(self._sql.move_to_history, *columns)
        return released

    async def _expire(self, limit: int, session: Session) -> tuple[int, int]:
        ids = [row["id"] for row in await session.fetch(self._sql.lock_expired, limit)]
        return len(ids), await self._end_pending(ids, _EXPIRED, session)

    async def _discard(self, ids: Sequence[JobId], session: Session) -> tuple[int, bool]:
        await session.fetch(self._sql.lock_dead_letters, ids)
        found = await session.fetchrow(self._sql.discard, ids)
        return found["number"], found["released"]

    async def _replay(self, ids: Sequence[JobId], session: Session) -> tuple[list[ReplayResult], int | None, bool]:
        found = await session.fetch(self._sql.lock_dead_letters, [id for id in ids if is_job_id(id)])
        letters = {row["id"]: KeyedRow(*row) for row in found}
        keys = await load_unique_keys(self._sql, session, unique_keys(letters.values()))
        answers, chosen = select_replays(ids, letters, keys)
        if not chosen:
            return answers, None, False
        await session.execute(self._sql.insert_last_attempts, chosen)
        await session.execute(self._sql.keep_outcomes, chosen)
        revived = await session.fetchrow(self._sql.replay, chosen)
        return answers, revived["now"], revived["released"]

    async def _load_ended(self, ids: Sequence[JobId], since: int) -> dict[JobId, EndedJob | None]:
        found = await self._connection.call(
            lambda session: session.fetch(self._sql.results, ids, since), plan_mode=PlanMode.ANY
        )
        return {row["id"]: rows.ended_job(row) for row in found}

    async def _expire_waits(self, prefix: str, before: int, limit: int, session: Session) -> tuple[int, Applied]:
        found = await session.fetch(self._sql.lock_expired_waits, prefix, before, limit)
        if not found:
            return 0, Applied(None, 0, 0)
        dead, follow_ups = expired_rows(map(rows.job_row, found), found[0]["now"])
        released = await session.fetchval(self._sql.move_to_dead, *rows.to_columns(dead))
        dues = await self._inserter.add_in_transaction(session, follow_ups)
        return len(dead), Applied(min(dues, default=None), released, 0)


def _is_all_success(outcomes: Sequence[Outcome]) -> bool:
    """Successes only, each job once, without follow-ups: what the hot statement can take."""
    count = len(outcomes)
    plain = [each.kind for each in outcomes if each.follow_up is None]
    return plain.count(OutcomeKind.SUCCEEDED) == count and len({each.id for each in outcomes}) == count
