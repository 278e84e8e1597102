"""Workflows as tests of what people see need them: made from a few words, on any store."""

from collections.abc import Mapping, Sequence

from drumbeat.core.dependencies import Binding, IfParentFails, NewEdge
from drumbeat.core.job import OutcomeKind
from drumbeat.ids import InstanceId, JobId
from drumbeat.store.protocol import Store
from tests.contract import making
from tests.contract.graphs import add_graph, new_workflow, settle

Flow = tuple[str, dict[str, JobId]]
"""The id of a workflow, and those of its jobs by their words."""
DIAMOND = {"first": (), "left": ("first",), "right": ("first",), "last": ("left", "right")}


async def add_flow(
    store: Store,
    graph: Mapping[str, Sequence[str]],
    name: str = "invoice-42",
    *,
    labels: dict[str, str] | None = None,
    task: str = "",
    if_fails: IfParentFails = IfParentFails.CANCEL,
    queue: str = "default",
) -> Flow:
    """`graph`: the parents of each job. Each is of a task that is called as it is, or all of `task`."""
    workflow = new_workflow(name, labels=labels or {})
    jobs = {word: making.new_job(task=task or word, queue=queue, workflow=workflow.id) for word in graph}
    edges = [
        NewEdge(jobs[parent].id, jobs[word].id, if_fails, Binding.NONE, "")
        for word, parents in graph.items()
        for parent in parents
    ]
    await add_graph(store, list(jobs.values()), edges, workflow=workflow)
    return workflow.id, {word: job.id for word, job in jobs.items()}


async def end_job(
    store: Store, instance: InstanceId, id: JobId, kind: OutcomeKind = OutcomeKind.SUCCEEDED, *, queue: str = "default"
) -> None:
    """End one job that is due, and follow its edges; others that are due stay so."""
    claimed = await making.claim(store, instance, queue, limit=100)
    [job] = [each for each in claimed if each.id == id]
    await making.end(store, instance, job, kind)
    others = [making.hold(each) for each in claimed if each.id != id]
    if others:
        await making.release(store, instance, *others)
    await settle(store)
