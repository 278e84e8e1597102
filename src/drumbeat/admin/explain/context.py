"""What is known around a job: gathered from the store for `explaining.py`, with a bounded number of looks."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from drumbeat.client import Client
from drumbeat.core.claim import blocked_on_version
from drumbeat.core.instance import Instance, Role
from drumbeat.core.job import Failure, Job, JobState, PendingView
from drumbeat.core.job_query import QueueStats
from drumbeat.core.lock import LockInfo, describe_job
from drumbeat.core.schedule import Schedule, parse_blocking_schedule
from drumbeat.durations import from_us, to_us
from drumbeat.ids import JobId
from drumbeat.store.job_reads import get_job
from drumbeat.store.protocol import Store

MAX_AHEAD = 10_000
"""Jobs before one are counted up to here."""
MAX_LOCKS = 1_000
"""So many locks that are held or wanted are looked at, by name ..."""
MAX_LOCKS_READ = 100
"""... and so many of their lines."""


class ExplainContext(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the answer depends on."""

    job: Job
    now: int
    dead_after: int
    """An instance that has been silent for so many microseconds is not counted as living."""
    queue: QueueStats | None = None
    instances: Sequence[Instance] = ()
    """Those that nobody has called dead."""
    jobs_ahead: int | None = None
    """Ready jobs that are claimed before it, up to MOST_AHEAD; None: nobody has counted."""
    retries: int | None = None
    """Its own, or its task's where that is known here."""
    error: Failure | None = None
    """Of its last run."""
    schedule: Schedule | None = None
    """The one that it waits for."""
    locks: Sequence[LockInfo] = ()
    """Those in whose lines it stands."""

    def silence_us(self, instance: Instance) -> int:
        return self.now - to_us(instance.beat_at)

    def living_instances(self) -> list[Instance]:
        return [each for each in self.instances if self.silence_us(each) <= self.dead_after]

    def workers(self) -> list[Instance]:
        return [each for each in self.living_instances() if Role.WORKER in each.roles]

    def queue_workers(self) -> list[Instance]:
        """Workers that look into its queue."""
        return [each for each in self.workers() if self.job.queue in each.queues]

    def capable_workers(self) -> list[Instance]:
        """Those of them that can run it."""
        job = self.job
        known = [each for each in self.queue_workers() if job.task in each.tasks]
        if job.blocked_on == blocked_on_version(job.task, job.signature):
            return [each for each in known if each.tasks[job.task] == job.signature]
        return known


async def gather_context(client: Client, id: JobId) -> ExplainContext:
    """Raises:
    JobNotFound, JobExpired: as `app.jobs.show`.
    """
    store = await client.store()
    job = await get_job(store, id)
    now = await store.inspect.now()
    dead_after = round(client.settings.dead_after * 1_000_000)
    if job.state is JobState.RUNNING:
        return ExplainContext(
            job=job,
            now=now,
            dead_after=dead_after,
            instances=await store.inspect.list_instances(),
            locks=await _read_waited_locks(store, describe_job(id)),
        )
    if job.state is not JobState.PENDING:
        return ExplainContext(job=job, now=now, dead_after=dead_after)
    task = client.registry.find(job.task)
    queues = {queue.name: queue for queue in await store.inspect.list_queues()}
    return ExplainContext(
        job=job,
        now=now,
        dead_after=dead_after,
        queue=queues.get(job.queue),
        instances=await store.inspect.list_instances(),
        jobs_ahead=await store.inspect.count_ahead(id, MAX_AHEAD)
        if job.view(from_us(now)) is PendingView.READY
        else None,
        retries=job.retries if job.retries is not None or task is None else task.retries,
        error=await _read_last_error(store, job),
        schedule=await _read_schedule(store, job),
    )


async def _read_last_error(store: Store, job: Job) -> Failure | None:
    if job.error is not None or not (job.failures or job.crashes):
        return job.error
    attempts = (await store.inspect.get_attempts([job.id]))[job.id]
    return next((attempt.error for attempt in reversed(attempts) if attempt.error is not None), None)


async def _read_schedule(store: Store, job: Job) -> Schedule | None:
    name = parse_blocking_schedule(job.blocked_on)
    return None if name is None else await store.schedules.get(name)


async def _read_waited_locks(store: Store, what: str) -> list[LockInfo]:
    """The locks in whose lines somebody stands for this."""
    found: list[LockInfo] = []
    wanted = [lock.name for lock in await store.locks.list_page(limit=MAX_LOCKS) if lock.waiting]
    for name in wanted[:MAX_LOCKS_READ]:
        lock = await store.locks.get(name)
        if lock is not None and any(ticket.what == what for ticket in lock.waiters):
            found.append(lock)
    return found
