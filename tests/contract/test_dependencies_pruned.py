"""Pruning: what is kept of a graph goes with the last job that needs it, and nothing stays behind."""

import pytest

from drumbeat.core.dependencies import Binding, NewEdge
from drumbeat.core.job import OutcomeKind
from drumbeat.core.job_query import JobFilter
from drumbeat.errors import JobNotFound
from drumbeat.ids import InstanceId, new_job_id
from drumbeat.store.protocol import Store
from tests.contract.graphs import RUN, WAIT, add_child, add_graph, edges, new_workflow, settle
from tests.contract.leftovers import find_leftovers
from tests.contract.making import add, claim, claimed_one, end, new_job, worker


async def add_everything(store: Store, instance: InstanceId) -> None:
    """Every kind of edge and binding, fan-out and fan-in, a parent outside of the workflow, a child added to what has ended."""
    outside = await claimed_one(store, instance)
    workflow = new_workflow(labels={"a": "b"})
    root, left, right, last, bound, paged = [new_job(workflow=workflow.id) for _ in range(6)]
    dies = new_job(task="dies", workflow=workflow.id)
    below, lowest, waits = [new_job(workflow=workflow.id) for _ in range(3)]
    jobs = [root, left, right, last, bound, paged, dies, below, lowest, waits]
    links = [
        *edges(root, outside.id),
        *edges(left, root),
        *edges(right, root),
        *edges(last, left, right),
        NewEdge(root.id, bound.id, binding=Binding.RESULT, argument="x"),
        NewEdge(dies.id, bound.id, RUN, Binding.OUTCOME, "y"),
        *(NewEdge(parent.id, paged.id, RUN, Binding.RESULTS, "all") for parent in (left, right, dies)),
        *edges(below, dies),
        *edges(lowest, below),
        *edges(waits, dies, if_fails=WAIT),
    ]
    await add_graph(store, jobs, links, workflow=workflow)
    await end(store, instance, outside, OutcomeKind.SUCCEEDED, result="1")
    await add_child(store, outside.id, root.id)


async def run_all(store: Store, instance: InstanceId) -> None:
    while jobs := await claim(store, instance, limit=100):
        for job in jobs:
            kind = OutcomeKind.DEAD if job.task == "dies" and not job.replays else OutcomeKind.SUCCEEDED
            await end(store, instance, job, kind, result='"r"' if kind is OutcomeKind.SUCCEEDED else None)
        await settle(store)


@pytest.mark.parametrize("limit", [1, 1_000])
@pytest.mark.parametrize("is_replayed", [False, True], ids=["discarded", "replayed"])
async def test_nothing_is_left_of_a_graph(store: Store, store_url: str, limit: int, is_replayed: bool) -> None:
    instance = await worker(store)
    await add_everything(store, instance)
    assert await find_leftovers(store_url) != {}
    await run_all(store, instance)
    letters = [job.id for job in (await store.inspect.find_page(JobFilter(dead_letters=True))).items]
    assert len(letters) == 1
    if is_replayed:
        await store.jobs.replay(letters)
        await settle(store)
        await run_all(store, instance)
    else:
        await store.jobs.discard(letters)
    before = await store.inspect.now() + 1
    while await store.jobs.prune(before, limit):
        pass
    assert (await store.inspect.count_jobs(JobFilter())).total == 0
    assert await find_leftovers(store_url) == {}


async def test_a_refused_graph_leaves_nothing(store: Store, store_url: str) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    child, workflow = new_job(), new_workflow()
    with pytest.raises(JobNotFound):
        await add_graph(store, [child], edges(child, job.id, new_job_id()), workflow=workflow)
    assert await find_leftovers(store_url) == {}


async def test_plain_jobs_keep_nothing_of_dependencies(store: Store, store_url: str) -> None:
    instance = await worker(store)
    await add(store, new_job(task="dies"), *(new_job() for _ in range(5)))
    await run_all(store, instance)
    assert await find_leftovers(store_url) == {}
