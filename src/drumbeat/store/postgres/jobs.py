"""A job's life on PostgreSQL: the face of `adding`, `claiming`, `ending` and `history`, and the smaller operations.

The contract is in `store.protocol.Jobs`. Claims and outcomes have a connection of their own, and use the other one as well
when it is free; everything else shares that.
"""

from collections.abc import Sequence
from functools import partial

from drumbeat.errors import JobExpired, JobNotFound
from drumbeat.ids import InstanceId, JobId, created_us, is_job_id
from drumbeat.model.death import follow_up
from drumbeat.model.job import (
    Added,
    CancelAnswer,
    Claim,
    Claimed,
    Ended,
    Exchanged,
    Failure,
    Hold,
    Malformed,
    NewJob,
    Outcome,
    OutcomeKind,
    Replayed,
    Verdict,
)
from drumbeat.store.outcomes import released
from drumbeat.store.postgres import rows
from drumbeat.store.postgres.adding import Adding, keys_of
from drumbeat.store.postgres.claiming import Claiming
from drumbeat.store.postgres.connections import Link, Plans, Session
from drumbeat.store.postgres.ending import Ending
from drumbeat.store.postgres.history import DAY_US, History
from drumbeat.store.postgres.statements import JobSql
from drumbeat.store.postgres.wake import Announcer

_CANCELLED = OutcomeKind.CANCELLED.value
_ANSWERS = {
    "pending": CancelAnswer.CANCELLED,
    "running": CancelAnswer.REQUESTED,
    "succeeded": CancelAnswer.SUCCEEDED,
    "cancelled": CancelAnswer.CANCELLED,
    "dead": CancelAnswer.DEAD,
    None: CancelAnswer.UNKNOWN,
}


class PostgresJobs:
    def __init__(
        self,
        sql: JobSql,
        *,
        work: Link,
        side: Link,
        adding: Adding,
        ending: Ending,
        claiming: Claiming,
        history: History,
        announcer: Announcer,
    ) -> None:
        self._sql = sql
        self._work = work
        self._side = side
        self._adding = adding
        self._ending = ending
        self._claiming = claiming
        self._history = history
        self._announcer = announcer

    async def add(self, jobs: Sequence[NewJob]) -> list[Added]:
        return await self._adding.add(jobs) if jobs else []

    async def exchange(self, instance: InstanceId, outcomes: Sequence[Outcome], claim: Claim | None) -> Exchanged:
        if _is_plain(outcomes) and (claim is None or not claim.wants):
            # A busy worker has two under way: while one waits for the disk, the server works on the other.
            link = self._side if self._side.is_free and not self._work.is_free else self._work
            return await link.call(partial(self._exchange, instance, outcomes, claim), plans=Plans.ONCE)
        exchanged, soonest = await self._work.transact(partial(self._exchange_all, instance, outcomes, claim))
        self._tell(soonest)
        return exchanged

    async def running(self, instance: InstanceId) -> list[Hold]:
        found = await self._side.call(lambda session: session.fetch(self._sql.running, instance))
        return [Hold(row["id"], row["token"]) for row in found]

    async def release(self, instance: InstanceId, holds: Sequence[Hold]) -> int:
        if not holds:
            return 0
        outcomes = released((hold.id, hold.token) for hold in holds)
        done, soonest = await self._side.transact(lambda session: self._ending.settle(session, instance, outcomes))
        self._tell(soonest)
        return len(done)

    async def note(self, instance: InstanceId, notes: Sequence[tuple[Hold, str]]) -> None:
        if notes:
            columns = rows.columns(((hold.id, hold.token, progress) for hold, progress in notes), 3)
            await self._side.call(lambda session: session.execute(self._sql.note, instance, *columns))

    async def cancel(self, ids: Sequence[JobId]) -> list[CancelAnswer]:
        wanted = [id for id in dict.fromkeys(ids) if is_job_id(id)]
        states = await self._side.transact(partial(self._cancel, wanted)) if wanted else {}
        return [_answer(states.get(id)) for id in ids]

    async def cancel_keys(self, task: str, keys: Sequence[str]) -> list[CancelAnswer]:
        states = await self._side.transact(partial(self._cancel_keys, task, list(keys))) if keys else {}
        return [_answer(state) for state in states.values()]

    async def run_now(self, ids: Sequence[JobId]) -> int:
        wanted = [id for id in ids if is_job_id(id)]
        changed = await self._side.call(lambda session: session.fetch(self._sql.run_now, wanted)) if wanted else []
        if changed:
            self._announcer.tell(changed[0][0])
            await self._announcer.settle()
        return len(changed)

    async def replay(self, ids: Sequence[JobId]) -> list[Replayed]:
        if not ids:
            return []
        answers, soonest = await self._side.transact(partial(self._replay, ids))
        self._tell(soonest)
        await self._announcer.settle()
        return answers

    async def discard(self, ids: Sequence[JobId]) -> int:
        wanted = [id for id in ids if is_job_id(id)]
        if not wanted:
            return 0
        return len(await self._side.call(lambda session: session.fetch(self._sql.discard, wanted)))

    async def ended(self, ids: Sequence[JobId]) -> list[Ended | None]:
        wanted = [id for id in dict.fromkeys(ids) if is_job_id(id)]
        found: dict[JobId, Ended | None] = {}
        if wanted:
            # Nearly always it ended lately. Only for one that is not there are all the days looked at.
            since = created_us(min(wanted)) - DAY_US
            found = await self._ended(wanted, since)
            if len(found) < len(wanted):
                found = await self._ended(wanted, 0)
        for id in ids:
            if id not in found:
                raise nowhere(id, await self._side.call(lambda session: session.fetchval(self._sql.pruned_before)))
        return [found[id] for id in ids]

    async def expire_waits(self, prefix: str, before: int, limit: int) -> int:
        count, soonest = await self._side.transact(partial(self._expire_waits, prefix, before, limit))
        self._tell(soonest)
        return count

    async def prune(self, before: int, limit: int) -> int:
        return await self._history.prune(before, limit)

    async def pause(self, queue: str, *, by: str, why: str) -> None:
        await self._side.call(lambda session: session.execute(self._sql.pause, queue, by, why))

    async def resume(self, queue: str) -> bool:
        resumed = bool(await self._side.call(lambda session: session.fetch(self._sql.resume, queue)))
        if resumed:
            self._announcer.tell(0)
            await self._announcer.settle()
        return resumed

    async def _exchange(
        self, instance: InstanceId, outcomes: Sequence[Outcome], claim: Claim | None, session: Session
    ) -> Exchanged:
        """The hot path: one statement. Only where something was not current is there more to ask.

        It waits for the disk, also where it only claims: a crash of the server must not take a claim from a living worker.
        """
        answer = await self._claiming.exchange(session, instance, outcomes, claim)
        verdicts = [Verdict.DONE] * len(outcomes)
        if answer.ended < len(outcomes):
            recorded = set((answer.recorded or "").split())
            done = {(each.id, each.token) for each in outcomes if each.id in recorded}
            verdicts = await self._ending.verdicts(session, instance, outcomes, done)
        return Exchanged(
            verdicts=verdicts, jobs=answer.jobs, now=answer.now, next_due=answer.next_due, malformed=answer.malformed
        )

    async def _exchange_all(
        self, instance: InstanceId, outcomes: Sequence[Outcome], claim: Claim | None, session: Session
    ) -> tuple[Exchanged, int | None]:
        """Everything else: a transaction of some statements, and the due moment of what is pending again."""
        verdicts: list[Verdict] = []
        soonest: int | None = None
        if outcomes:
            verdicts, soonest = await self._ending.end(session, instance, outcomes)
            if soonest is not None:
                self._claiming.hear(soonest)
        wanted: list[Claimed] = []
        malformed: list[Malformed] = []
        if claim is not None and claim.wants and claim.limit > 0:
            wanted, malformed = await self._claiming.claim_waiting(session, instance, claim)
            claim = Claim(queues=claim.queues, limit=claim.limit - len(wanted) - len(malformed))
        answer = await self._claiming.exchange(session, instance, (), claim)
        jobs, malformed = wanted + answer.jobs, malformed + answer.malformed
        exchanged = Exchanged(
            verdicts=verdicts, jobs=jobs, now=answer.now, next_due=answer.next_due, malformed=malformed
        )
        return exchanged, soonest

    async def _cancel(self, ids: Sequence[JobId], session: Session) -> dict[JobId, str]:
        found = {row["id"]: row["state"] for row in await session.fetch(self._sql.lock, ids)}
        await self._cancel_locked(found, session)
        if missing := [id for id in ids if id not in found]:
            # A later statement: what ended while we waited for its lock is in history by now.
            found |= {row["id"]: row["state"] for row in await session.fetch(self._sql.states, missing)}
        return found

    async def _cancel_keys(self, task: str, keys: list[str], session: Session) -> dict[JobId, str]:
        found = {row["id"]: row["state"] for row in await session.fetch(self._sql.live_of_keys, task, keys)}
        await self._cancel_locked(found, session)
        return found

    async def _cancel_locked(self, found: dict[JobId, str], session: Session) -> None:
        pending = [(id, _CANCELLED, *[None] * 6) for id, state in found.items() if state != "running"]
        running = [id for id, state in found.items() if state == "running"]
        if pending:
            await session.execute(self._sql.finish, *rows.columns(pending, 8))
        if running:
            await session.execute(self._sql.request_cancel, running)

    async def _replay(self, ids: Sequence[JobId], session: Session) -> tuple[list[Replayed], int | None]:
        found = await session.fetch(self._sql.dead_letters, [id for id in ids if is_job_id(id)])
        letters = {row["id"]: row for row in found}
        keys = await keys_of(self._sql, session, ((row["task"], row["key"]) for row in found if row["unique"]))
        answers: list[Replayed] = []
        chosen: list[JobId] = []
        for id in ids:
            letter = letters.pop(id, None)
            if letter is None:
                answers.append(Replayed(id, False))
                continue
            holder = keys.holder(letter["task"], letter["key"], letter["unique"])
            if holder is None:
                keys.take(letter["task"], letter["key"], letter["unique"], id)
                chosen.append(id)
            answers.append(Replayed(id, holder is None, holder))
        if not chosen:
            return answers, None
        await session.execute(self._sql.keep_last_attempts, chosen)
        revived = await session.fetch(self._sql.revive, chosen)
        return answers, revived[0]["now"]

    async def _ended(self, ids: Sequence[JobId], since: int) -> dict[JobId, Ended | None]:
        found = await self._side.call(lambda session: session.fetch(self._sql.ended, ids, since), plans=Plans.EITHER)
        return {row["id"]: rows.ended(row) for row in found}

    async def _expire_waits(self, prefix: str, before: int, limit: int, session: Session) -> tuple[int, int | None]:
        found = await session.fetch(self._sql.waited_too_long, prefix, before, limit)
        if not found:
            return 0, None
        dead, after = [], []
        for row in found:
            hours = (row["now"] - row["waits_since"]) / 3_600_000_000
            error = Failure(type="WaitExpired", message=f"nobody came in {hours:.1f} h for {row['waits_for']}")
            dead.append((row["id"], None, None, row["now"], row["failures"], row["crashes"], rows.as_json(error)))
            if (job := follow_up(rows.job(row), error)) is not None:
                after.append(job)
        await session.execute(self._sql.die, *rows.columns(dead, 7))
        return len(dead), min(await self._adding.add_within(session, after), default=None)

    def _tell(self, soonest: int | None) -> None:
        if soonest is not None:
            self._announcer.tell(soonest)


def _answer(state: str | None) -> CancelAnswer:
    # A state that nobody knows is one of a live job that was written by hand: it never ran, and is cancelled now.
    return _ANSWERS.get(state, CancelAnswer.CANCELLED)


def nowhere(id: JobId, pruned_before: int | None) -> JobNotFound | JobExpired:
    """Which of the two it is for an id that is in no table."""
    if pruned_before is not None and is_job_id(id) and created_us(id) < pruned_before:
        return JobExpired(id)
    return JobNotFound(id)


def _is_plain(outcomes: Sequence[Outcome]) -> bool:
    """Successes only, each once: what the hot statement can take."""
    count = len(outcomes)
    kinds = [each.kind for each in outcomes]
    return kinds.count(OutcomeKind.SUCCEEDED) == count and len({each.id for each in outcomes}) == count
