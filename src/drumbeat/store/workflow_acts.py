"""Acts on all jobs of a workflow, composed of a store's operations. The app, the dashboard and the command line call these."""

from collections import Counter
from collections.abc import AsyncIterator

from msgspec.structs import replace

from drumbeat.core.job import CancelAnswer, Cancelled, JobState, ReplayResult
from drumbeat.core.job_query import JobFilter
from drumbeat.core.workflow import Workflow
from drumbeat.errors import WorkflowNotFound
from drumbeat.ids import JobId
from drumbeat.store.protocol import Store

MAX_BATCH = 500
"""Jobs that one transaction cancels or replays: others can write between two of them."""


async def get_workflow(store: Store, id: str) -> Workflow:
    """
    Raises:
        WorkflowNotFound: it is not in the store, or no longer.
    """
    found = (await store.workflows.get([id])).get(id)
    if found is None:
        raise WorkflowNotFound(id)
    return found


async def cancel_workflow(store: Store, id: str) -> Cancelled:
    """Mark the workflow, so that nothing that waits in it becomes due, and cancel its live jobs. May be repeated.

    Raises:
        WorkflowNotFound: it is not in the store, or no longer.
    """
    if not await store.workflows.mark_cancelled(id):
        raise WorkflowNotFound(id)
    counts: Counter[CancelAnswer] = Counter()
    async for ids in _list_pages(store, JobFilter(workflow=id, live=True, limit=MAX_BATCH, preview=0)):
        counts.update(await store.jobs.cancel(ids))
    return Cancelled(counts[CancelAnswer.CANCELLED], counts[CancelAnswer.REQUESTED])


async def replay_workflow(store: Store, id: str) -> list[ReplayResult]:
    """Replay the dead letters of the workflow, the oldest first; jobs that their deaths cancelled wait again. What has
    succeeded is not run again.

    Raises:
        WorkflowNotFound: it is not in the store, or no longer.
    """
    await get_workflow(store, id)
    letters = JobFilter(workflow=id, state=JobState.DEAD, dead_letters=True, limit=MAX_BATCH, preview=0)
    # All ids are known before the first is changed.
    ids = [each async for page in _list_pages(store, letters) for each in page][::-1]
    replayed: list[ReplayResult] = []
    for start in range(0, len(ids), MAX_BATCH):
        replayed += await store.jobs.replay(ids[start : start + MAX_BATCH])
    return replayed


async def _list_pages(store: Store, filter: JobFilter) -> AsyncIterator[list[JobId]]:
    while True:
        page = await store.inspect.find_page(filter)
        if page.items:
            yield [job.id for job in page.items]
        if page.next is None:
            return
        filter = replace(filter, before=page.next)
