"""What the engines share of reading jobs, and reads that are composed of a store's operations."""

import msgspec

from drumbeat.core.job import Job
from drumbeat.core.job_query import JobFilter
from drumbeat.errors import JobExpired, JobNotFound
from drumbeat.ids import JobId, created_us, is_job_id
from drumbeat.store.protocol import Store


def missing_job_error(id: JobId, pruned_before: int | None) -> JobNotFound | JobExpired:
    """The error for an id that is in no table: JobExpired if history was pruned beyond the time of the id."""
    if pruned_before is not None and is_job_id(id) and created_us(id) < pruned_before:
        return JobExpired(id)
    return JobNotFound(id)


async def get_job(store: Store, id: JobId) -> Job:
    """One job, wherever it is.

    Raises:
        JobNotFound, JobExpired: as `JobStore.get_results`.
    """
    while (job := (await store.inspect.get_jobs([id])).get(id)) is None:
        await store.jobs.get_results([id])  # raises, unless the job was added since the first read
    return job


async def find_jobs(store: Store, filter: JobFilter) -> list[Job]:
    """Jobs newest first by id, at most filter.limit, from as many pages as it takes: a rare kind may take seconds to find."""
    found: list[Job] = []
    while filter.limit > 0:
        page = await store.inspect.find_page(filter)
        found += page.items
        if page.next is None:
            break
        filter = msgspec.structs.replace(filter, before=page.next, limit=filter.limit - len(page.items))
    return found
