"""Reads for people on Redis. The contract is in `store.protocol.Inspector`."""

from collections.abc import Sequence

import msgspec

from drumbeat.core.dead_letter import DeadLetterGroup
from drumbeat.core.health import HealthCheck
from drumbeat.core.instance import Instance, LeaderInfo
from drumbeat.core.job import Attempt, Job, JobState
from drumbeat.core.job_query import JobFilter, QueueStats, TaskStats
from drumbeat.durations import to_us
from drumbeat.ids import JobId, is_job_id, pack_id
from drumbeat.store.malformed import Fault, explain_fault, join_reasons, log_faults
from drumbeat.store.protocol.inspect import MAX_GROUPED_LETTERS
from drumbeat.store.records import to_datetime_or_none
from drumbeat.store.redis import instances, record_format, rows
from drumbeat.store.redis.finder import find_malformed
from drumbeat.store.redis.health import RedisHealth
from drumbeat.store.redis.pool import RedisPool
from drumbeat.store.redis.search import RedisSearch

_DEAD_LETTERS_PER_CALL = 250
"""Dead letters that one call reads to group them: about 4 ms."""
_PAGE = 500
_decode_pause = msgspec.json.Decoder(tuple[int, str, str]).decode


def _read_pause(queue: bytes, text: bytes) -> tuple[int, str, str]:
    try:
        return _decode_pause(text)
    except (ValueError, msgspec.DecodeError) as error:
        faults = [("pause", explain_fault("pause", text, error))]
        log_faults("pause of a queue", queue, faults)
        return 0, "", join_reasons(faults)


class RedisInspect(RedisSearch):
    def __init__(self, pool: RedisPool, health: RedisHealth) -> None:
        super().__init__(pool)
        self._health = health

    async def now(self) -> int:
        seconds, us = await self._pool.command("TIME")
        return int(seconds) * 1_000_000 + int(us)

    async def get_jobs(self, ids: Sequence[JobId], *, preview: int | None = None) -> dict[JobId, Job]:
        wanted = [pack_id(id) for id in ids if is_job_id(id)]
        return {job.id: job for job in await self.load_jobs(wanted, preview)}

    async def get_attempts(self, ids: Sequence[JobId]) -> dict[JobId, list[Attempt]]:
        found: dict[JobId, list[Attempt]] = {id: [] for id in ids}
        wanted = [id for id in found if is_job_id(id)]
        for start in range(0, len(wanted), _PAGE):
            some = wanted[start : start + _PAGE]
            replies = await self._pool.run("get_attempts", *map(pack_id, some))
            found |= {id: rows.decode_attempts(*reply) for id, reply in zip(some, replies, strict=True)}
        return found

    async def list_queues(self) -> list[QueueStats]:
        queues, running, waiting, paused, records = await self._pool.run("list_queues")
        pauses = {name: _read_pause(name, text) for name, text in record_format.pairs(paused)}
        runs, waits = record_format.pairs_to_dict(running), record_format.pairs_to_dict(waiting)
        pending = {queue[0]: queue[1:] for queue in queues}
        taken = {queue.encode() for record in instances.decode_new_instances(records) for queue in record.queues}
        found: list[QueueStats] = []
        for name in sorted(pending.keys() | runs.keys() | waits.keys() | pauses.keys() | taken):
            ready, scheduled, oldest = pending.get(name, (0, 0, None))
            at, by, reason = pauses.get(name, (None, None, None))
            found.append(
                QueueStats(
                    name=name.decode("utf-8", "replace"),
                    ready=ready,
                    scheduled=scheduled,
                    running=runs.get(name, 0),
                    waiting=record_format.int_or_zero(waits.get(name)),
                    oldest_due=to_datetime_or_none(oldest),
                    paused=at is not None,
                    paused_by=by,
                    paused_reason=reason,
                    paused_at=to_datetime_or_none(at),
                )
            )
        return found

    async def list_tasks(self) -> list[TaskStats]:
        counters, running, records = await self._pool.run("list_tasks")
        counts: dict[str, dict[str, int]] = {}
        for field, number in record_format.pairs(counters):
            task, _, what = field.decode("utf-8", "replace").partition("\0")
            counts.setdefault(task, {})[what] = record_format.int_or_zero(number)
        runs = {name.decode("utf-8", "replace"): number for name, number in record_format.pairs(running)}
        known = {task for record in instances.decode_new_instances(records) for task in record.tasks}
        found: list[TaskStats] = []
        for name in sorted(counts.keys() | known):
            count, running_jobs = counts.get(name, {}), runs.get(name, 0)
            ended = {state: count.get(state, 0) for state in ("succeeded", "dead", "cancelled", "expired")}
            pending = count.get("live", 0) - running_jobs
            found.append(TaskStats(name=name, pending=pending, running=running_jobs, **ended))
        return found

    async def list_instances(self, *, all: bool = False) -> list[Instance]:
        flat = await self._pool.run("list_instances", int(all))
        found = [instances.decode_instance(id, row)[0] for id, row in record_format.pairs(flat)]
        return sorted(found, key=lambda each: (each.started_at, each.id))

    async def group_dead_letters(self, limit: int, *, max_letters: int = MAX_GROUPED_LETTERS) -> list[DeadLetterGroup]:
        found: dict[tuple[str, str], DeadLetterGroup] = {}
        last, left = b"", max_letters
        while left > 0:
            last, *groups = await self._pool.run("group_dead_letters", last, min(left, _DEAD_LETTERS_PER_CALL))
            if not last:
                break
            left -= _DEAD_LETTERS_PER_CALL
            for facts in groups:
                group = rows.decode_dead_group(*facts)
                name = (group.task, group.error)
                found[name] = rows.merge_groups(found[name], group) if name in found else group
        order = sorted(found.values(), key=lambda each: (-each.count, -to_us(each.last_at), each.task, each.error))
        first = order[: max(limit, 0)]
        samples = await self.get_jobs([group.sample for group in first])
        # A sample may have been replayed meanwhile.
        errors = {job.id: job.error.message for job in samples.values() if job.error is not None}
        return [msgspec.structs.replace(group, message=errors.get(group.sample, "")) for group in first]

    async def get_leader(self) -> LeaderInfo | None:
        return instances.decode_leader(await self._pool.run("get_leader"))

    async def count_ahead(self, job: Job, limit: int = 10_000) -> int:
        if job.state is not JobState.PENDING or job.blocked_on is not None:
            return 0
        place = (job.queue, job.priority, to_us(job.run_at), pack_id(job.id), job.lane)
        return min(int(await self._pool.run("count_jobs_ahead", *place)), limit)

    async def find_malformed(self, limit: int = 1_000) -> list[Fault]:
        ids = await self.find_ids(JobFilter(limit=limit))
        ids += await self.find_ids(JobFilter(dead_letters=True, limit=limit))
        return await find_malformed(self._pool, ids, limit)

    async def check_health(self) -> list[HealthCheck]:
        return await self._health.check_all()
