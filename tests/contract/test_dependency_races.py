"""Parents end, children are added, cancelled, replayed and discarded by several stores at once: whoever comes first, nothing is
lost and nothing is counted twice."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from itertools import product
from typing import Any

import pytest

from drumbeat.core.claim import ClaimedJob
from drumbeat.core.job import CancelAnswer, JobState, NewJob, OutcomeKind
from drumbeat.errors import WorkflowCancelled
from drumbeat.ids import InstanceId, JobId
from drumbeat.store.job_reads import get_job
from drumbeat.store.protocol import Store
from tests.conftest import OpenAgain
from tests.contract.graphs import CANCEL, RUN, WAIT, add_child, add_graph, edges, new_workflow, settle
from tests.contract.making import claim, end, ids, new_job, outcome, report, worker
from tests.contract.rules import load

ROUNDS = 120
"""Of the race for which this was built; others are run less often."""
Call = Callable[[], Coroutine[Any, Any, object]]


async def at_once(number: int, *calls: Call) -> None:
    """All of them, each of them first in some rounds, and some a few turns of the loop later."""

    first = number % len(calls)
    order = [*calls[first:], *calls[:first]]
    async with asyncio.TaskGroup() as group:
        for call in order:
            task = group.create_task(call())
            for _ in range(number // len(calls) % 7):
                await asyncio.wait([task], timeout=0)


async def running(store: Store, instance: InstanceId, count: int) -> list[ClaimedJob]:
    await store.jobs.add([new_job() for _ in range(count)])
    return await claim(store, instance, limit=count)


async def nothing_is_wrong(store: Store) -> None:
    await settle(store)
    assert await store.dependencies.find_miscounted(10_000) == []


@pytest.mark.parametrize("kind", [OutcomeKind.SUCCEEDED, OutcomeKind.DEAD])
async def test_a_child_that_is_added_while_its_parent_ends_is_neither_lost_nor_early(
    store: Store, open_again: OpenAgain, kind: OutcomeKind
) -> None:
    """The other parent lives: a count too many would make the child due."""
    adder, instance = await open_again(), await worker(store)
    [live] = await running(store, instance, 1)
    children: list[JobId] = []
    for number, parent in enumerate(await running(store, instance, ROUNDS)):
        both, only = new_job(queue="both"), new_job(queue="only")
        links = [*edges(both, parent.id, live.id, if_fails=RUN), *edges(only, parent.id, if_fails=RUN)]

        async def add(jobs: Any = (both, only), links: Any = links) -> None:
            await add_graph(adder, jobs, links)

        async def finish(parent: ClaimedJob = parent) -> None:
            assert await end(store, instance, parent, kind) == "applied"

        await at_once(number, add, finish)
        children.append(both.id)
    await nothing_is_wrong(store)
    assert len(await claim(store, instance, "only", limit=10_000)) == ROUNDS
    assert await claim(store, instance, "both", limit=10_000) == []
    assert {job.open_parents for job in (await load(store, children)).values()} == {1}
    await end(store, instance, live, OutcomeKind.SUCCEEDED)
    await settle(store)
    assert sorted(ids(await claim(store, instance, "both", limit=10_000))) == sorted(children)


async def test_parents_that_end_in_four_stores_at_once_are_all_counted(store: Store, open_again: OpenAgain) -> None:
    stores = [store, await open_again(), await open_again(), await open_again()]
    instances = [await worker(each) for each in stores]
    for number in range(ROUNDS // 4):
        parents = [(await running(store, instance, 1))[0] for instance in instances]
        children = [new_job(), new_job()]
        await add_graph(store, children, [link for child in children for link in edges(child, *ids(parents))])
        await at_once(
            number,
            *(
                _ending(each, instance, parent)
                for each, instance, parent in zip(stores, instances, parents, strict=True)
            ),
        )
        await settle(store)
        found = await claim(store, instances[0])
        assert sorted(ids(found)) == sorted(ids(children)), number
        await report(store, instances[0], *(outcome(job, OutcomeKind.SUCCEEDED) for job in found))
    await nothing_is_wrong(store)


def _ending(store: Store, instance: InstanceId, job: ClaimedJob, kind: OutcomeKind = OutcomeKind.SUCCEEDED) -> Call:
    async def finish() -> None:
        await end(store, instance, job, kind)

    return finish


async def test_a_parent_is_cancelled_while_it_is_claimed_and_ends(store: Store, open_again: OpenAgain) -> None:
    other, instance = await open_again(), await worker(store)
    for number in range(ROUNDS // 4):
        parent = new_job()
        children = [new_job() for _ in range(3)]
        policies = (CANCEL, RUN, WAIT)
        links = [
            edge
            for child, policy in zip(children, policies, strict=True)
            for edge in edges(child, parent, if_fails=policy)
        ]
        await add_graph(store, [parent, *children], links)

        async def run() -> None:
            jobs = await claim(store, instance, limit=1)
            await report(store, instance, *(outcome(job, OutcomeKind.SUCCEEDED) for job in jobs))

        async def stop(id: JobId = parent.id) -> None:
            assert await other.jobs.cancel([id]) != [CancelAnswer.DEAD]

        await at_once(number, run, stop)
        await settle(store)
        states = {job.id: job.state for job in (await load(store, ids([parent, *children]))).values()}
        assert states[parent.id] in (JobState.CANCELLED, JobState.SUCCEEDED)
        is_over = states[parent.id] is JobState.CANCELLED
        left = [JobState.CANCELLED, JobState.PENDING, JobState.CANCELLED] if is_over else [JobState.PENDING] * 3
        if is_over and states[children[1].id] is JobState.RUNNING:
            left[1] = JobState.RUNNING  # `run` came so late that it took this one
        assert [states[child.id] for child in children if states[child.id] is not JobState.SUCCEEDED] == [
            state for state, child in zip(left, children, strict=True) if states[child.id] is not JobState.SUCCEEDED
        ]
        rest = await claim(store, instance, limit=100)
        await report(store, instance, *(outcome(job, OutcomeKind.SUCCEEDED) for job in rest))
    await nothing_is_wrong(store)


async def test_of_a_replay_and_a_discard_at_once_one_is_done_to_children_too(
    store: Store, open_again: OpenAgain
) -> None:
    other, instance = await open_again(), await worker(store)
    for number in range(ROUNDS // 4):
        [parent] = await running(store, instance, 1)
        cancelled = await add_child(store, parent.id)
        waits = await add_child(store, parent.id, if_fails=WAIT)
        await end(store, instance, parent, OutcomeKind.DEAD)

        async def replay(id: JobId = parent.id) -> None:
            await store.jobs.replay([id])

        async def discard(id: JobId = parent.id) -> None:
            await other.jobs.discard([id])

        await at_once(number, replay, discard)
        await settle(store)
        found = await load(store, [parent.id, cancelled, waits])
        state = found[parent.id].state
        assert state in (JobState.PENDING, JobState.DEAD)
        expected = JobState.PENDING if state is JobState.PENDING else JobState.CANCELLED
        assert [found[cancelled].state, found[waits].state] == [expected] * 2, number
        for job in await claim(store, instance):
            await end(store, instance, job, OutcomeKind.SUCCEEDED)
        await report(store, instance, *(outcome(job, OutcomeKind.SUCCEEDED) for job in await claim(store, instance)))
    await nothing_is_wrong(store)


async def test_one_parent_is_replayed_while_another_ends(store: Store, open_again: OpenAgain) -> None:
    """The child is judged anew: the other counts once, whether its end comes before or after."""
    other, instance = await open_again(), await worker(store)
    [live] = await running(store, instance, 1)
    children: list[JobId] = []
    for number in range(ROUNDS // 3):
        dies, ends = await running(store, instance, 2)
        children.append(await add_child(store, dies.id, ends.id, live.id, if_fails=CANCEL))
        await end(store, instance, dies, OutcomeKind.DEAD)

        async def replay(id: JobId = dies.id) -> None:
            await other.jobs.replay([id])

        await at_once(number, replay, _ending(store, instance, ends))
        await settle(store)
        found = await get_job(store, children[-1])
        assert (found.state, found.open_parents) == (JobState.PENDING, 2), number
        await report(store, instance, *(outcome(job, OutcomeKind.SUCCEEDED) for job in await claim(store, instance)))
    await nothing_is_wrong(store)
    assert {job.open_parents for job in (await load(store, children)).values()} == {1}


async def test_a_child_is_added_while_its_dead_parent_is_replayed(store: Store, open_again: OpenAgain) -> None:
    other, instance = await open_again(), await worker(store)
    for number in range(ROUNDS // 4):
        [parent] = await running(store, instance, 1)
        await end(store, instance, parent, OutcomeKind.DEAD)
        children = [new_job(queue="children") for _ in range(3)]
        links = [
            edge
            for child, policy in zip(children, (CANCEL, WAIT, RUN), strict=True)
            for edge in edges(child, parent.id, if_fails=policy)
        ]

        async def replay(id: JobId = parent.id) -> None:
            await store.jobs.replay([id])

        async def add(jobs: Sequence[Any] = children, links: Any = links) -> None:
            await add_graph(other, jobs, links)

        await at_once(number, replay, add)
        await settle(store)
        found = await load(store, ids(children))
        assert [found[child.id].state for child in children] == [JobState.PENDING] * 3, number
        assert [found[child.id].open_parents for child in children[:2]] == [1, 1], number
        for job in await claim(store, instance):
            await end(store, instance, job, OutcomeKind.SUCCEEDED)
        await settle(store)
        ready = await claim(store, instance, "children", limit=10)
        assert sorted(ids(ready)) == sorted(ids(children)), number
        await report(store, instance, *(outcome(job, OutcomeKind.SUCCEEDED) for job in ready))


async def test_a_workflow_is_cancelled_while_its_parents_end_and_jobs_are_added(
    store: Store, open_again: OpenAgain
) -> None:
    """Once the call has returned, nothing that waited becomes due, and nothing is added."""
    other, third, instance = await open_again(), await open_again(), await worker(store)
    for number in range(ROUNDS // 4):
        workflow = new_workflow()
        root, child, late = [new_job(workflow=workflow.id) for _ in range(3)]
        await add_graph(store, [root, child], edges(child, root), workflow=workflow)
        [job] = await claim(store, instance)
        due_before: list[JobId] = []

        async def stop(id: str = workflow.id, child: JobId = child.id, due: list[JobId] = due_before) -> None:
            assert await other.workflows.mark_cancelled(id)
            found = await get_job(other, child)
            due += [child] * (found.state is JobState.PENDING and found.blocked_on is None)

        async def add(late: NewJob = late, root: NewJob = root) -> None:
            try:
                await add_graph(third, [late], edges(late, root))
            except WorkflowCancelled:
                return

        await at_once(number, stop, _ending(store, instance, job), add)
        await settle(store)
        found = await load(store, ids([child, late]))
        for each in found.values():
            assert each.state in (JobState.PENDING, JobState.CANCELLED)
            assert each.blocked_on is None
        if child.id not in due_before:
            assert found[child.id].state is JobState.CANCELLED, number
        await report(store, instance, *(outcome(each, OutcomeKind.SUCCEEDED) for each in await claim(store, instance)))
    await nothing_is_wrong(store)


async def test_many_advance_at_once_and_every_edge_is_followed_once(store: Store, open_again: OpenAgain) -> None:
    stores = [store, *[await open_again() for _ in range(3)]]
    instance = await worker(store)
    parents = await running(store, instance, 4)
    [live] = await running(store, instance, 1)
    children = [new_job(queue="children") for _ in range(1_500)]
    links = [link for child in children for link in edges(child, *ids(parents), live.id, if_fails=RUN)]
    await add_graph(store, children, links)
    async with asyncio.TaskGroup() as group:
        for each, parent in zip(stores, parents, strict=True):
            group.create_task(report(each, instance, outcome(parent, OutcomeKind.SUCCEEDED)))
        for each, _ in product(stores, range(2)):
            group.create_task(settle(each))
    await nothing_is_wrong(store)
    assert {job.open_parents for job in (await load(store, ids(children))).values()} == {1}
