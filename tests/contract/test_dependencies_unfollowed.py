"""Parents that have ended, and whose release has not been followed to its end: nobody counts them twice, or not at all."""

import pytest

from drumbeat.core.dependencies import MAX_ADVANCED, IfParentFails
from drumbeat.core.job import JobState, OutcomeKind
from drumbeat.ids import JobId, new_job_id, new_job_ids
from drumbeat.store.job_reads import get_job
from drumbeat.store.protocol import Store
from tests.contract.graphs import CANCEL, RUN, WAIT, add_child, add_graph, edges, settle, state_of
from tests.contract.making import claim, claimed_one, end, exchange, ids, new_job, outcome, worker


async def half_released(store: Store, instance: str, kind: OutcomeKind = OutcomeKind.SUCCEEDED) -> JobId:
    """A parent that has ended, of whose children only the first thousand have heard of it; their ids lie far in the past, and
    all have another parent, so that they are not due."""
    parent, other = await claimed_one(store, instance), await claimed_one(store, instance)  # type: ignore[arg-type]
    children = [new_job(id=id, queue="many") for id in new_job_ids(MAX_ADVANCED + 500, 1_000_000_000)]
    links = [edge for child in children for edge in edges(child, parent.id, other.id, if_fails=RUN)]
    await add_graph(store, children, links)
    answer = await exchange(store, instance, [outcome(parent, kind)])  # type: ignore[arg-type]
    assert answer.is_releasing
    found = await store.inspect.get_jobs([children[0].id, children[-1].id])
    assert [found[child.id].open_parents for child in (children[0], children[-1])] == [1, 2]
    return parent.id


@pytest.mark.parametrize("child", ["before", "after"])
@pytest.mark.parametrize("kind", [OutcomeKind.SUCCEEDED, OutcomeKind.DEAD])
async def test_a_child_that_is_added_meanwhile_counts_its_parent_once(
    store: Store, child: str, kind: OutcomeKind
) -> None:
    """Its id lies before those that have heard of the end, or after all."""
    instance = await worker(store)
    parent, live = await half_released(store, instance, kind), await claimed_one(store, instance)
    id = new_job_id(1_000_000) if child == "before" else new_job_id()
    await add_child(store, parent, live.id, if_fails=RUN, id=id)
    await settle(store)
    assert (await get_job(store, id)).open_parents == 1
    assert await store.dependencies.find_miscounted(10_000) == []
    await end(store, instance, live, OutcomeKind.SUCCEEDED)
    assert ids(await claim(store, instance)) == [id]


@pytest.mark.parametrize("child", ["before", "after"])
async def test_a_child_of_a_failed_parent_is_cancelled(store: Store, child: str) -> None:
    instance = await worker(store)
    parent, live = await half_released(store, instance, OutcomeKind.DEAD), await claimed_one(store, instance)
    id = new_job_id(1_000_000) if child == "before" else new_job_id()
    await add_child(store, parent, live.id, if_fails=CANCEL, id=id)
    await settle(store)
    assert await state_of(store, id) is JobState.CANCELLED
    await store.jobs.replay([parent])
    await settle(store)
    assert (await get_job(store, id)).open_parents == 2


@pytest.mark.parametrize("child", ["before", "after"])
@pytest.mark.parametrize("policy", [CANCEL, RUN, WAIT])
async def test_a_death_before_a_replay_is_not_that_of_a_child_added_behind_it(
    store: Store, child: str, policy: IfParentFails
) -> None:
    """It was never cancelled: it is in its first life."""
    instance = await worker(store)
    parent, live = await half_released(store, instance, OutcomeKind.DEAD), await claimed_one(store, instance)
    await store.jobs.replay([parent])
    id = new_job_id(1_000_000) if child == "before" else new_job_id()
    await add_child(store, parent, live.id, if_fails=policy, id=id)
    await settle(store)
    found = await get_job(store, id)
    assert (found.state, found.open_parents, found.replays) == (JobState.PENDING, 2, 0)
    assert await store.dependencies.find_miscounted(10_000) == []


async def test_a_replay_before_the_death_is_followed_counts_the_death_once(store: Store) -> None:
    instance = await worker(store)
    parent, live = await half_released(store, instance, OutcomeKind.DEAD), await claimed_one(store, instance)
    runs, cancelled = [await add_child(store, parent, live.id, if_fails=policy) for policy in (RUN, CANCEL)]
    await store.jobs.replay([parent])
    await settle(store)
    assert [(await get_job(store, id)).open_parents for id in (runs, cancelled)] == [1, 2]
    [again] = await claim(store, instance)
    await end(store, instance, again, OutcomeKind.SUCCEEDED)
    await settle(store)
    assert [(await get_job(store, id)).open_parents for id in (runs, cancelled)] == [1, 1]
    assert await store.dependencies.find_miscounted(10_000) == []


async def test_a_parent_that_ended_behind_the_replay_of_another_counts_once(store: Store) -> None:
    """The release of the replay waits behind a long one, and so does that of the end."""
    instance = await worker(store)
    dies, ends, live = [await claimed_one(store, instance) for _ in range(3)]
    child = await add_child(store, dies.id, ends.id, live.id)
    await end(store, instance, dies, OutcomeKind.DEAD)
    await settle(store)
    await half_released(store, instance)
    await store.jobs.replay([dies.id])
    await end(store, instance, ends, OutcomeKind.SUCCEEDED)
    await settle(store)
    assert (await get_job(store, child)).open_parents == 2
    assert await store.dependencies.find_miscounted(10_000) == []


async def test_the_rest_of_one_release_and_the_begin_of_the_next_are_one_step(store: Store) -> None:
    """The parent with the larger id has ended first; all have the same children."""
    instance = await worker(store)
    parents = [await claimed_one(store, instance) for _ in range(3)]
    children = [new_job(queue="many") for _ in range(MAX_ADVANCED + 500)]
    links = [edge for child in children for edge in edges(child, *ids(parents), if_fails=RUN)]
    await add_graph(store, children, links)
    for parent in (parents[2], parents[0]):
        assert (await exchange(store, instance, [outcome(parent, OutcomeKind.SUCCEEDED)])).is_releasing
    await settle(store)
    found = [await store.inspect.get_jobs(ids(some)) for some in (children[:1_000], children[1_000:])]
    assert [{job.open_parents for job in some.values()} for some in found] == [{1}, {1}]
