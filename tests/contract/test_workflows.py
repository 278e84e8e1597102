"""Workflows: jobs that have a name together, what is told of them, and the end of them."""

from collections import Counter
from itertools import pairwise
from typing import Any, cast

import pytest

from drumbeat.core.dependencies import WORKFLOW_CANCELLED, Binding, NewEdge
from drumbeat.core.job import JobState, OutcomeKind
from drumbeat.core.job_query import JobFilter
from drumbeat.core.workflow import MAX_COUNTED_NODES, MAX_GRAPH_NODES, GraphEdge, TaskEdge
from drumbeat.durations import to_us
from drumbeat.errors import WorkflowCancelled, WorkflowConflict, WorkflowError, WorkflowNotFound
from drumbeat.ids import JobId, new_job_id
from drumbeat.store.job_reads import find_jobs, get_job
from drumbeat.store.protocol import Store
from drumbeat.store.workflow_acts import cancel_workflow
from drumbeat.testing.store_wrapper import StoreCall, WrappedStore
from tests.contract.graphs import CANCEL, RUN, add_graph, edges, new_workflow, settle, states
from tests.contract.making import (
    HOUR,
    add,
    claim,
    claimed_one,
    end,
    exchange,
    ids,
    new_job,
    outcome,
    release,
    wanting,
    worker,
)


async def add_workflow(
    store: Store, name: str = "nightly", nodes: int = 3, **options: object
) -> tuple[str, list[JobId]]:
    """A chain."""
    workflow = new_workflow(name, **options)
    jobs = [new_job(workflow=workflow.id, task=f"t{number}") for number in range(nodes)]
    links = [edge for before, job in pairwise(jobs) for edge in edges(job, before)]
    await add_graph(store, jobs, links, workflow=workflow)
    return workflow.id, ids(jobs)


async def counts(store: Store, id: str) -> dict[str, int]:
    """Without zeros."""
    return {state: count for state, count in (await store.workflows.get([id]))[id].counts.items() if count}


async def test_a_workflow_is_what_its_jobs_are(store: Store) -> None:
    instance = await worker(store)
    before = await store.inspect.now()
    id, jobs = await add_workflow(store, labels={"shop": "ä", "n": "1"})
    found = (await store.workflows.get([id, "other", new_job_id()]))[id]
    assert (found.id, found.name, found.labels, found.cancelled_at) == (id, "nightly", {"shop": "ä", "n": "1"}, None)
    assert before <= to_us(found.created_at) <= await store.inspect.now()
    assert (found.is_live, found.capped) == (True, False)
    assert await counts(store, id) == {"pending": 1, "waiting": 2}
    [job] = await claim(store, instance)
    assert await counts(store, id) == {"running": 1, "waiting": 2}
    [job] = (await exchange(store, instance, [outcome(job, OutcomeKind.SUCCEEDED)], wanting())).jobs
    assert await counts(store, id) == {"succeeded": 1, "running": 1, "waiting": 1}
    await end(store, instance, job, OutcomeKind.DEAD)
    assert await counts(store, id) == {"succeeded": 1, "dead": 1, "cancelled": 1}
    assert not (await store.workflows.get([id]))[id].is_live
    assert await store.workflows.get(["other"]) == {}
    assert {job.workflow for job in await find_jobs(store, JobFilter())} == {id}
    assert sorted(job.id for job in await find_jobs(store, JobFilter(workflow=id))) == jobs


async def test_jobs_of_a_workflow_are_found_by_it_wherever_they_are(store: Store) -> None:
    instance = await worker(store)
    id, jobs = await add_workflow(store, nodes=3)
    await add_workflow(store, "other")
    [first] = [job for job in await claim(store, instance, limit=9) if job.id == jobs[0]]
    await end(store, instance, first, OutcomeKind.DEAD)
    await settle(store)
    await add(store, new_job(delay=HOUR))
    live = new_job(workflow=id, delay=HOUR)
    await add_graph(store, [live])
    by_state = {
        state: [job.id for job in await find_jobs(store, JobFilter(workflow=id, state=state))]
        for state in (JobState.DEAD, JobState.CANCELLED, JobState.PENDING)
    }
    assert by_state == {
        JobState.DEAD: jobs[:1],
        JobState.CANCELLED: jobs[:0:-1],
        JobState.PENDING: [live.id],
    }
    assert (await store.inspect.count_jobs(JobFilter(workflow=id))).total == 4
    assert await store.workflows.list_job_ids(id) == [*jobs, live.id]
    await store.jobs.replay(jobs[:1])
    assert (await get_job(store, jobs[0])).workflow == id


async def test_ids_of_jobs_come_in_pages(store: Store) -> None:
    id, jobs = await add_workflow(store, nodes=7)
    first = await store.workflows.list_job_ids(id, limit=3)
    assert first == jobs[:3]
    assert await store.workflows.list_job_ids(id, after=first[-1], limit=3) == jobs[3:6]
    assert await store.workflows.list_job_ids(id, after=jobs[-1]) == []
    assert await store.workflows.list_job_ids("unknown") == []


async def test_workflows_are_listed_newest_first_and_by_name(store: Store) -> None:
    made = [(await add_workflow(store, name))[0] for name in ("a", "b", "a", "b", "a")]
    assert [each.id for each in await store.workflows.find()] == made[::-1]
    assert [each.id for each in await store.workflows.find(name="a")] == [made[4], made[2], made[0]]
    assert [each.id for each in await store.workflows.find(name="a", before=made[4], limit=1)] == [made[2]]
    assert [each.id for each in await store.workflows.find(before=made[2])] == [made[1], made[0]]
    assert [each.counts["waiting"] for each in await store.workflows.find(limit=2)] == [2, 2]
    assert await store.workflows.find(name="c") == []


async def test_a_graph_has_every_node_and_edge(store: Store) -> None:
    instance = await worker(store)
    outside = await claimed_one(store, instance, queue="outside")
    workflow = new_workflow()
    root, child, last = [new_job(workflow=workflow.id, task=task) for task in ("a", "b", "c")]
    links = [
        NewEdge(outside.id, root.id, RUN),
        NewEdge(root.id, child.id, CANCEL, Binding.RESULT, "x"),
        *edges(last, root, child),
    ]
    await add_graph(store, [root, child, last], links, workflow=workflow)
    await end(store, instance, outside, OutcomeKind.SUCCEEDED)
    [job] = await claim(store, instance)
    await end(store, instance, job, OutcomeKind.SUCCEEDED)
    [job] = await claim(store, instance)
    graph = await store.workflows.get_graph(workflow.id)
    assert graph is not None
    assert [(node.id, node.task, node.state, node.blocked_on) for node in graph.nodes] == [
        (root.id, "a", JobState.SUCCEEDED, None),
        (child.id, "b", JobState.RUNNING, None),
        (last.id, "c", JobState.PENDING, "parents"),
    ]
    done, running, waiting = graph.nodes
    assert done.started_at is not None and done.finished_at is not None and done.finished_at >= done.started_at
    assert running.started_at is not None and running.finished_at is None and waiting.started_at is None
    assert {(edge.parent, edge.child): edge for edge in graph.edges} == {
        (link.parent, link.child): GraphEdge(
            parent=link.parent, child=link.child, if_fails=link.if_fails, binding=link.binding
        )
        for link in links
    }
    assert (graph.tasks, graph.task_edges, graph.capped) == ([], [], False)
    assert await store.workflows.get_graph("unknown") is None


@pytest.mark.parametrize("nodes", [MAX_GRAPH_NODES, MAX_GRAPH_NODES + 1])
async def test_a_large_graph_is_shown_by_task(store: Store, nodes: int) -> None:
    workflow = new_workflow()
    middle = [new_job(workflow=workflow.id, task="page") for _ in range(nodes - 2)]
    first, last = new_job(workflow=workflow.id, task="list"), new_job(workflow=workflow.id, task="total")
    links = [edge for job in middle for edge in edges(job, first)] + edges(last, *middle)
    await add_graph(store, [first, *middle, last], links, workflow=workflow)
    graph = await store.workflows.get_graph(workflow.id)
    assert graph is not None
    if nodes <= MAX_GRAPH_NODES:
        assert (len(graph.nodes), len(graph.edges), graph.tasks) == (nodes, len(links), [])
        return
    assert (graph.nodes, graph.edges, graph.capped) == ([], [], False)
    found = {node.task: {state: count for state, count in node.counts.items() if count} for node in graph.tasks}
    assert found == {"list": {"pending": 1}, "page": {"waiting": nodes - 2}, "total": {"waiting": 1}}
    assert sorted(graph.task_edges, key=lambda edge: edge.parent) == [
        TaskEdge(parent="list", child="page", count=nodes - 2),
        TaskEdge(parent="page", child="total", count=nodes - 2),
    ]


async def test_no_more_than_so_many_nodes_are_counted(store: Store) -> None:
    workflow = new_workflow()
    await add_graph(store, [], workflow=workflow)
    jobs = [new_job(workflow=workflow.id, delay=HOUR) for _ in range(MAX_COUNTED_NODES + 1)]
    await add_graph(store, jobs, workflow=workflow)
    found = (await store.workflows.get([workflow.id]))[workflow.id]
    assert (found.capped, sum(found.counts.values())) == (True, MAX_COUNTED_NODES)
    graph = await store.workflows.get_graph(workflow.id)
    assert graph is not None and graph.capped
    assert (graph.nodes, graph.edges, graph.task_edges) == ([], [], [])
    assert sum(sum(node.counts.values()) for node in graph.tasks) == MAX_COUNTED_NODES


async def test_the_last_ones_are_those_that_nobody_waits_for(store: Store) -> None:
    workflow = new_workflow()
    jobs = [new_job(workflow=workflow.id) for _ in range(5)]
    await add_graph(
        store, jobs, [*edges(jobs[1], jobs[0]), *edges(jobs[2], jobs[0]), *edges(jobs[4], jobs[1])], workflow=workflow
    )
    sinks = ids([jobs[2], jobs[3], jobs[4]])
    assert await store.workflows.list_sinks(workflow.id) == sinks[:2]
    assert await store.workflows.list_sinks(workflow.id, limit=10) == sinks
    instance = await worker(store)
    for job in await claim(store, instance):
        await end(store, instance, job, OutcomeKind.SUCCEEDED)
    assert await store.workflows.list_sinks(workflow.id, limit=10) == sinks, "ended or not"
    assert await store.workflows.list_sinks("unknown") == []


async def test_a_repeated_call_is_the_same_workflow(store: Store) -> None:
    workflow = new_workflow(labels={"a": "1"}, unique=True)
    jobs = [new_job(workflow=workflow.id) for _ in range(2)]
    links = edges(jobs[1], jobs[0])
    for created in (True, False):
        answer = await add_graph(store, jobs, links, workflow=workflow)
        assert [each.created for each in answer.results] == [created] * 2
    assert len(await store.workflows.find()) == 1
    assert len(await store.workflows.list_job_ids(workflow.id)) == 2


async def test_a_job_that_is_stored_already_is_no_part_of_a_new_workflow(store: Store) -> None:
    _, jobs = await add_workflow(store, nodes=1)
    for stored in (await add(store, new_job(task="alone")), jobs):
        workflow = new_workflow("second")
        new, known = new_job(workflow=workflow.id), new_job(id=stored[0], task="known", workflow=workflow.id)
        for calls in ([new, known], [known]):
            with pytest.raises(WorkflowError, match=rf"'second' was not stored: job {known.id} \(known\)"):
                await add_graph(store, calls, workflow=workflow)
        assert await store.workflows.get([workflow.id]) == {}
        assert (await store.inspect.get_jobs([new.id])) == {}


async def test_a_unique_name_is_refused_while_another_of_it_is_live(store: Store) -> None:
    instance = await worker(store)
    for is_unique in (True, False):
        first, jobs = await add_workflow(store, f"nightly{is_unique}", nodes=2, unique=is_unique)
        second = new_workflow(f"nightly{is_unique}", unique=True)
        for id in jobs:
            refused = new_job(workflow=second.id)
            with pytest.raises(WorkflowConflict) as caught:
                await add_graph(store, [refused], workflow=second)
            assert (caught.value.workflow, caught.value.name) == (first, f"nightly{is_unique}")
            assert refused.id not in await store.inspect.get_jobs([refused.id])
            assert await store.workflows.get([second.id]) == {}
            [job] = await claim(store, instance)
            assert job.id == id
            with pytest.raises(WorkflowConflict):
                await add_graph(store, [refused], workflow=second)
            await end(store, instance, job, OutcomeKind.SUCCEEDED)
        await add_workflow(store, "different", unique=True)
        assert (await add_graph(store, [refused], workflow=second)).results[0].created
        for job in await claim(store, instance):
            await end(store, instance, job, OutcomeKind.DEAD)


async def test_workflows_that_are_not_unique_share_a_name(store: Store) -> None:
    await add_workflow(store, unique=True)
    await add_workflow(store)
    assert Counter(each.name for each in await store.workflows.find()) == {"nightly": 2}


async def test_jobs_are_added_to_a_workflow_that_exists(store: Store) -> None:
    id, jobs = await add_workflow(store)
    more = new_job(workflow=id)
    await add_graph(store, [more], edges(more, jobs[-1]))
    assert await store.workflows.list_job_ids(id) == [*jobs, more.id]
    lost = new_job(workflow=new_job_id())
    with pytest.raises(WorkflowNotFound) as caught:
        await add_graph(store, [new_job(), lost])
    assert caught.value.workflow == lost.workflow
    assert (await store.inspect.count_jobs(JobFilter())).total == 4


async def test_nothing_is_added_to_a_cancelled_workflow(store: Store) -> None:
    id, jobs = await add_workflow(store)
    assert [await store.workflows.mark_cancelled(each) for each in (id, id, "unknown")] == [True, True, False]
    found = (await store.workflows.get([id]))[id]
    assert found.cancelled_at is not None
    with pytest.raises(WorkflowCancelled) as caught:
        await add_graph(store, [new_job(), new_job(workflow=id)])
    assert caught.value.workflow == id
    assert (await store.inspect.count_jobs(JobFilter())).total == len(jobs)


async def test_nothing_that_waits_becomes_due_in_a_cancelled_workflow(store: Store) -> None:
    instance = await worker(store)
    id, jobs = await add_workflow(store)
    outside = new_job(task="outside")
    await add_graph(store, [outside], edges(outside, jobs[0]))
    [job] = await claim(store, instance)
    await store.workflows.mark_cancelled(id)
    assert await states(store, *jobs) == [JobState.RUNNING, JobState.PENDING, JobState.PENDING]
    answer = await exchange(store, instance, [outcome(job, OutcomeKind.SUCCEEDED)], wanting())
    assert ids(answer.jobs) == [outside.id]
    await settle(store)
    assert await states(store, *jobs) == [JobState.SUCCEEDED, JobState.CANCELLED, JobState.CANCELLED]
    assert (await get_job(store, jobs[1])).error == WORKFLOW_CANCELLED
    last = (await get_job(store, jobs[2])).error
    assert last is not None and last.type == "ParentFailed"
    assert await counts(store, id) == {"succeeded": 1, "cancelled": 2}


async def test_a_job_that_is_put_back_while_its_workflow_is_cancelled_is_cancelled_too(store: Store) -> None:
    """Whenever somebody looks for the running ones it is pending, and the other way round."""
    instance = await worker(store)
    id, [job] = await add_workflow(store, nodes=1)

    def between_looks(name: str, real: StoreCall) -> StoreCall:
        async def call(*args: Any, **options: Any) -> Any:
            answer = await real(*args, **options)
            if name == "inspect.find_page":
                if held := await store.jobs.list_running(instance):
                    await release(store, instance, *held)
                else:
                    await claim(store, instance)
            return answer

        return call

    await claim(store, instance)
    await cancel_workflow(cast("Store", WrappedStore(store, between_looks)), id)
    found = await get_job(store, job)
    assert found.state is JobState.CANCELLED or found.cancel_requested


async def test_a_workflow_is_pruned_with_the_last_of_its_jobs(store: Store) -> None:
    instance = await worker(store)
    id, jobs = await add_workflow(store, nodes=2)
    for left in (1, 0):
        [job] = await claim(store, instance)
        await end(store, instance, job, OutcomeKind.SUCCEEDED)
        assert await store.jobs.prune(await store.inspect.now() + 1, 100) == 1
        assert await store.workflows.list_job_ids(id) == jobs[2 - left :]
        assert [each.id for each in await store.workflows.find()] == [id] * left
    assert await store.workflows.get([id]) == {}
    assert await store.workflows.get_graph(id) is None


async def test_a_dead_letter_keeps_its_workflow(store: Store) -> None:
    instance = await worker(store)
    id, jobs = await add_workflow(store, nodes=2)
    [job] = await claim(store, instance)
    await end(store, instance, job, OutcomeKind.DEAD)
    assert await store.jobs.prune(await store.inspect.now() + 1, 100) == 1
    assert await counts(store, id) == {"dead": 1}
    await store.jobs.discard(jobs[:1])
    assert await store.jobs.prune(await store.inspect.now() + 1, 100) == 1
    assert await store.workflows.get([id]) == {}
