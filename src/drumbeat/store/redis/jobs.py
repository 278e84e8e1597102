"""A job's life on Redis: the face of `adding` and `ending`, and the smaller operations.

The contract is in `store.protocol.Jobs`. Each operation is one script, and so atomic; only `expire_waits` looks first, because
the follow-ups of deaths are made here.
"""

from collections.abc import Sequence

from drumbeat.errors import JobExpired, JobNotFound
from drumbeat.ids import InstanceId, JobId, created_us, is_job_id, packed, unpacked
from drumbeat.model.death import follow_up
from drumbeat.model.job import (
    Added,
    CancelAnswer,
    Claim,
    Ended,
    Exchanged,
    Failure,
    Hold,
    NewJob,
    Outcome,
    Replayed,
)
from drumbeat.store.redis import adding, rows, texts
from drumbeat.store.redis.adding import Adding
from drumbeat.store.redis.connections import Link
from drumbeat.store.redis.ending import Exchanging
from drumbeat.store.redis.line import Value
from drumbeat.store.redis.rows import as_json

_ANSWERS = {
    b"pending": CancelAnswer.CANCELLED,
    b"running": CancelAnswer.REQUESTED,
    b"succeeded": CancelAnswer.SUCCEEDED,
    b"cancelled": CancelAnswer.CANCELLED,
    b"dead": CancelAnswer.DEAD,
    None: CancelAnswer.UNKNOWN,
}


class RedisJobs:
    def __init__(self, link: Link, exchanging: Exchanging) -> None:
        self._link = link
        self._adding = Adding(link)
        self._exchanging = exchanging

    async def add(self, jobs: Sequence[NewJob]) -> list[Added]:
        return await self._adding.add(jobs) if jobs else []

    async def exchange(self, instance: InstanceId, outcomes: Sequence[Outcome], claim: Claim | None) -> Exchanged:
        return await self._exchanging.exchange(instance, outcomes, claim)

    async def running(self, instance: InstanceId) -> list[Hold]:
        flat = await self._link.command("ZRANGE", self._link.keys.held(instance), 0, -1, "WITHSCORES")
        # A score may be written as 1.7e+15; it is exact all the same.
        found = zip(flat[::2], flat[1::2], strict=True)
        return [Hold(unpacked(id), texts.number_or_0(token)) for id, token in found if len(id) == 16]

    async def release(self, instance: InstanceId, holds: Sequence[Hold]) -> int:
        if not holds:
            return 0
        values: list[Value] = [value for hold in holds for value in (packed(hold.id), hold.token)]
        released: int = await self._link.run("jobs_release", instance, *values)
        return released

    async def note(self, instance: InstanceId, notes: Sequence[tuple[Hold, str]]) -> None:
        if notes:
            values: list[Value] = [
                value for hold, progress in notes for value in (packed(hold.id), hold.token, as_json(progress))
            ]
            await self._link.run("jobs_note", instance, *values)

    async def cancel(self, ids: Sequence[JobId]) -> list[CancelAnswer]:
        wanted = [id for id in ids if is_job_id(id)]
        states = iter(await self._link.run("jobs_cancel", *map(packed, wanted)) if wanted else ())
        return [_ANSWERS[next(states)] if is_job_id(id) else CancelAnswer.UNKNOWN for id in ids]

    async def cancel_keys(self, task: str, keys: Sequence[str]) -> list[CancelAnswer]:
        found = await self._link.run("jobs_cancel_keys", task, *dict.fromkeys(keys)) if keys else []
        return [_ANSWERS[state] for state in found]

    async def run_now(self, ids: Sequence[JobId]) -> int:
        return await self._count("jobs_run_now", ids)

    async def replay(self, ids: Sequence[JobId]) -> list[Replayed]:
        wanted = [id for id in ids if is_job_id(id)]
        answers = iter(await self._link.run("jobs_replay", *map(packed, wanted)) if wanted else ())
        found: list[Replayed] = []
        for id in ids:
            answer = next(answers) if is_job_id(id) else 0
            holder = unpacked(answer) if isinstance(answer, bytes) else None
            found.append(Replayed(id, answer == 1, holder))
        return found

    async def discard(self, ids: Sequence[JobId]) -> int:
        return await self._count("jobs_discard", ids)

    async def ended(self, ids: Sequence[JobId]) -> list[Ended | None]:
        wanted = [id for id in dict.fromkeys(ids) if is_job_id(id)]
        pruned_before, *answers = await self._link.run("jobs_ended", *map(packed, wanted)) if ids else [None]
        known = dict(zip(wanted, answers, strict=True))
        found: list[Ended | None] = []
        for id in ids:
            answer = known.get(id)
            if answer is None:
                raise nowhere(id, pruned_before)
            found.append(rows.ended(id, *answer))
        return found

    async def expire_waits(self, prefix: str, before: int, limit: int) -> int:
        now, *ids = await self._link.run("jobs_waited", prefix, before, limit)
        if not ids:
            return 0
        _, *answers = await self._link.run("inspect_records", *ids)
        values: list[Value] = []
        for id, answer in zip(ids, answers, strict=True):
            known = None if answer is None or not answer[2] else answer[2]
            if answer is None or answer[1] != b"pending" or known is None:
                continue
            try:
                wait = texts.more(known)
            except ValueError:
                continue  # the doctor names it
            if wait.waits_since is None:
                continue
            hours = (now - wait.waits_since) / 3_600_000_000
            error = Failure(type="WaitExpired", message=f"nobody came in {hours:.1f} h for {wait.waits_for}")
            after = follow_up(rows.job(unpacked(id), answer), error)
            values += (id, wait.waits_since, as_json(error), *adding.follow_up(after))
        expired: int = await self._link.run("jobs_expire", *values)
        return expired

    async def prune(self, before: int, limit: int) -> int:
        pruned: int = await self._link.run("jobs_prune", before, limit)
        return pruned

    async def pause(self, queue: str, *, by: str, why: str) -> None:
        await self._link.run("jobs_pause", queue, as_json([by, why])[1:])

    async def resume(self, queue: str) -> bool:
        return bool(await self._link.run("jobs_resume", queue))

    async def _count(self, script: str, ids: Sequence[JobId]) -> int:
        wanted = [packed(id) for id in ids if is_job_id(id)]
        count: int = await self._link.run(script, *wanted) if wanted else 0
        return count


def nowhere(id: JobId, pruned_before: bytes | None) -> JobNotFound | JobExpired:
    """Which of the two it is for an id that is nowhere."""
    if pruned_before is not None and is_job_id(id) and created_us(id) < texts.number_or_0(pruned_before):
        return JobExpired(id)
    return JobNotFound(id)
