"""What people look at, on Redis. The contract is in `store.protocol.Inspect`.

There is no index for people: a list walks the buckets of ids, newest first, a bounded number of jobs in each call, so that a
long search never keeps the server from its work. Running, cancelled and dead jobs, a few pending ones, and the live jobs of a
key are found without.
"""

import heapq
from collections.abc import Sequence

import msgspec

from drumbeat.ids import JobId, is_job_id, packed, unpacked
from drumbeat.model.death import DeadGroup
from drumbeat.model.instance import Instance, LeaderInfo
from drumbeat.model.job import LIVE, Attempt, Job, JobFilter, JobState, QueueStats, TaskStats
from drumbeat.store.protocol.inspect import NEWEST
from drumbeat.store.redis import rows
from drumbeat.store.redis.connections import Link
from drumbeat.store.redis.jobs import nowhere
from drumbeat.store.redis.keys import bucket as bucket_of

_LOOKED_AT = 2_000
"""Jobs that one call looks at: about 5 ms."""
_PAGE = 500
_FEW = 5_000
"""So many pending jobs are looked at one by one; among more of them, a walk soon finds enough."""
_pause = msgspec.json.Decoder(tuple[int, str, str]).decode


class RedisInspect:
    def __init__(self, link: Link) -> None:
        self._link = link

    async def now(self) -> int:
        seconds, us = await self._link.command("TIME")
        return int(seconds) * 1_000_000 + int(us)

    async def job(self, id: JobId) -> Job:
        wanted = [packed(id)] if is_job_id(id) else []
        pruned_before, *answers = await self._link.run("inspect_records", *wanted)
        if not answers or answers[0] is None:
            raise nowhere(id, pruned_before)
        return rows.job(id, answers[0])

    async def jobs(self, filter: JobFilter) -> list[Job]:
        if filter.limit <= 0:
            return []
        state, keys = filter.state, self._link.keys
        if filter.letters:
            return await self._in_lines([keys.dead], filter) if state in (None, JobState.DEAD) else []
        if state is JobState.CANCELLED:
            return await self._in_lines([keys.unsucceeded], filter)
        if state is JobState.DEAD:
            return await self._in_lines([keys.unsucceeded, keys.dead], filter)
        if state is JobState.RUNNING:
            return await self._chosen(await self._link.run("inspect_running"), filter)
        if state in LIVE and filter.task is not None and filter.key is not None:
            return await self._chosen(await self._link.run("inspect_key", filter.task, filter.key), filter)
        if state is JobState.PENDING and (ids := await self._link.run("inspect_pending", _FEW)) is not None:
            return await self._chosen(ids, filter)
        return await self._records(await self._walk(filter))

    async def attempts(self, id: JobId) -> list[Attempt]:
        return rows.attempts(*await self._link.run("inspect_attempts", packed(id))) if is_job_id(id) else []

    async def queues(self) -> list[QueueStats]:
        lines, running, waiting, paused, records = await self._link.run("inspect_queues")
        pauses = {name: _pause(text) for name, text in rows.pairs(paused).items()}
        runs, waits = rows.pairs(running), rows.pairs(waiting)
        pending = {line[0]: line[1:] for line in lines}
        taken = {queue.encode() for record in records for queue in rows.new_instance(record).queues}
        found: list[QueueStats] = []
        for name in sorted(pending.keys() | runs.keys() | waits.keys() | pauses.keys() | taken):
            ready, scheduled, oldest = pending.get(name, (0, 0, None))
            at, by, why = pauses.get(name, (None, None, None))
            found.append(
                QueueStats(
                    name=name.decode(),
                    ready=ready,
                    scheduled=scheduled,
                    running=runs.get(name, 0),
                    waiting=int(waits.get(name, 0)),
                    oldest_due=rows.moment_or_none(oldest),
                    paused=at is not None,
                    paused_by=by,
                    paused_why=why,
                    paused_at=rows.moment_or_none(at),
                )
            )
        return found

    async def tasks(self) -> list[TaskStats]:
        counters, running, records = await self._link.run("inspect_tasks")
        counts: dict[str, dict[str, int]] = {}
        for field, number in rows.pairs(counters).items():
            task, what = field.decode().split("\0")
            counts.setdefault(task, {})[what] = int(number)
        runs = {name.decode(): number for name, number in rows.pairs(running).items()}
        known = {task for record in records for task in rows.new_instance(record).tasks}
        found: list[TaskStats] = []
        for name in sorted(counts.keys() | known):
            count = counts.get(name, {})
            found.append(
                TaskStats(
                    name=name,
                    pending=count.get("live", 0) - runs.get(name, 0),
                    running=runs.get(name, 0),
                    succeeded=count.get("succeeded", 0),
                    dead=count.get("dead", 0),
                    cancelled=count.get("cancelled", 0),
                )
            )
        return found

    async def instances(self, *, all: bool = False) -> list[Instance]:
        flat = await self._link.run("inspect_instances", int(all))
        found = [rows.instance(row) for row in flat[1::2]]
        return sorted(found, key=lambda each: (each.started_at, each.id))

    async def groups(self, limit: int, *, newest: int = NEWEST) -> list[DeadGroup]:
        found: dict[tuple[bytes, bytes], rows.Group] = {}
        last, left = b"", newest
        while left > 0:
            last, *groups = await self._link.run("inspect_groups", last, min(left, _PAGE))
            if not last:
                break
            left -= _PAGE
            for task, error, *facts in groups:
                rows.put_together(found, (task, error), facts)
        first = sorted(found.items(), key=lambda each: (-each[1].count, -each[1].last_at, each[0]))[: max(limit, 0)]
        samples = {job.id: job for job in await self._records([group.sample for _, group in first])}
        return [group.record(*name, samples.get(unpacked(group.sample))) for name, group in first]

    async def leader(self) -> LeaderInfo | None:
        return rows.leader(await self._link.run("inspect_leader"))

    async def ahead(self, id: JobId, limit: int = 10_000) -> int:
        if not is_job_id(id):
            raise nowhere(id, None)
        pruned_before, count = await self._link.run("inspect_ahead", packed(id))
        if count is None:
            raise nowhere(id, pruned_before)
        return min(int(count), limit)

    async def _records(self, ids: Sequence[bytes]) -> list[Job]:
        found: list[Job] = []
        for first in range(0, len(ids), _PAGE):
            page = ids[first : first + _PAGE]
            _, *answers = await self._link.run("inspect_records", *page)
            # One that was pruned meanwhile is not there.
            found += [
                rows.job(unpacked(id), answer) for id, answer in zip(page, answers, strict=True) if answer is not None
            ]
        return found

    async def _in_lines(self, lines: Sequence[str], filter: JobFilter) -> list[Job]:
        """Of those that stand in these, which are in the order of ids."""
        found: list[Job] = []
        after = b"+" if filter.before is None else b"(" + packed(filter.before)
        while len(found) < filter.limit:
            pages = [await self._link.command("ZREVRANGEBYLEX", line, after, "-", "LIMIT", 0, _PAGE) for line in lines]
            ids = heapq.nlargest(_PAGE, {id for page in pages for id in page})
            if not ids:
                break
            found += [job for job in await self._records(ids) if _is_wanted(job, filter)]
            after = b"(" + ids[-1]
        return found[: filter.limit]

    async def _chosen(self, ids: Sequence[bytes], filter: JobFilter) -> list[Job]:
        """Of these, those that are wanted."""
        found: list[Job] = []
        before = None if filter.before is None else packed(filter.before)
        newest = sorted({id for id in ids if before is None or id < before}, reverse=True)
        for first in range(0, len(newest), _PAGE):
            if len(found) >= filter.limit:
                break
            found += [job for job in await self._records(newest[first : first + _PAGE]) if _is_wanted(job, filter)]
        return found[: filter.limit]

    async def _walk(self, filter: JobFilter) -> list[bytes]:
        """Ids that are wanted, newest first. Within a bucket they come in no order, so that it is walked to its end."""
        before = b"" if filter.before is None else packed(filter.before)
        begin = str(int(bucket_of(before), 16)) if before else "+inf"
        state = "" if filter.state is None else filter.state.value
        wanted = (state, filter.task or "", filter.queue or "", filter.key or "", filter.error or "")
        found: list[bytes] = []
        number, bucket, cursor, least = begin.encode(), b"", b"0", b""
        while True:
            number, bucket, cursor, ids = await self._link.run(
                "inspect_jobs", *(number, bucket, cursor, before, least, filter.limit, _LOOKED_AT), *wanted
            )
            # A scan may give one twice.
            found = heapq.nlargest(filter.limit, {*found, *ids})
            full = len(found) >= filter.limit
            if not number or (full and not bucket):
                return found
            least = found[-1] if full else b""


def _is_wanted(job: Job, filter: JobFilter) -> bool:
    wanted = (filter.state in (None, job.state), filter.task in (None, job.task), filter.queue in (None, job.queue))
    if not all(wanted) or filter.key not in (None, job.key):
        return False
    if filter.error is None:
        return True
    return job.error is not None and (filter.error in job.error.type or filter.error in job.error.message)
