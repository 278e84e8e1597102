"""Short words for tests of limits. No assertions here."""

from typing import Any

from drumbeat.core.claim import ClaimedJob, ClaimRequest, ClaimResult, Outcome
from drumbeat.core.job import NewJob, OutcomeKind
from drumbeat.core.lanes import lane_name
from drumbeat.core.limits import LineDeclaration, LinePolicy
from drumbeat.ids import InstanceId, JobId
from drumbeat.store.protocol import Store
from tests.contract.making import exchange, new_job, outcome


async def declare(
    store: Store, line: str = "greet", *, queue: str = "default", version: int = 1, **policy: Any
) -> None:
    await store.limits.declare([LineDeclaration(queue=queue, line=line, policy=LinePolicy(**policy))], version)


def lane_job(group: str = "", *, line: str = "greet", **options: Any) -> NewJob:
    return new_job(group=group, lane=lane_name(line, group), **options)


async def add_jobs(store: Store, group: str, count: int, **options: Any) -> list[JobId]:
    jobs = [lane_job(group, **options) for _ in range(count)]
    await store.jobs.add(jobs)
    return [job.id for job in jobs]


def asking(*queues: str, limit: int = 100, slots: int | None = None, unblocks: tuple[str, ...] = ()) -> ClaimRequest:
    return ClaimRequest(
        queues=tuple((queue, limit) for queue in queues or ("default",)), limit=limit, slots=slots, unblocks=unblocks
    )


async def ask(store: Store, instance: InstanceId, *queues: str, **options: Any) -> ClaimResult:
    return await exchange(store, instance, (), asking(*queues, **options))


async def take(store: Store, instance: InstanceId, *queues: str, **options: Any) -> list[ClaimedJob]:
    return (await ask(store, instance, *queues, **options)).jobs


async def finish(
    store: Store, instance: InstanceId, *jobs: ClaimedJob, kind: OutcomeKind = OutcomeKind.SUCCEEDED, **options: Any
) -> None:
    await exchange(store, instance, [outcome(job, kind, **options) for job in jobs])


async def give_back(store: Store, instance: InstanceId, *jobs: ClaimedJob) -> None:
    """As claims that never started."""
    released = [Outcome(id=job.id, token=job.token, kind=OutcomeKind.RELEASED) for job in jobs]
    await exchange(store, instance, released)


def released_into(lane: str, job: ClaimedJob) -> Outcome:
    """As a claim of a job that belongs into another lane."""
    return Outcome(id=job.id, token=job.token, kind=OutcomeKind.RELEASED, lane=lane)


async def groups_of(store: Store, line: str = "greet", queue: str = "default") -> dict[str, tuple[int, int]]:
    """Waiting and running jobs of each group."""
    return {each.group: (each.waiting, each.running) for each in await store.limits.list_groups(queue, line)}
