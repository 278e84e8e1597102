"""What people look at, on Redis. The contract is in `store.protocol.Inspect`."""

from collections.abc import Sequence

import msgspec

from drumbeat.ids import JobId, is_job_id, packed, unpacked
from drumbeat.model.death import DeadGroup
from drumbeat.model.finding import Finding
from drumbeat.model.instance import Instance, LeaderInfo
from drumbeat.model.job import Attempt, Job, JobCounts, JobFilter, JobPage, QueueStats, TaskStats
from drumbeat.store.malformed import Fault, explain, reasons, tell
from drumbeat.store.protocol.inspect import NEWEST
from drumbeat.store.records import moment_or_none
from drumbeat.store.redis import instance_rows, rows, texts
from drumbeat.store.redis.connections import Link
from drumbeat.store.redis.facts import RedisFacts
from drumbeat.store.redis.finder import Finder
from drumbeat.store.redis.jobs import nowhere
from drumbeat.store.redis.search import RedisSearch
from drumbeat.store.searching import whole

_LETTERS = 250
"""Dead letters that one call looks at to group them: about 4 ms."""
_PAGE = 500
_pause = msgspec.json.Decoder(tuple[int, str, str]).decode


def _read_pause(queue: bytes, text: bytes) -> tuple[int, str, str]:
    try:
        return _pause(text)
    except (ValueError, msgspec.DecodeError) as error:
        faults = [("pause", explain("pause", text, error))]
        tell("pause of a queue", queue, faults)
        return 0, "", reasons(faults)


class RedisInspect:
    def __init__(self, link: Link, facts: RedisFacts) -> None:
        self._facts = facts
        self._link = link
        self._search = RedisSearch(link)

    async def now(self) -> int:
        seconds, us = await self._link.command("TIME")
        return int(seconds) * 1_000_000 + int(us)

    async def job(self, id: JobId) -> Job:
        wanted = [packed(id)] if is_job_id(id) else []
        pruned_before, *answers = await self._link.run("inspect_records", *wanted)
        if not answers or answers[0] is None:
            raise nowhere(id, pruned_before)
        return rows.job(id, answers[0])

    async def records(self, ids: Sequence[JobId], *, preview: int | None = None) -> dict[JobId, Job]:
        wanted = [packed(id) for id in ids if is_job_id(id)]
        return {job.id: job for job in await self._search.records(wanted, preview)}

    async def jobs(self, filter: JobFilter) -> list[Job]:
        return await whole(self.page, filter)

    async def page(self, filter: JobFilter) -> JobPage:
        return await self._search.page(filter)

    async def counts(self, filter: JobFilter) -> JobCounts:
        return await self._search.counts(filter)

    async def attempts(self, id: JobId) -> list[Attempt]:
        return rows.attempts(*await self._link.run("inspect_attempts", packed(id))) if is_job_id(id) else []

    async def queues(self) -> list[QueueStats]:
        lines, running, waiting, paused, records = await self._link.run("inspect_queues")
        pauses = {name: _read_pause(name, text) for name, text in texts.pairs(paused).items()}
        runs, waits = texts.pairs(running), texts.pairs(waiting)
        pending = {line[0]: line[1:] for line in lines}
        taken = {queue.encode() for record in instance_rows.new_instances(records) for queue in record.queues}
        found: list[QueueStats] = []
        for name in sorted(pending.keys() | runs.keys() | waits.keys() | pauses.keys() | taken):
            ready, scheduled, oldest = pending.get(name, (0, 0, None))
            at, by, why = pauses.get(name, (None, None, None))
            found.append(
                QueueStats(
                    name=name.decode("utf-8", "replace"),
                    ready=ready,
                    scheduled=scheduled,
                    running=runs.get(name, 0),
                    waiting=texts.number_or_0(waits.get(name)),
                    oldest_due=moment_or_none(oldest),
                    paused=at is not None,
                    paused_by=by,
                    paused_why=why,
                    paused_at=moment_or_none(at),
                )
            )
        return found

    async def tasks(self) -> list[TaskStats]:
        counters, running, records = await self._link.run("inspect_tasks")
        counts: dict[str, dict[str, int]] = {}
        for field, number in texts.pairs(counters).items():
            task, _, what = field.decode("utf-8", "replace").partition("\0")
            counts.setdefault(task, {})[what] = texts.number_or_0(number)
        runs = {name.decode("utf-8", "replace"): number for name, number in texts.pairs(running).items()}
        known = {task for record in instance_rows.new_instances(records) for task in record.tasks}
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
        found = [instance_rows.instance(id, row)[0] for id, row in zip(flat[::2], flat[1::2], strict=True)]
        return sorted(found, key=lambda each: (each.started_at, each.id))

    async def groups(self, limit: int, *, newest: int = NEWEST) -> list[DeadGroup]:
        found: dict[tuple[bytes, bytes], rows.Group] = {}
        last, left = b"", newest
        while left > 0:
            last, *groups = await self._link.run("inspect_groups", last, min(left, _LETTERS))
            if not last:
                break
            left -= _LETTERS
            for task, error, *facts in groups:
                rows.put_together(found, (task, error), facts)
        first = sorted(found.items(), key=lambda each: (-each[1].count, -each[1].last_at, each[0]))[: max(limit, 0)]
        samples = {job.id: job for job in await self._search.records([group.sample for _, group in first])}
        return [group.record(*name, samples.get(unpacked(group.sample))) for name, group in first]

    async def leader(self) -> LeaderInfo | None:
        return instance_rows.leader(await self._link.run("inspect_leader"))

    async def ahead(self, id: JobId, limit: int = 10_000) -> int:
        if not is_job_id(id):
            raise nowhere(id, None)
        pruned_before, count = await self._link.run("inspect_ahead", packed(id))
        if count is None:
            raise nowhere(id, pruned_before)
        return min(int(count), limit)

    async def malformed(self, limit: int = 1_000) -> list[Fault]:
        return await Finder(self._link, self._search).find(limit)

    async def facts(self) -> list[Finding]:
        return await self._facts.gather()
