"""Jobs are added together with the edges to their parents: all or none, judged by what the parents are at that moment."""

import pytest

from drumbeat.core.dependencies import BLOCKED_ON_PARENTS, Binding, IfParentFails, NewEdge, ParentEvent
from drumbeat.core.job import AddResult, JobState, OutcomeKind, Unique
from drumbeat.core.job_query import JobFilter
from drumbeat.errors import JobExpired, JobNotFound, UniqueConflict
from drumbeat.ids import new_job_id
from drumbeat.store.job_reads import find_jobs, get_job
from drumbeat.store.protocol import Store
from tests.contract.graphs import (
    CANCEL,
    RUN,
    WAIT,
    add_child,
    add_graph,
    edges,
    failure_by,
    new_workflow,
    settle,
    state_of,
    states,
)
from tests.contract.making import (
    HOUR,
    add,
    claim,
    claimed_one,
    dead_letter,
    end,
    exchange,
    ids,
    new_job,
    outcome,
    wanting,
    worker,
)


async def count(store: Store) -> int:
    return (await store.inspect.count_jobs(JobFilter())).total


async def test_a_graph_is_stored_whole_and_only_its_roots_are_due(store: Store) -> None:
    instance = await worker(store)
    root, left, right, last = [new_job(task=task, key="k", group="t") for task in ("a", "b", "c", "d")]
    links = [*edges(left, root), *edges(right, root), *edges(last, left, right)]
    answer = await add_graph(store, [last, right, left, root], links)
    assert answer.results == [AddResult(job.id, True) for job in (last, right, left, root)]
    assert (answer.status, answer.recorded) == ("applied", None)
    found = {job.task: job for job in await find_jobs(store, JobFilter())}
    assert {task: job.open_parents for task, job in found.items()} == {"a": None, "b": 1, "c": 1, "d": 2}
    assert {task: job.blocked_on for task, job in found.items()} == {
        "a": None,
        **dict.fromkeys("bcd", BLOCKED_ON_PARENTS),
    }
    assert (found["d"].key, found["d"].group, found["d"].state) == ("k", "t", JobState.PENDING)
    assert (await store.inspect.count_jobs(JobFilter())).waiting == 3
    ran = []
    jobs = await claim(store, instance)
    while jobs:
        ran.append(sorted(job.task for job in jobs))
        jobs = (await exchange(store, instance, [outcome(job, OutcomeKind.SUCCEEDED) for job in jobs], wanting())).jobs
    assert ran == [["a"], ["b", "c"], ["d"]]


async def test_an_empty_graph_and_one_without_edges(store: Store) -> None:
    assert (await add_graph(store, [])).results == []
    jobs = [new_job(), new_job(delay=HOUR)]
    assert (await add_graph(store, jobs)).results == [AddResult(job.id, True) for job in jobs]
    found = [await get_job(store, job.id) for job in jobs]
    assert [(job.open_parents, job.blocked_on) for job in found] == [(None, None)] * 2
    assert ids(await claim(store, await worker(store))) == [jobs[0].id]


async def test_a_child_may_have_a_smaller_id_than_its_parents(store: Store) -> None:
    instance = await worker(store)
    early = new_job_id(1_000_000)
    job = await claimed_one(store, instance)
    await add_child(store, job.id, id=early)
    await end(store, instance, job, OutcomeKind.SUCCEEDED)
    assert ids(await claim(store, instance)) == [early]


@pytest.mark.parametrize("count", [3, 300, 3_000])
async def test_a_child_waits_for_many_new_parents(store: Store, count: int) -> None:
    instance = await worker(store)
    child, parents = new_job(), [new_job() for _ in range(count)]
    await add_graph(store, [child, *parents], edges(child, *parents))
    assert (await get_job(store, child.id)).open_parents == count
    jobs = await claim(store, instance, limit=count + 1)
    assert len(jobs) == count
    half = count // 2
    for some in (jobs[:half], jobs[half:]):
        assert await claim(store, instance) == []
        await exchange(store, instance, [outcome(job, OutcomeKind.SUCCEEDED) for job in some])
        await settle(store)
    assert ids(await claim(store, instance)) == [child.id]


async def test_a_repeated_call_is_the_same_one(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    child, below = new_job(), new_job()
    links = [*edges(child, job.id), *edges(below, child)]
    for created in (True, False, False):
        answer = await add_graph(store, [child, below], links)
        assert answer.results == [AddResult(child.id, created), AddResult(below.id, created)]
    assert (await get_job(store, child.id)).open_parents == 1
    await end(store, instance, job, OutcomeKind.SUCCEEDED)
    assert (await add_graph(store, [child, below], links)).results[0] == AddResult(child.id, False)
    assert ids(await claim(store, instance)) == [child.id]
    assert (await get_job(store, below.id)).open_parents == 1


async def test_a_repeated_call_does_not_look_for_parents_that_were_pruned(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    child = new_job(delay=HOUR)
    await add_graph(store, [child], edges(child, job.id))
    await end(store, instance, job, OutcomeKind.SUCCEEDED)
    await store.jobs.prune(await store.inspect.now() + 1, 10)
    with pytest.raises((JobNotFound, JobExpired)):
        await get_job(store, job.id)
    assert (await add_graph(store, [child], edges(child, job.id))).results == [AddResult(child.id, False)]


async def test_new_and_known_jobs_of_one_call(store: Store) -> None:
    """The edges of what exists are not stored; those of the others are."""
    instance = await worker(store)
    job = await claimed_one(store, instance)
    [known] = await add(store, old := new_job(delay=HOUR))
    child = new_job()
    answer = await add_graph(store, [old, child], [*edges(old, job.id), *edges(child, old, job.id)])
    assert [each.created for each in answer.results] == [False, True]
    assert (await get_job(store, known)).open_parents is None
    assert (await get_job(store, child.id)).open_parents == 2
    assert (await store.dependencies.list_parents([known], 10))[known] == []


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_nothing_is_stored_if_a_parent_is_unknown(store: Store, place: int) -> None:
    instance = await worker(store)
    live, ended = await claimed_one(store, instance), await claimed_one(store, instance)
    await end(store, instance, ended, OutcomeKind.SUCCEEDED)
    parents, child, other = [live.id, ended.id], new_job(), new_job()
    parents.insert(place, new_job_id())
    with pytest.raises(JobNotFound) as caught:
        await add_graph(store, [other, child], edges(child, *parents))
    assert caught.value.id == parents[place]
    assert await count(store) == 2
    assert [found for found in (await store.dependencies.list_children(parents, 10)).values() if found] == []
    # The live one has become nobody's parent.
    await end(store, instance, live, OutcomeKind.SUCCEEDED)
    assert not await store.dependencies.advance()


async def test_nothing_is_stored_if_a_parent_was_pruned(store: Store) -> None:
    instance = await worker(store)
    gone = await claimed_one(store, instance, id=new_job_id(1_000_000_000))
    await end(store, instance, gone, OutcomeKind.SUCCEEDED)
    assert await store.jobs.prune(await store.inspect.now() + 1, 10) == 1
    for policy in IfParentFails:
        with pytest.raises(JobExpired):
            await add_child(store, gone.id, if_fails=policy)
    assert await count(store) == 0


async def test_a_parent_that_is_no_id_is_unknown(store: Store) -> None:
    child = new_job()
    with pytest.raises(JobNotFound):
        await add_graph(store, [child], [NewEdge("nonsense", child.id)])  # type: ignore[arg-type]
    assert await count(store) == 0


async def test_parents_that_have_ended_count_as_what_they_are(store: Store) -> None:
    instance = await worker(store)
    good = await claimed_one(store, instance)
    await end(store, instance, good, OutcomeKind.SUCCEEDED)
    letter = await dead_letter(store, instance)
    live = await claimed_one(store, instance)
    late = await store.inspect.now() + HOUR
    met, future = await add_child(store, good.id), await add_child(store, good.id, run_at=late)
    mixed = await add_child(store, good.id, letter.id, live.id, if_fails=RUN)
    waits = await add_child(store, good.id, letter.id, if_fails=WAIT)
    cancelled = await add_child(store, good.id, letter.id, live.id)
    found = {id: await get_job(store, id) for id in (met, future, mixed, waits, cancelled)}
    assert [job.open_parents for job in found.values()][:4] == [0, 0, 1, 1]
    assert [job.blocked_on for job in found.values()][:4] == [None, None, "parents", "parents"]
    assert found[cancelled].state is JobState.CANCELLED
    assert found[cancelled].error == await failure_by(store, letter.id, ParentEvent.DIED)
    answer = await exchange(store, instance, [], wanting())
    assert (ids(answer.jobs), answer.next_due_at) == ([met], late)
    await end(store, instance, live, OutcomeKind.DEAD)
    assert ids(await claim(store, instance)) == [mixed]


async def test_a_failed_parent_cancels_all_that_is_added_below_it(store: Store) -> None:
    """The union of an ended parent, a live one and new ones."""
    instance = await worker(store)
    letter, live = await dead_letter(store, instance), await claimed_one(store, instance)
    child, below, lowest, runs, free = [new_job(task=task) for task in "abcde"]
    links = [*edges(child, letter.id, live.id), *edges(below, child, free)]
    answer = await add_graph(
        store,
        [lowest, below, child, runs, free],
        [*links, *edges(lowest, below), *edges(runs, child, if_fails=RUN)],
    )
    assert [each.created for each in answer.results] == [True] * 5
    await settle(store)
    assert await states(store, child.id, below.id, lowest.id) == [JobState.CANCELLED] * 3
    assert (await get_job(store, below.id)).error == await failure_by(store, child.id, ParentEvent.CANCELLED)
    assert (await get_job(store, lowest.id)).error == await failure_by(store, below.id, ParentEvent.CANCELLED)
    assert ids(await claim(store, instance)) == [runs.id, free.id]
    await end(store, instance, live, OutcomeKind.SUCCEEDED)
    assert await state_of(store, child.id) is JobState.CANCELLED
    assert await claim(store, instance) == []


async def test_the_end_of_a_job_that_is_cancelled_at_once_is_counted_once(store: Store) -> None:
    """Also where a job of the same call takes its outcome: else that one would be due before its other parent has ended."""
    instance = await worker(store)
    letter, live = await dead_letter(store, instance), await claimed_one(store, instance)
    child, taker = new_job(), new_job()
    outcome_of_child = NewEdge(parent=child.id, child=taker.id, if_fails=RUN, binding=Binding.OUTCOME, argument="x")
    await add_graph(store, [child, taker], [*edges(child, letter.id), *edges(taker, live.id), outcome_of_child])
    await settle(store)
    assert await state_of(store, child.id) is JobState.CANCELLED
    assert (await get_job(store, taker.id)).open_parents == 1
    assert await claim(store, instance) == []
    await end(store, instance, live, OutcomeKind.SUCCEEDED)
    assert ids(await claim(store, instance)) == [taker.id]
    [taken] = (await store.dependencies.load_results([taker.id]))[taker.id]
    assert (taken.parent, taken.state) == (child.id, JobState.CANCELLED)


@pytest.mark.parametrize("unique", [Unique.LIVE, Unique.PENDING])
async def test_a_leaf_whose_key_is_held_is_answered_with_the_holder(store: Store, unique: Unique) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    [holder] = await add(store, new_job(key="k", unique=unique, delay=HOUR))
    child, other = new_job(key="k", unique=unique), new_job()
    answer = await add_graph(store, [child, other], [*edges(child, job.id), *edges(other, job.id)])
    assert answer.results == [AddResult(holder, False), AddResult(other.id, True)]
    assert [link.id for link in (await store.dependencies.list_children([job.id], 10))[job.id]] == [other.id]
    assert (await get_job(store, holder)).open_parents is None
    await end(store, instance, job, OutcomeKind.SUCCEEDED)
    assert ids(await claim(store, instance)) == [other.id]


async def test_a_waiting_child_holds_its_key(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    child = await add_child(store, job.id, key="k", unique=Unique.LIVE)
    [answer] = await store.jobs.add([new_job(key="k", unique=Unique.LIVE)])
    assert answer == AddResult(child, False)
    await end(store, instance, job, OutcomeKind.DEAD)
    [answer] = await store.jobs.add([new_job(key="k", unique=Unique.LIVE)])
    assert answer.created, "a cancelled child has given its key back"


async def test_a_child_that_is_cancelled_at_once_holds_no_key(store: Store) -> None:
    letter = await dead_letter(store, await worker(store))
    await add_child(store, letter.id, key="k", unique=Unique.LIVE)
    [answer] = await store.jobs.add([new_job(key="k", unique=Unique.LIVE)])
    assert answer.created


async def test_nothing_is_stored_if_the_key_of_a_parent_in_the_call_is_held(store: Store) -> None:
    [holder] = await add(store, new_job(key="k", unique=Unique.LIVE))
    parent, child = new_job(key="k", unique=Unique.LIVE), new_job()
    with pytest.raises(UniqueConflict) as caught:
        await add_graph(store, [parent, child], edges(child, parent))
    assert (caught.value.id, caught.value.key, caught.value.live_id) == (parent.id, "k", holder)
    assert await count(store) == 1


async def test_nothing_is_stored_if_the_key_of_a_parent_is_held_by_another_job_of_the_call(store: Store) -> None:
    first, parent, child = new_job(key="k", unique=Unique.LIVE), new_job(key="k", unique=Unique.LIVE), new_job()
    with pytest.raises(UniqueConflict):
        await add_graph(store, [first, parent, child], edges(child, parent))
    assert await count(store) == 0


async def test_a_workflow_is_refused_as_a_whole_if_a_key_is_held(store: Store) -> None:
    [holder] = await add(store, new_job(key="k", unique=Unique.LIVE))
    workflow = new_workflow()
    jobs = [new_job(workflow=workflow.id), new_job(workflow=workflow.id, key="k", unique=Unique.LIVE)]
    with pytest.raises(UniqueConflict) as caught:
        await add_graph(store, jobs, edges(jobs[1], jobs[0]), workflow=workflow)
    assert (caught.value.live_id, await count(store)) == (holder, 1)
    assert await store.workflows.get([workflow.id]) == {}


async def test_two_leaves_of_one_call_collide_as_in_any_call(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    first, second = [new_job(key="k", unique=Unique.LIVE) for _ in range(2)]
    answer = await add_graph(store, [first, second], [*edges(first, job.id), *edges(second, job.id)])
    assert answer.results == [AddResult(first.id, True), AddResult(first.id, False)]
    assert len((await store.dependencies.list_children([job.id], 10))[job.id]) == 1


async def test_the_order_of_parents_is_kept(store: Store) -> None:
    instance = await worker(store)
    jobs = [await claimed_one(store, instance) for _ in range(4)]
    order = [jobs[at].id for at in (2, 0, 3, 1)]
    child = await add_child(store, *order, if_fails=RUN)
    links = (await store.dependencies.list_parents([child], 10))[child]
    assert [link.id for link in links] == order
    await end(store, instance, jobs[2], OutcomeKind.SUCCEEDED)
    await end(store, instance, jobs[1], OutcomeKind.DEAD)
    links = (await store.dependencies.list_parents([child], 10))[child]
    assert [(link.id, link.is_open, link.state) for link in links] == [
        (order[1], True, JobState.RUNNING),
        (order[2], True, JobState.RUNNING),
        (order[0], False, JobState.SUCCEEDED),
        (order[3], False, JobState.DEAD),
    ]
    assert [link.if_fails for link in links] == [RUN] * 4
    assert CANCEL not in {link.if_fails for link in links}
