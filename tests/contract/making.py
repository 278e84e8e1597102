"""Short words for what contract tests do again and again. No assertions here."""

from collections.abc import Iterable, Sequence
from typing import Any

from drumbeat.core.claim import ClaimedJob, ClaimRef, ClaimRequest, ClaimResult, Outcome, WriteStatus
from drumbeat.core.instance import NewInstance, Role
from drumbeat.core.job import Failure, NewJob, OutcomeKind
from drumbeat.ids import InstanceId, JobId, new_instance_id, new_job_id
from drumbeat.store.protocol import Store

HOUR = 3_600_000_000
BOOM = Failure("ValueError", "boom", "Traceback: boom")


def new_job(task: str = "greet", **options: Any) -> NewJob:
    facts: dict[str, Any] = {"id": new_job_id(), "queue": "default", "args": '{"name":"Ada"}', "signature": "s1"}
    return NewJob(task=task, **(facts | options))


def new_instance(id: InstanceId | None = None, **options: Any) -> NewInstance:
    facts: dict[str, Any] = {
        "app": "shop",
        "version": "1",
        "host": "here",
        "pid": 1,
        "roles": (Role.WORKER,),
        "queues": ("default",),
        "tasks": {"greet": "s1"},
        "concurrency": 10,
    }
    return NewInstance(id=id or new_instance_id(), **(facts | options))


async def worker(store: Store, **options: Any) -> InstanceId:
    """A registered instance."""
    instance = new_instance(**options)
    await store.instances.register(instance)
    return instance.id


async def add(store: Store, *jobs: NewJob) -> list[JobId]:
    await store.jobs.add(jobs)
    return [job.id for job in jobs]


def wanting(*queues: str | tuple[str, int], limit: int = 100, wants: Iterable[str] = ()) -> ClaimRequest:
    """A claim; a queue without a share is taken in strict order."""
    shares = tuple((queue, limit) if isinstance(queue, str) else queue for queue in queues or ("default",))
    return ClaimRequest(queues=shares, limit=limit, unblocks=tuple(wants))


async def claim(store: Store, instance: InstanceId, *queues: str | tuple[str, int], **options: Any) -> list[ClaimedJob]:
    return (await store.jobs.report_and_claim(instance, [], wanting(*queues, **options))).jobs


async def claimed_one(store: Store, instance: InstanceId, **options: Any) -> ClaimedJob:
    """Add one job and claim it."""
    [id] = await add(store, new_job(**options))
    jobs = await claim(store, instance, options.get("queue", "default"))
    return next(job for job in jobs if job.id == id)


def outcome(job: ClaimedJob | ClaimRef, kind: OutcomeKind, **options: Any) -> Outcome:
    """An outcome as a worker would write it: started and finished, with an error where there must be one."""
    facts: dict[str, Any] = {"started_at": job.token + 10, "finished_at": job.token + 20}
    if kind in {OutcomeKind.RETRY, OutcomeKind.DEAD, OutcomeKind.CRASHED}:
        facts["error"] = BOOM
    return Outcome(id=job.id, token=job.token, kind=kind, **(facts | options))


async def report(store: Store, instance: InstanceId, *outcomes: Outcome) -> list[WriteStatus]:
    return (await store.jobs.report_and_claim(instance, outcomes, None)).statuses


async def end(store: Store, instance: InstanceId, job: ClaimedJob, kind: OutcomeKind, **options: Any) -> WriteStatus:
    [status] = await report(store, instance, outcome(job, kind, **options))
    return status


async def release(store: Store, instance: InstanceId, *claims: ClaimRef) -> int:
    """Give back claims that never started. Returns how many were current."""
    outcomes = [Outcome(id=claim.id, token=claim.token, kind=OutcomeKind.RELEASED) for claim in claims]
    return (await report(store, instance, *outcomes)).count(WriteStatus.APPLIED)


async def exchange(
    store: Store, instance: InstanceId, outcomes: Sequence[Outcome] = (), claim: ClaimRequest | None = None
) -> ClaimResult:
    return await store.jobs.report_and_claim(instance, outcomes, claim)


async def dead_letter(store: Store, instance: InstanceId, **options: Any) -> ClaimedJob:
    """A job that ran once and died."""
    job = await claimed_one(store, instance, **options)
    await end(store, instance, job, OutcomeKind.DEAD)
    return job


def ids(jobs: Iterable[Any]) -> list[JobId]:
    return [job.id for job in jobs]


def hold(job: ClaimedJob) -> ClaimRef:
    return ClaimRef(job.id, job.token)
