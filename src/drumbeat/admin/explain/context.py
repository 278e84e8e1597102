"""What the explanation of a job needs to know, read from the store with a bounded number of queries."""

from __future__ import annotations

from collections.abc import Sequence

from drumbeat.admin.explain.limited import LimitSample
from drumbeat.admin.instance_snapshot import InstanceSnapshot
from drumbeat.client import Client
from drumbeat.core.claim import blocked_on_version
from drumbeat.core.dependencies import BLOCKED_ON_PARENTS, ParentLink
from drumbeat.core.instance import Instance
from drumbeat.core.job import Failure, Job, JobState, PendingView
from drumbeat.core.job_query import QueueStats
from drumbeat.core.lanes import split_lane
from drumbeat.core.lock import LockInfo, describe_job
from drumbeat.core.schedule import Schedule, parse_blocking_schedule
from drumbeat.core.workflow import Workflow
from drumbeat.durations import from_us
from drumbeat.ids import JobId
from drumbeat.store.job_reads import get_job
from drumbeat.store.protocol import Store

MAX_AHEAD = 10_000
"""Jobs ahead of the explained one are counted up to this number."""
MAX_LOCKS = 1_000
"""Locks in use that are listed, by name."""
MAX_LOCKS_READ = 100
"""Locks of those whose waiters are read."""

MAX_PARENTS = 20
"""Parents of the explained job that are read, open ones first."""


class ExplainContext(InstanceSnapshot, frozen=True, kw_only=True):
    """Everything that the explanation of a job depends on."""

    job: Job
    queue: QueueStats | None = None
    jobs_ahead: int | None = None
    """Ready jobs that are claimed before it, up to MAX_AHEAD; None: not counted."""
    retries: int | None = None
    """The job's own, or its task's where this program knows the task."""
    error: Failure | None = None
    """Of its last run."""
    schedule: Schedule | None = None
    """The schedule that it waits for."""
    locks: Sequence[LockInfo] = ()
    """The locks that it waits for."""
    parents: Sequence[ParentLink] = ()
    """Some of the jobs that it depends on, open ones first."""
    workflow: Workflow | None = None
    """Its workflow, if that was cancelled."""
    limits: LimitSample | None = None
    """None: it is under none, or is not due."""

    def queue_workers(self) -> list[Instance]:
        """Workers that take its queue."""
        return [each for each in self.workers() if self.job.queue in each.queues]

    def capable_workers(self) -> list[Instance]:
        """Workers of its queue that can run it."""
        job = self.job
        known = [each for each in self.queue_workers() if job.task in each.tasks]
        if job.blocked_on == blocked_on_version(job.task, job.signature):
            return [each for each in known if each.tasks[job.task] == job.signature]
        return known


async def gather_context(client: Client, id: JobId) -> ExplainContext:
    """Read it.

    Raises:
        JobNotFound, JobExpired: as `app.jobs.show`.
    """
    store = await client.store()
    job = await get_job(store, id)
    now = await store.inspect.now()
    dead_after = round(client.settings.dead_after * 1_000_000)
    workflow = await _read_cancelled_workflow(store, job)
    if job.state not in (JobState.PENDING, JobState.RUNNING):
        return ExplainContext(job=job, now=now, dead_after=dead_after, workflow=workflow)
    instances = await store.inspect.list_instances()
    if job.state is JobState.RUNNING:
        locks = await _read_waited_locks(store, describe_job(id))
        return ExplainContext(
            job=job, now=now, dead_after=dead_after, instances=instances, locks=locks, workflow=workflow
        )
    task, blocking = client.registry.find(job.task), parse_blocking_schedule(job.blocked_on)
    queues = {queue.name: queue for queue in await store.inspect.list_queues()}
    is_ready = job.view(from_us(now)) is PendingView.READY
    return ExplainContext(
        job=job,
        now=now,
        dead_after=dead_after,
        queue=queues.get(job.queue),
        instances=instances,
        jobs_ahead=await store.inspect.count_ahead(job, MAX_AHEAD) if is_ready else None,
        limits=await _read_limits(store, job) if is_ready and job.lane else None,
        retries=job.retries
        if job.retries is not None or task is None
        else task.options.resolve_retries(client.settings),
        error=await _read_last_error(store, job),
        schedule=None if blocking is None else await store.schedules.get(blocking),
        parents=(await store.dependencies.list_parents([id], MAX_PARENTS))[id]
        if job.blocked_on == BLOCKED_ON_PARENTS
        else (),
        workflow=workflow,
    )


async def _read_cancelled_workflow(store: Store, job: Job) -> Workflow | None:
    if job.workflow is None or job.state is JobState.SUCCEEDED:
        return None
    found = (await store.workflows.get([job.workflow])).get(job.workflow)
    return None if found is None or found.cancelled_at is None else found


async def _read_limits(store: Store, job: Job) -> LimitSample:
    name, _ = split_lane(job.lane)
    lines = {line.line: line for line in await store.limits.list_lines() if line.queue == job.queue}
    [group] = await store.limits.find_groups([(job.queue, job.lane)])
    return LimitSample(line=lines.get(name), whole=lines.get("") if name else None, group=group)


async def _read_last_error(store: Store, job: Job) -> Failure | None:
    if job.error is not None or not (job.failures or job.crashes):
        return job.error
    attempts = (await store.inspect.get_attempts([job.id]))[job.id]
    return next((attempt.error for attempt in reversed(attempts) if attempt.error is not None), None)


async def _read_waited_locks(store: Store, what: str) -> list[LockInfo]:
    """The locks that a ticket for `what` waits for."""
    found: list[LockInfo] = []
    wanted = [lock.name for lock in await store.locks.list_page(limit=MAX_LOCKS) if lock.waiting]
    for name in wanted[:MAX_LOCKS_READ]:
        lock = await store.locks.get(name)
        if lock is not None and any(ticket.what == what for ticket in lock.waiters):
            found.append(lock)
    return found
