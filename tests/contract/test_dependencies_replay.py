"""The replay of a dead letter: exactly the children that its death cancelled wait again; what has run does not run again."""

from drumbeat.core.dependencies import WORKFLOW_CANCELLED
from drumbeat.core.job import CancelAnswer, JobState, OutcomeKind, ReplayResult, Unique
from drumbeat.durations import to_us
from drumbeat.ids import InstanceId, JobId, new_job_id
from drumbeat.store.job_reads import get_job
from drumbeat.store.protocol import Store
from tests.contract.graphs import (
    RUN,
    WAIT,
    add_chain,
    add_child,
    add_graph,
    edges,
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

CANCELLED, PENDING, SUCCEEDED = JobState.CANCELLED, JobState.PENDING, JobState.SUCCEEDED


async def replay(store: Store, *letters: JobId) -> None:
    assert await store.jobs.replay(letters) == [ReplayResult(id, True) for id in letters]
    await settle(store)


async def run_next(store: Store, instance: InstanceId, id: JobId, kind: OutcomeKind = OutcomeKind.SUCCEEDED) -> None:
    """It is the only one that is due."""
    [job] = await claim(store, instance)
    assert job.id == id
    await end(store, instance, job, kind)
    await settle(store)


async def test_a_child_that_was_cancelled_waits_again_and_runs(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    child = await add_child(store, job.id, run_at=1_000_000, expires_at=4_000_000_000_000_000, key="k")
    made = await get_job(store, child)
    for deaths in (1, 2):
        if deaths == 2:
            [job] = await claim(store, instance)
        await end(store, instance, job, OutcomeKind.DEAD)
        await settle(store)
        assert await state_of(store, child) is CANCELLED
        await replay(store, job.id)
        found = await get_job(store, child)
        assert (found.state, found.blocked_on, found.open_parents) == (PENDING, "parents", 1)
        assert (found.replays, found.failures, found.crashes) == (deaths, 0, 0)
        assert (found.key, found.args, found.created_at, found.expires_at) == (
            made.key,
            made.args,
            made.created_at,
            made.expires_at,
        )
        assert found.finished_at is None
    before = await store.inspect.now()
    await run_next(store, instance, job.id)
    found = await get_job(store, child)
    assert to_us(found.run_at) >= before and found.open_parents == 0
    [again] = await claim(store, instance)
    assert (again.id, again.replays) == (child, 2)
    await end(store, instance, again, OutcomeKind.SUCCEEDED)
    assert await state_of(store, child) is SUCCEEDED
    assert await store.dependencies.find_miscounted() == []


async def test_a_child_that_was_added_to_a_dead_letter_waits_again(store: Store) -> None:
    instance = await worker(store)
    letter = await dead_letter(store, instance)
    child = await add_child(store, letter.id)
    assert await state_of(store, child) is CANCELLED
    await replay(store, letter.id)
    assert (await get_job(store, child)).open_parents == 1
    await run_next(store, instance, letter.id)
    await run_next(store, instance, child)


async def test_a_whole_cascade_waits_again_and_runs_in_order(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    chain = await add_chain(store, job.id, 5)
    await end(store, instance, job, OutcomeKind.DEAD)
    await settle(store)
    assert set(await states(store, *chain)) == {CANCELLED}
    await replay(store, job.id)
    assert [(await get_job(store, id)).open_parents for id in chain] == [1] * 5
    for id in (job.id, *chain):
        await run_next(store, instance, id)
    assert await claim(store, instance) == []


async def test_one_that_would_wait_for_a_replay_is_cancelled_with_its_parent_and_waits_again_with_it(
    store: Store,
) -> None:
    """A cancelled parent cannot be replayed by itself, so its child is cancelled; it lives again when its own parent does."""
    instance = await worker(store)
    job = await claimed_one(store, instance)
    parent = await add_child(store, job.id)
    before = await add_child(store, parent, if_fails=WAIT)
    await end(store, instance, job, OutcomeKind.DEAD)
    await settle(store)
    later = await add_child(store, parent, if_fails=WAIT)
    assert await states(store, parent, before, later) == [CANCELLED] * 3
    await replay(store, job.id)
    assert [(await get_job(store, id)).open_parents for id in (parent, before, later)] == [1] * 3
    await run_next(store, instance, job.id)
    await run_next(store, instance, parent)
    assert ids(await claim(store, instance)) == sorted([before, later])


async def test_a_long_cascade_waits_again_in_steps(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    chain = await add_chain(store, job.id, 500)
    await end(store, instance, job, OutcomeKind.DEAD)
    await settle(store)
    await replay(store, job.id)
    assert set(await states(store, chain[0], chain[250], chain[-1])) == {PENDING}
    assert await store.dependencies.find_miscounted(5_000) == []


async def test_a_child_that_a_person_cancelled_stays_cancelled(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    before, below = await add_chain(store, job.id, 2)
    other = await add_child(store, job.id)
    await store.jobs.cancel([before])
    await end(store, instance, job, OutcomeKind.DEAD)
    await settle(store)
    await replay(store, job.id)
    assert await states(store, before, below, other) == [CANCELLED, CANCELLED, PENDING]
    await run_next(store, instance, job.id)
    await run_next(store, instance, other)


async def test_a_revived_child_that_a_person_cancels_stays_cancelled(store: Store) -> None:
    """Its record of the first death is no longer about it."""
    instance = await worker(store)
    job = await claimed_one(store, instance)
    child = await add_child(store, job.id)
    await end(store, instance, job, OutcomeKind.DEAD)
    await replay(store, job.id)
    await store.jobs.cancel([child])
    await run_next(store, instance, job.id, OutcomeKind.DEAD)
    await replay(store, job.id)
    assert await state_of(store, child) is CANCELLED


async def test_a_child_that_another_parent_cancelled_stays_cancelled(store: Store) -> None:
    """Until that one is replayed."""
    instance = await worker(store)
    first, second = await claimed_one(store, instance), await claimed_one(store, instance)
    child = await add_child(store, first.id, second.id)
    await end(store, instance, first, OutcomeKind.DEAD)
    await end(store, instance, second, OutcomeKind.DEAD)
    await replay(store, second.id)
    assert await state_of(store, child) is CANCELLED
    await replay(store, first.id)
    assert (await get_job(store, child)).open_parents == 2


async def test_a_child_that_another_dead_parent_still_cancels_stays_cancelled(store: Store) -> None:
    instance = await worker(store)
    first, second = await claimed_one(store, instance), await claimed_one(store, instance)
    child = await add_child(store, first.id, second.id)
    await end(store, instance, first, OutcomeKind.DEAD)
    await end(store, instance, second, OutcomeKind.DEAD)
    await replay(store, first.id)
    assert await state_of(store, child) is CANCELLED


async def test_two_dead_parents_that_are_replayed_at_once_revive_their_child(store: Store) -> None:
    instance = await worker(store)
    first, second = await claimed_one(store, instance), await claimed_one(store, instance)
    child = await add_child(store, first.id, second.id)
    await end(store, instance, first, OutcomeKind.DEAD)
    await end(store, instance, second, OutcomeKind.DEAD)
    await replay(store, second.id, first.id)
    found = await get_job(store, child)
    assert (found.state, found.open_parents) == (PENDING, 2)


async def test_a_child_whose_key_is_held_stays_cancelled(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    child = await add_child(store, job.id, key="k", unique=Unique.LIVE)
    below, other = await add_child(store, child), await add_child(store, job.id)
    await end(store, instance, job, OutcomeKind.DEAD)
    await settle(store)
    [holder] = await add(store, new_job(key="k", unique=Unique.LIVE, delay=HOUR))
    await replay(store, job.id)
    assert await states(store, child, below, other, holder) == [CANCELLED, CANCELLED, PENDING, PENDING]
    await run_next(store, instance, job.id)
    await run_next(store, instance, other)


async def test_a_revived_child_holds_its_key_again(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    child = await add_child(store, job.id, key="k", unique=Unique.LIVE)
    await end(store, instance, job, OutcomeKind.DEAD)
    await replay(store, job.id)
    [answer] = await store.jobs.add([new_job(key="k", unique=Unique.LIVE)])
    assert (answer.id, answer.created) == (child, False)


async def test_of_two_cancelled_children_of_one_key_one_comes_back(store: Store) -> None:
    instance = await worker(store)
    letter = await dead_letter(store, instance)
    pair = [await add_child(store, letter.id, key="k", unique=Unique.LIVE) for _ in range(2)]
    await replay(store, letter.id)
    assert sorted(await states(store, *pair)) == [CANCELLED, PENDING]


async def test_run_is_met_once_over_deaths_and_replays(store: Store) -> None:
    """The other parent keeps the child waiting, so that a second count would be seen."""
    instance = await worker(store)
    job, other = await claimed_one(store, instance), await claimed_one(store, instance)
    child = await add_child(store, job.id, other.id, if_fails=RUN)
    await end(store, instance, job, OutcomeKind.DEAD)
    for kind in (OutcomeKind.DEAD, OutcomeKind.DEAD, OutcomeKind.SUCCEEDED):
        await replay(store, job.id)
        assert (await get_job(store, child)).open_parents == 1
        await run_next(store, instance, job.id, kind)
    assert (await get_job(store, child)).open_parents == 1
    await end(store, instance, other, OutcomeKind.SUCCEEDED)
    await run_next(store, instance, child)
    assert await claim(store, instance) == []


async def test_what_has_run_does_not_run_again(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    [cancelled] = await add_chain(store, job.id, 1)
    runs, below = await add_child(store, job.id, if_fails=RUN), await add_child(store, cancelled, if_fails=RUN)
    await end(store, instance, job, OutcomeKind.DEAD)
    await settle(store)
    jobs = await claim(store, instance)
    assert sorted(ids(jobs)) == sorted([runs, below])
    await exchange(store, instance, [outcome(each, OutcomeKind.SUCCEEDED) for each in jobs])
    await replay(store, job.id)
    await run_next(store, instance, job.id)
    await run_next(store, instance, cancelled)
    assert await claim(store, instance) == []
    assert [(await get_job(store, id)).replays for id in (runs, below)] == [0, 0]


async def test_a_child_that_waits_for_the_replay_waits_through_every_death(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    child = await add_child(store, job.id, if_fails=WAIT)
    await end(store, instance, job, OutcomeKind.DEAD)
    for kind in (OutcomeKind.DEAD, OutcomeKind.SUCCEEDED):
        assert (await get_job(store, child)).open_parents == 1
        await replay(store, job.id)
        assert (await get_job(store, child)).open_parents == 1
        await run_next(store, instance, job.id, kind)
    [again] = await claim(store, instance)
    assert (again.id, again.replays) == (child, 0)


async def test_parents_that_ended_meanwhile_are_judged_anew(store: Store) -> None:
    instance = await worker(store)
    pruned, dies, good, live = [await claimed_one(store, instance) for _ in range(4)]
    child = await add_child(store, pruned.id, dies.id, good.id, live.id)
    await end(store, instance, pruned, OutcomeKind.SUCCEEDED)
    moment = await store.inspect.now() + 1
    await end(store, instance, dies, OutcomeKind.DEAD)
    await settle(store)
    await end(store, instance, good, OutcomeKind.SUCCEEDED)
    await store.jobs.prune(moment, 1)
    assert set(await store.inspect.get_jobs([child, pruned.id])) == {child}
    await replay(store, dies.id)
    assert (await get_job(store, child)).open_parents == 2
    for job in (live, *await claim(store, instance)):
        await end(store, instance, job, OutcomeKind.SUCCEEDED)
    await run_next(store, instance, child)


async def test_a_replay_does_not_need_the_children_that_were_pruned(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    child, below = await add_chain(store, job.id, 2)
    await end(store, instance, job, OutcomeKind.DEAD)
    await settle(store)
    assert await store.jobs.prune(await store.inspect.now() + 1, 10) == 2
    await replay(store, job.id)
    assert await store.inspect.get_jobs([child, below]) == {}
    await run_next(store, instance, job.id)
    assert await claim(store, instance) == []


async def test_a_replay_that_is_refused_revives_nobody(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance, key="k", unique=Unique.LIVE)
    child = await add_child(store, job.id)
    await end(store, instance, job, OutcomeKind.DEAD)
    [holder] = await add(store, new_job(key="k", unique=Unique.LIVE))
    other = new_job_id()
    assert await store.jobs.replay([job.id, other]) == [
        ReplayResult(job.id, False, holder),
        ReplayResult(other, False),
    ]
    await settle(store)
    assert await state_of(store, child) is CANCELLED


async def test_a_discarded_parent_revives_nobody(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    child, waits = await add_child(store, job.id), await add_child(store, job.id, if_fails=WAIT)
    await end(store, instance, job, OutcomeKind.DEAD)
    await store.jobs.discard([job.id])
    assert await states(store, child, waits) == [CANCELLED] * 2
    assert await store.jobs.replay([job.id]) == [ReplayResult(job.id, False)]
    await settle(store)
    assert await states(store, child, waits) == [CANCELLED] * 2


async def test_a_revived_child_of_a_cancelled_workflow_does_not_run(store: Store) -> None:
    instance = await worker(store)
    workflow = new_workflow()
    root, child = new_job(workflow=workflow.id), new_job(workflow=workflow.id)
    await add_graph(store, [root, child], edges(child, root), workflow=workflow)
    [job] = await claim(store, instance)
    await end(store, instance, job, OutcomeKind.DEAD)
    assert await store.workflows.mark_cancelled(workflow.id)
    await replay(store, root.id)
    [job] = await claim(store, instance)
    answer = await exchange(store, instance, [outcome(job, OutcomeKind.SUCCEEDED)], wanting())
    assert answer.jobs == []
    found = await get_job(store, child.id)
    assert found.state is CANCELLED
    assert found.error is not None and found.error.type in {WORKFLOW_CANCELLED.type, "ParentFailed"}


async def test_no_child_of_a_cancelled_workflow_waits_again(store: Store) -> None:
    """It would wait for nothing: also while another parent, outside of the workflow, has not ended."""
    instance = await worker(store)
    workflow = new_workflow()
    root, child = new_job(workflow=workflow.id), new_job(workflow=workflow.id)
    [outside] = await add(store, new_job(delay=HOUR))
    await add_graph(store, [root, child], edges(child, root, outside), workflow=workflow)
    [job] = await claim(store, instance)
    await end(store, instance, job, OutcomeKind.DEAD)
    await settle(store)
    assert await store.workflows.mark_cancelled(workflow.id)
    await replay(store, root.id)
    found = await get_job(store, child.id)
    assert (found.state, found.replays) == (CANCELLED, 0)
    assert found.error is not None and found.error.type == "ParentFailed"


async def test_a_child_that_a_person_cancels_after_its_parents_failure_stays_cancelled(store: Store) -> None:
    """The answer says that it will never run."""
    instance = await worker(store)
    job = await claimed_one(store, instance)
    child, below = await add_chain(store, job.id, 2)
    other = await add_child(store, job.id)
    await end(store, instance, job, OutcomeKind.DEAD)
    await settle(store)
    assert await store.jobs.cancel([child]) == [CancelAnswer.CANCELLED]
    await replay(store, job.id)
    assert await states(store, child, below, other) == [CANCELLED, CANCELLED, PENDING]
