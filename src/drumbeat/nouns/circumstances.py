"""What is known around a job: gathered from the store for `explaining.py`, with a bounded number of looks."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from drumbeat.client import Client
from drumbeat.durations import from_us, to_us
from drumbeat.ids import JobId
from drumbeat.model.instance import Instance, Role
from drumbeat.model.job import Failure, Job, JobState, QueueStats, View, other_version
from drumbeat.model.lock import LockInfo, for_job
from drumbeat.model.schedule import Schedule, schedule_waited_for
from drumbeat.store.protocol import Store

MOST_AHEAD = 10_000
"""Jobs before one are counted up to here."""
MOST_LOCKS = 1_000
"""So many locks that are held or wanted are looked at, by name ..."""
MOST_LINES = 100
"""... and so many of their lines."""


class Circumstances(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the answer depends on."""

    job: Job
    now: int
    dead_after: int
    """An instance that has been silent for so many microseconds is not counted as living."""
    queue: QueueStats | None = None
    instances: Sequence[Instance] = ()
    """Those that nobody has called dead."""
    ahead: int | None = None
    """Ready jobs that are claimed before it, up to MOST_AHEAD; None: nobody has counted."""
    retries: int | None = None
    """Its own, or its task's where that is known here."""
    error: Failure | None = None
    """Of its last run."""
    schedule: Schedule | None = None
    """The one that it waits for."""
    locks: Sequence[LockInfo] = ()
    """Those in whose lines it stands."""

    def silence(self, instance: Instance) -> int:
        return self.now - to_us(instance.beat_at)

    def living(self) -> list[Instance]:
        return [each for each in self.instances if self.silence(each) <= self.dead_after]

    def workers(self) -> list[Instance]:
        return [each for each in self.living() if Role.WORKER in each.roles]

    def takers(self) -> list[Instance]:
        """Workers that look into its queue."""
        return [each for each in self.workers() if self.job.queue in each.queues]

    def able(self) -> list[Instance]:
        """Those of them that can run it."""
        job = self.job
        known = [each for each in self.takers() if job.task in each.tasks]
        if job.waits_for == other_version(job.task, job.signature):
            return [each for each in known if each.tasks[job.task] == job.signature]
        return known


async def gather(client: Client, id: JobId) -> Circumstances:
    """Raises:
    JobNotFound, JobExpired: as `app.jobs.show`.
    """
    store = await client.store()
    job = await store.inspect.job(id)
    now = await store.inspect.now()
    dead_after = round(client.settings.dead_after * 1_000_000)
    if job.state is JobState.RUNNING:
        return Circumstances(
            job=job,
            now=now,
            dead_after=dead_after,
            instances=await store.inspect.instances(),
            locks=await _lines(store, for_job(id)),
        )
    if job.state is not JobState.PENDING:
        return Circumstances(job=job, now=now, dead_after=dead_after)
    task = client.registry.find(job.task)
    queues = {queue.name: queue for queue in await store.inspect.queues()}
    return Circumstances(
        job=job,
        now=now,
        dead_after=dead_after,
        queue=queues.get(job.queue),
        instances=await store.inspect.instances(),
        ahead=await store.inspect.ahead(id, MOST_AHEAD) if job.view(from_us(now)) is View.READY else None,
        retries=job.retries if job.retries is not None or task is None else task.retries,
        error=await _last_error(store, job),
        schedule=await _schedule(store, job),
    )


async def _last_error(store: Store, job: Job) -> Failure | None:
    if job.error is not None or not (job.failures or job.crashes):
        return job.error
    attempts = await store.inspect.attempts(job.id)
    return next((attempt.error for attempt in reversed(attempts) if attempt.error is not None), None)


async def _schedule(store: Store, job: Job) -> Schedule | None:
    name = schedule_waited_for(job.waits_for)
    return None if name is None else await store.schedules.get(name)


async def _lines(store: Store, what: str) -> list[LockInfo]:
    """The locks in whose lines somebody stands for this."""
    found: list[LockInfo] = []
    wanted = [lock.name for lock in await store.locks.page(limit=MOST_LOCKS) if lock.waiting]
    for name in wanted[:MOST_LINES]:
        lock = await store.locks.get(name)
        if lock is not None and any(ticket.what == what for ticket in lock.waiters):
            found.append(lock)
    return found
