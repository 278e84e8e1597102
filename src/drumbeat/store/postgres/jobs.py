"""Jobs on PostgreSQL: what `insert`, `claim`, `completion` and `history` do, and the smaller operations.

The contract is in `store.protocol.JobStore`. Claims and outcomes have a connection of their own, and use the other one
as well when it is free; everything else uses that one.
"""

from collections.abc import Sequence
from functools import partial

from drumbeat.core.claim import ClaimedJob, ClaimRef, ClaimRequest, ClaimResult, MalformedJob, Outcome, WriteStatus
from drumbeat.core.job import AddResult, CancelAnswer, EndedJob, JobState, NewJob, OutcomeKind, ReplayResult
from drumbeat.core.transitions import answer_cancel
from drumbeat.core.uniqueness import KeyedRow, select_replays, unique_keys
from drumbeat.ids import InstanceId, JobId, created_us, is_job_id
from drumbeat.store.completion_rows import expired_rows
from drumbeat.store.job_reads import missing_job_error
from drumbeat.store.postgres import rows
from drumbeat.store.postgres.connections import PlanMode, Session
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
        self._history = parts.history
        self._notifier = parts.notifier

    async def add(self, jobs: Sequence[NewJob]) -> list[AddResult]:
        return await self._inserter.add(jobs) if jobs else []

    async def report_and_claim(
        self, instance: InstanceId, outcomes: Sequence[Outcome], request: ClaimRequest | None
    ) -> ClaimResult:
        if _is_all_success(outcomes) and (request is None or not request.unblocks):
            # A busy worker has two calls under way: while one waits for the disk, the server works on the other.
            connection = (
                self._connection
                if self._connection.is_free and not self._claim_connection.is_free
                else self._claim_connection
            )
            return await connection.call(
                partial(self._report_successes_and_claim, instance, outcomes, request), plan_mode=PlanMode.GENERIC
            )
        result, soonest = await self._claim_connection.transact(
            partial(self._report_all_and_claim, instance, outcomes, request)
        )
        self._notifier.notify(soonest)
        return result

    async def list_running(self, instance: InstanceId) -> list[ClaimRef]:
        found = await self._connection.call(lambda session: session.fetch(self._sql.list_running, instance))
        return [ClaimRef(row["id"], row["token"]) for row in found]

    async def save_progress(self, instance: InstanceId, notes: Sequence[tuple[ClaimRef, str]]) -> None:
        if notes:
            columns = rows.to_columns((claim.id, claim.token, progress) for claim, progress in notes)
            await self._connection.call(lambda session: session.execute(self._sql.save_progress, instance, *columns))

    async def cancel(self, ids: Sequence[JobId]) -> list[CancelAnswer]:
        wanted = [id for id in dict.fromkeys(ids) if is_job_id(id)]
        states = await self._connection.transact(partial(self._cancel, wanted)) if wanted else {}
        return [answer_cancel(states.get(id)) for id in ids]

    async def cancel_keys(self, task: str, keys: Sequence[str]) -> list[CancelAnswer]:
        states = await self._connection.transact(partial(self._cancel_keys, task, list(keys))) if keys else {}
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
        answers, soonest = await self._connection.transact(partial(self._replay, ids))
        self._notifier.notify(soonest)
        await self._notifier.flush()
        return answers

    async def discard(self, ids: Sequence[JobId]) -> int:
        wanted = [id for id in ids if is_job_id(id)]
        if not wanted:
            return 0
        return len(await self._connection.call(lambda session: session.fetch(self._sql.discard, wanted)))

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
        return await self._connection.transact(partial(self._expire, limit))

    async def expire_blocked(self, prefix: str, before: int, limit: int) -> int:
        count, soonest = await self._connection.transact(partial(self._expire_waits, prefix, before, limit))
        self._notifier.notify(soonest)
        return count

    async def prune(self, before: int, limit: int) -> int:
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
    ) -> ClaimResult:
        """The hot path: one statement. Only where an outcome was not applied there is more to read.

        It waits for the disk even if it only claims: a crash of the server must not take a claim from a living worker.
        """
        answer = await self._claimer.report_and_claim(session, instance, outcomes, claim)
        statuses = [WriteStatus.APPLIED] * len(outcomes)
        if answer.recorded_count < len(outcomes):
            recorded = set((answer.recorded_ids or "").split())
            done = {(each.id, each.token) for each in outcomes if each.id in recorded}
            statuses = await self._completion.build_statuses(session, instance, outcomes, done)
        return answer.to_result(statuses)

    async def _report_all_and_claim(
        self, instance: InstanceId, outcomes: Sequence[Outcome], claim: ClaimRequest | None, session: Session
    ) -> tuple[ClaimResult, int | None]:
        """Everything else: a transaction of several statements. Returns also the earliest run_at of jobs that are
        pending again."""
        statuses: list[WriteStatus] = []
        soonest: int | None = None
        if outcomes:
            statuses, soonest = await self._completion.record_outcomes(session, instance, outcomes)
            if soonest is not None:
                self._claimer.lower_bounds(soonest)
        unblocked: list[ClaimedJob] = []
        malformed: list[MalformedJob] = []
        if claim is not None and claim.unblocks and claim.limit > 0:
            unblocked, malformed = await self._claimer.claim_blocked(session, instance, claim)
            claim = ClaimRequest(queues=claim.queues, limit=claim.limit - len(unblocked) - len(malformed))
        answer = await self._claimer.report_and_claim(session, instance, (), claim)
        answer.jobs[:0] = unblocked
        answer.malformed[:0] = malformed
        return answer.to_result(statuses), soonest

    async def _cancel(self, ids: Sequence[JobId], session: Session) -> dict[JobId, str]:
        found = {row["id"]: row["state"] for row in await session.fetch(self._sql.lock_live, ids)}
        await self._cancel_locked(found, session)
        if missing := [id for id in ids if id not in found]:
            # A later statement: a job that ended while we waited for its lock is in history by now.
            found |= {row["id"]: row["state"] for row in await session.fetch(self._sql.ended_states, missing)}
        return found

    async def _cancel_keys(self, task: str, keys: list[str], session: Session) -> dict[JobId, str]:
        found = {row["id"]: row["state"] for row in await session.fetch(self._sql.lock_live_of_keys, task, keys)}
        await self._cancel_locked(found, session)
        return found

    async def _cancel_locked(self, found: dict[JobId, str], session: Session) -> None:
        pending = [id for id, state in found.items() if state != "running"]
        running = [id for id, state in found.items() if state == "running"]
        await self._end_pending(pending, _CANCELLED, session)
        if running:
            await session.execute(self._sql.request_cancel, running)

    async def _end_pending(self, ids: Sequence[JobId], state: str, session: Session) -> None:
        """Move locked jobs that do not run to history."""
        if ids:
            columns = rows.to_columns((id, state, *[None] * 6) for id in ids)
            await session.execute(self._sql.move_to_history, *columns)

    async def _expire(self, limit: int, session: Session) -> int:
        ids = [row["id"] for row in await session.fetch(self._sql.lock_expired, limit)]
        await self._end_pending(ids, _EXPIRED, session)
        return len(ids)

    async def _replay(self, ids: Sequence[JobId], session: Session) -> tuple[list[ReplayResult], int | None]:
        found = await session.fetch(self._sql.lock_dead_letters, [id for id in ids if is_job_id(id)])
        letters = {row["id"]: KeyedRow(*row) for row in found}
        keys = await load_unique_keys(self._sql, session, unique_keys(letters.values()))
        answers, chosen = select_replays(ids, letters, keys)
        if not chosen:
            return answers, None
        await session.execute(self._sql.insert_last_attempts, chosen)
        revived = await session.fetch(self._sql.replay, chosen)
        return answers, revived[0]["now"]

    async def _load_ended(self, ids: Sequence[JobId], since: int) -> dict[JobId, EndedJob | None]:
        found = await self._connection.call(
            lambda session: session.fetch(self._sql.results, ids, since), plan_mode=PlanMode.ANY
        )
        return {row["id"]: rows.ended_job(row) for row in found}

    async def _expire_waits(self, prefix: str, before: int, limit: int, session: Session) -> tuple[int, int | None]:
        found = await session.fetch(self._sql.lock_expired_waits, prefix, before, limit)
        if not found:
            return 0, None
        dead, follow_ups = expired_rows(map(rows.job_row, found), found[0]["now"])
        await session.execute(self._sql.move_to_dead, *rows.to_columns(dead))
        return len(dead), min(await self._inserter.add_in_transaction(session, follow_ups), default=None)


def _is_all_success(outcomes: Sequence[Outcome]) -> bool:
    """Successes only, each job once, without follow-ups: what the hot statement can take."""
    count = len(outcomes)
    plain = [each.kind for each in outcomes if each.follow_up is None]
    return plain.count(OutcomeKind.SUCCEEDED) == count and len({each.id for each in outcomes}) == count
