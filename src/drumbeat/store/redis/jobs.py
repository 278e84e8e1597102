"""Jobs on Redis; the contract is in `store.protocol`. Inserting is in `insert`, reporting and claiming in `completion`.

Each operation is one atomic script. Only `expire_blocked` reads first, because follow-ups of dead letters are built here.
"""

from collections.abc import Sequence

from drumbeat.core.claim import ClaimRef, ClaimRequest, ClaimResult, Outcome
from drumbeat.core.follow_up import make_on_dead_job
from drumbeat.core.job import AddResult, CancelAnswer, EndedJob, NewJob, ReplayResult
from drumbeat.core.transitions import answer_cancel, expired_block_failure
from drumbeat.ids import InstanceId, JobId, is_job_id, pack_id, unpack_id
from drumbeat.store.job_reads import missing_job_error
from drumbeat.store.redis import insert, record_format, rows
from drumbeat.store.redis.completion import CompletionClient
from drumbeat.store.redis.connection import Value
from drumbeat.store.redis.insert import RedisInserter
from drumbeat.store.redis.pool import RedisPool
from drumbeat.store.redis.releases import follow_releases
from drumbeat.store.redis.rows import encode_json


class RedisJobs:
    def __init__(self, pool: RedisPool, completion: CompletionClient) -> None:
        self._pool = pool
        self._inserter = RedisInserter(pool)
        self._completion = completion

    async def add(self, jobs: Sequence[NewJob]) -> list[AddResult]:
        return await self._inserter.add(jobs) if jobs else []

    async def report_and_claim(
        self, instance: InstanceId, outcomes: Sequence[Outcome], request: ClaimRequest | None
    ) -> ClaimResult:
        return await self._completion.report_and_claim(instance, outcomes, request)

    async def list_running(self, instance: InstanceId) -> list[ClaimRef]:
        flat = await self._pool.command("ZRANGE", self._pool.keys.held(instance), 0, -1, "WITHSCORES")
        return rows.decode_claim_refs(flat)

    async def save_progress(self, instance: InstanceId, notes: Sequence[tuple[ClaimRef, str]]) -> None:
        if notes:
            values: list[Value] = [
                value for hold, progress in notes for value in (pack_id(hold.id), hold.token, encode_json(progress))
            ]
            await self._pool.run("save_progress", instance, *values)

    async def cancel(self, ids: Sequence[JobId]) -> list[CancelAnswer]:
        wanted = [id for id in ids if is_job_id(id)]
        states = iter(await self._cancel("", *map(pack_id, wanted)) if wanted else ())
        return [_answer_cancel(next(states) if is_job_id(id) else None) for id in ids]

    async def cancel_keys(self, task: str, keys: Sequence[str]) -> list[CancelAnswer]:
        found = await self._cancel(task, *dict.fromkeys(keys)) if keys else []
        return [_answer_cancel(state) for state in found if state is not None]

    async def run_now(self, ids: Sequence[JobId]) -> int:
        return await self._run_counting("run_jobs_now", ids)

    async def replay(self, ids: Sequence[JobId]) -> list[ReplayResult]:
        wanted = [id for id in ids if is_job_id(id)]
        answers = iter(await self._replay(wanted) if wanted else ())
        found: list[ReplayResult] = []
        for id in ids:
            answer = next(answers) if is_job_id(id) else 0
            holder = unpack_id(answer) if isinstance(answer, bytes) else None
            found.append(ReplayResult(id, answer == 1, holder))
        return found

    async def discard(self, ids: Sequence[JobId]) -> int:
        wanted = [pack_id(id) for id in ids if is_job_id(id)]
        if not wanted:
            return 0
        is_releasing, moved = await self._pool.run("discard_dead_letters", *wanted)
        await follow_releases(self._pool, is_releasing)
        return int(moved)

    async def get_results(self, ids: Sequence[JobId]) -> list[EndedJob | None]:
        wanted = [id for id in dict.fromkeys(ids) if is_job_id(id)]
        pruned_before, *answers = await self._pool.run("get_results", *map(pack_id, wanted)) if ids else [None]
        known = dict(zip(wanted, answers, strict=True))
        found: list[EndedJob | None] = []
        for id in ids:
            answer = known.get(id)
            if answer is None:
                raise missing_job_error(id, record_format.int_or_zero(pruned_before))
            found.append(rows.decode_ended(id, *answer))
        return found

    async def expire(self, limit: int) -> int:
        is_releasing, expired = await self._pool.run("expire_jobs", limit)
        await follow_releases(self._pool, is_releasing)
        return int(expired)

    async def expire_blocked(self, prefix: str, before: int, limit: int) -> int:
        now, *ids = await self._pool.run("list_long_blocked_ids", prefix, before, limit)
        values: list[Value] = []
        for id, answer in await rows.load_jobs(self._pool, ids):
            _, state, known, *_ = answer
            try:
                wait = record_format.parse_live_state(known or b"")
            except ValueError:
                continue  # reported by the doctor
            if state != b"pending" or wait.blocked_since is None:
                continue
            error = expired_block_failure(wait.blocked_on or "", wait.blocked_since, now)
            after = make_on_dead_job(rows.decode_job(id, answer), error)
            values += (pack_id(id), wait.blocked_since, encode_json(error), *insert.follow_up_arguments(after))
        if not values:
            return 0
        is_releasing, dead = await self._pool.run("expire_blocked_jobs", *values)
        await follow_releases(self._pool, is_releasing)
        return int(dead)

    async def prune(self, before: int, limit: int) -> int:
        return int(await self._pool.run("prune_jobs", before, limit))

    async def pause_queue(self, queue: str, *, by: str, reason: str) -> None:
        await self._pool.run("pause_queue", queue, encode_json([by, reason])[1:])

    async def resume_queue(self, queue: str) -> bool:
        return bool(await self._pool.run("resume_queue", queue))

    async def _cancel(self, task: str, *names: Value) -> list[bytes | None]:
        states: list[bytes | None]
        is_releasing, states = await self._pool.run("cancel_jobs", task, *names)
        await follow_releases(self._pool, is_releasing)
        return states

    async def _replay(self, ids: Sequence[JobId]) -> list[bytes | int]:
        answers: list[bytes | int]
        is_releasing, answers = await self._pool.run("replay_dead_letters", *map(pack_id, ids))
        await follow_releases(self._pool, is_releasing)
        return answers

    async def _run_counting(self, script: str, ids: Sequence[JobId]) -> int:
        wanted = [pack_id(id) for id in ids if is_job_id(id)]
        return int(await self._pool.run(script, *wanted)) if wanted else 0


def _answer_cancel(state: bytes | None) -> CancelAnswer:
    return answer_cancel(None if state is None else state.decode())
