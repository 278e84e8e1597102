"""Workflows of a program: `app.workflow`, and what flows and their handles ask of the client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from drumbeat.client.graphs import check_graph, check_unique_keys
from drumbeat.clock import Clock
from drumbeat.core.dependencies import NewGraph, NewWorkflow
from drumbeat.core.edge import NewEdge
from drumbeat.core.job import AddResult, Cancelled, EndedJob, NewJob, ReplayResult
from drumbeat.core.workflow import Workflow
from drumbeat.durations import Duration, seconds
from drumbeat.errors import InvalidArguments, WorkflowError, WorkflowNotFound
from drumbeat.flow import Flow, build_workflow
from drumbeat.flow_parts import Group, Part, list_calls
from drumbeat.ids import JobId, is_job_id
from drumbeat.names import short_repr
from drumbeat.store import workflow_acts
from drumbeat.store.protocol import Store
from drumbeat.tasks import Registry
from drumbeat.tasks.options import MAX_WORKFLOW_JOBS, check_calls
from drumbeat.workflow_handle import WorkflowHandle

if TYPE_CHECKING:
    from drumbeat.internals import AppInternals


class WorkflowClient:
    """The part of the client that stores jobs with parents, and acts on whole workflows."""

    registry: Registry

    async def store(self) -> Store:
        raise NotImplementedError

    clock: Clock

    async def result(self, id: JobId, timeout: Duration | None) -> Any:
        raise NotImplementedError

    async def wait_for_end(self, id: JobId, limit: float | None) -> EndedJob:
        raise NotImplementedError

    async def add_graph(self, jobs: Sequence[NewJob[Any]], workflow: NewWorkflow | None = None) -> list[AddResult]:
        """Store jobs of which some wait for others, all or none."""
        edges = check_graph(jobs, self.registry)
        store = await self.store()
        return (await store.dependencies.add(NewGraph(jobs=jobs, edges=edges, workflow=workflow))).results

    def check_graph(self, jobs: Iterable[NewJob[Any]]) -> tuple[list[NewJob[Any]], list[NewEdge]]:
        checked = list_calls("a workflow", jobs)
        check_calls(checked, MAX_WORKFLOW_JOBS, "a workflow")
        check_unique_keys(checked)
        return checked, check_graph(checked, self.registry)

    async def workflow_result(self, id: str, timeout: Duration | None) -> Any:
        limit = None if timeout is None else seconds(timeout, name="timeout", error=InvalidArguments)
        store, began = await self.store(), self.clock.monotonic()
        last: JobId | None = None
        while True:
            found = await self._find_last_job(store, id)
            if found == last:
                return await self.result(last, 0)
            # Before it ends it may add jobs that wait for it.
            last = found
            left = None if limit is None else max(0.0, began + limit - self.clock.monotonic())
            await self.wait_for_end(last, left)

    async def _find_last_job(self, store: Store, id: str) -> JobId:
        match await store.workflows.list_sinks(id):
            case [last]:
                return last
            case []:
                raise WorkflowNotFound(id)
            case _:
                raise WorkflowError(
                    f"workflow {id} ends in several jobs, and has no one result: end it in one that takes theirs, such as "
                    "chord(group(calls), finaliser) or flow.add(finaliser.bind(a.result, b.result)), or wait for the jobs",
                    id,
                )

    async def cancel_workflow(self, id: str) -> Cancelled:
        return await workflow_acts.cancel_workflow(await self.store(), id)

    async def replay_workflow(self, id: str) -> list[ReplayResult]:
        return await workflow_acts.replay_workflow(await self.store(), id)

    async def get_workflow(self, id: str) -> Workflow:
        return await workflow_acts.get_workflow(await self.store(), id)


class WorkflowCalls:
    """The part of `Drumbeat` that makes and finds workflows."""

    _internals: AppInternals

    def workflow(
        self,
        name: str,
        *parts: NewJob[Any] | Part[Any] | Group[Any],
        labels: Mapping[str, str] | None = None,
        unique: bool = False,
    ) -> Flow:
        """A new workflow, to which calls are added; `await flow.enqueue()` stores all of it, or nothing.

            flow = app.workflow("invoice-42", labels={"customer": "ann"})
            page = flow.add(fetch.bind(1))
            flow.add(render.bind(page.result))
            handle = await flow.enqueue()

            await app.workflow("report", chain(fetch.bind(1), render, send)).enqueue()

        Name and labels are for people; several workflows may have the same, unless one is `unique`: it is refused while another
        of its name is live.

        Raises:
            InvalidArguments: the name or a label cannot be stored.
        """
        flow = Flow(self._internals.client, build_workflow(name, labels, unique))
        for part in parts:
            flow.add(part)
        return flow

    def get_workflow(self, id: str) -> WorkflowHandle:
        """A handle of a workflow by its id. The store is not asked: whether it exists shows when the handle is used."""
        return WorkflowHandle(self._internals.client, check_workflow_id(id))


def check_workflow_id(id: object) -> str:
    if not isinstance(id, str) or not is_job_id(id):
        raise InvalidArguments(f"{short_repr(id)} is no id of a workflow", "id")
    return id
