"""`app.workflows`: jobs that have a name together, what they wait for, and acts on all of them.

A workflow is made by `app.workflow(...)`.
"""

from __future__ import annotations

import builtins

from drumbeat.core.job import JobState, ReplayResult
from drumbeat.core.job_query import JobFilter
from drumbeat.core.workflow import Workflow, WorkflowGraph
from drumbeat.errors import InvalidArguments, WorkflowNotFound
from drumbeat.ids import is_job_id
from drumbeat.names import short_repr
from drumbeat.store import workflow_acts

from .bulk import MAX_REFUSALS, Action, BulkResult, RefusedJob, replay_refusal
from .filters import read_limit
from .part import AdminPart

PAGE = 100
MAX_NAME_LENGTH = 200


class Workflows(AdminPart):
    """List and show workflows, cancel them, replay what failed of them."""

    async def list(
        self, *, name: str | None = None, before: str | None = None, limit: int = 50
    ) -> builtins.list[Workflow]:
        """Workflows, newest first, with the counts of their jobs; `before=` the last one's id gives the next page."""
        store = await self._client.store()
        name, before, left = _check_name(name), _check_before(before), read_limit("limit", limit)
        found: builtins.list[Workflow] = []
        while left:
            page = await store.workflows.find(name=name, before=before, limit=min(left, PAGE))
            found += page
            if len(page) < min(left, PAGE):
                break
            left -= len(page)
            before = page[-1].id
        return found

    async def show(self, id: str) -> Workflow:
        """One workflow, with the counts of its jobs (of at most 10,000 of them).

        Raises:
            WorkflowNotFound: it is not in the store, or no longer.
        """
        return await workflow_acts.get_workflow(await self._client.store(), check_workflow_id(id))

    async def graph(self, id: str) -> WorkflowGraph:
        """Its jobs and what they wait for: up to 200 one by one, more of them by task.

        Raises:
            WorkflowNotFound: as `show`.
        """
        store = await self._client.store()
        found = await store.workflows.get_graph(check_workflow_id(id))
        if found is None:
            raise WorkflowNotFound(id)
        return found

    async def cancel(self, id: str, *, dry_run: bool = False) -> BulkResult:
        """Cancel what has not ended of a workflow: its pending jobs never run, running ones are asked to stop, nothing that
        waits for parents starts any more, and nothing can be added to it.

        dry_run: only count them.

        Raises:
            WorkflowNotFound: as `show`.
        """
        if dry_run:
            found = await self.show(id)
            live = sum(found.counts.get(state, 0) for state in ("pending", "waiting", "running"))
            return _counted(Action.CANCEL, live, capped=found.capped)
        done = await workflow_acts.cancel_workflow(await self._client.store(), check_workflow_id(id))
        touched = done.cancelled + done.requested
        return BulkResult(
            action=Action.CANCEL, matched=touched, touched=touched, requested=done.requested, dry_run=False
        )

    async def replay(self, id: str, *, dry_run: bool = False) -> BulkResult:
        """Replay the dead letters of a workflow, oldest first; jobs that were cancelled because of them wait again. What has
        succeeded is not run again.

        dry_run: only count the dead letters.

        Raises:
            WorkflowNotFound: as `show`.
        """
        store = await self._client.store()
        if dry_run:
            await self.show(id)
            letters = JobFilter(workflow=id, state=JobState.DEAD, dead_letters=True)
            counts = await store.inspect.count_jobs(letters)
            return _counted(Action.REPLAY, counts.dead, capped=counts.capped)
        return _replayed(await workflow_acts.replay_workflow(store, check_workflow_id(id)))


def _counted(action: Action, matched: int, *, capped: bool) -> BulkResult:
    return BulkResult(action=action, matched=matched, touched=0, dry_run=True, capped=capped)


def _replayed(answers: builtins.list[ReplayResult]) -> BulkResult:
    refused = [RefusedJob(each.id, replay_refusal(each.conflict)) for each in answers if not each.replayed]
    return BulkResult(
        action=Action.REPLAY,
        matched=len(answers),
        touched=len(answers) - len(refused),
        dry_run=False,
        refused=tuple(refused[:MAX_REFUSALS]),
    )


def check_workflow_id(id: str) -> str:
    if not is_job_id(id):
        raise WorkflowNotFound(id)
    return id


def _check_name(name: object) -> str | None:
    if name is not None and not (isinstance(name, str) and 0 < len(name) <= MAX_NAME_LENGTH and "\0" not in name):
        raise InvalidArguments(f"name must be the name of a workflow, not {short_repr(name)}", "name")
    return name


def _check_before(id: object) -> str | None:
    if id is not None and not (isinstance(id, str) and is_job_id(id)):
        raise InvalidArguments(f"before must be the id of a workflow, not {short_repr(id)}", "before")
    return id
