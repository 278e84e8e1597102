"""However a parent ends, its children hear of it once: they are due, cancelled, or wait on, as the rules say."""

from itertools import pairwise

import pytest

from drumbeat.core.dependencies import BLOCKED_ON_PARENTS, MAX_ADVANCED, IfParentFails, judge_edge, parent_event
from drumbeat.core.job import JobState, OutcomeKind
from drumbeat.core.job_query import JobFilter
from drumbeat.durations import to_us
from drumbeat.store.job_reads import find_jobs, get_job
from drumbeat.store.protocol import Store
from drumbeat.store.protocol.wake import Subscriber
from tests.conftest import OpenAgain
from tests.contract.cases.ends import ENDS, discarded
from tests.contract.graphs import (
    CANCELS,
    MET,
    RUN,
    WAIT,
    add_chain,
    add_child,
    add_graph,
    edges,
    failure_by,
    settle,
    standing,
    state_of,
    states,
)
from tests.contract.making import (
    HOUR,
    add,
    claim,
    claimed_one,
    end,
    exchange,
    hold,
    ids,
    new_job,
    outcome,
    wanting,
    worker,
)
from tests.waiting import until

way = pytest.mark.parametrize("way", list(ENDS))


@way
async def test_children_become_what_their_policy_says(store: Store, way: str) -> None:
    """Without a further call: who ends a parent follows its edges."""
    steps, state = ENDS[way]
    ending = steps(store)
    parent = await anext(ending)
    children = {policy: await add_child(store, parent, if_fails=policy) for policy in IfParentFails}
    [before] = await find_jobs(store, JobFilter(id=children[WAIT]))
    assert (before.state, before.blocked_on, before.open_parents) == (JobState.PENDING, BLOCKED_ON_PARENTS, 1)
    await anext(ending, None)
    ended = await get_job(store, parent)
    assert ended.state is state
    is_letter = bool(await find_jobs(store, JobFilter(id=parent, dead_letters=True)))
    for policy, id in children.items():
        child = await get_job(store, id)
        expected = judge_edge(policy, 0, state, 0, is_letter=is_letter)
        assert standing(child) is expected, policy
        if expected is CANCELS:
            event = parent_event(state, is_letter=is_letter)
            # The letter's own death came first.
            events = [event] if steps is not discarded or policy is WAIT else [parent_event(state, is_letter=True)]
            assert child.error == await failure_by(store, parent, *events)
            assert child.started_at is None and child.finished_at is not None
        if expected is MET:
            assert child.state is JobState.PENDING and child.open_parents == 0
    assert not await store.dependencies.advance()
    assert await store.dependencies.find_miscounted() == []
    assert sorted(job.id for job in await claim(store, await worker(store))) == sorted(
        id for policy, id in children.items() if judge_edge(policy, 0, state, 0, is_letter=is_letter) is MET
    )


@pytest.mark.parametrize("way", [name for name, (steps, _) in ENDS.items() if steps is not discarded])
async def test_idle_workers_hear_of_children_that_are_due(store: Store, open_again: OpenAgain, way: str) -> None:
    ending = ENDS[way][0](store)
    parent = await anext(ending)
    child = await add_child(store, parent, if_fails=RUN)
    other, heard = await open_again(), list[int]()
    async with other.wake.listen(Subscriber(heard.append)) as address:
        listener = await worker(other, wake=address)
        await until_quiet(store, other, heard)
        await anext(ending, None)
        now = await store.inspect.now()
        await until(lambda: any(each <= now for each in heard), deadline=5, what="a hint that the child is due")
        assert ids(await claim(other, listener)) == [child]


async def until_quiet(store: Store, other: Store, heard: list[int]) -> None:
    """Hints of what was done before have come: they are sent in order."""
    far = await store.inspect.now() + 1_000 * HOUR
    await add(store, new_job(queue="far", run_at=far))
    await until(lambda: far in heard or any(each <= far for each in heard), what="the hint of a far job")
    heard.clear()


async def test_a_child_is_claimed_in_the_call_that_ends_its_parent(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    child = await add_child(store, job.id)
    answer = await exchange(store, instance, [outcome(job, OutcomeKind.SUCCEEDED)], wanting())
    assert (ids(answer.jobs), answer.is_releasing) == ([child], False)


async def test_a_chain_runs_in_one_exchange_after_the_other(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    chain = await add_chain(store, job.id, 5)
    ran = []
    for _ in chain:
        [job] = (await exchange(store, instance, [outcome(job, OutcomeKind.SUCCEEDED)], wanting())).jobs
        ran.append(job.id)
    assert ran == chain


async def test_a_child_waits_for_the_last_of_its_parents(store: Store) -> None:
    instance = await worker(store)
    parents = [await claimed_one(store, instance) for _ in range(5)]
    child = await add_child(store, *ids(parents))
    for left, job in reversed([*enumerate(parents)]):
        assert (await get_job(store, child)).open_parents == left + 1
        assert await claim(store, instance) == []
        await end(store, instance, job, OutcomeKind.SUCCEEDED)
    [claimed] = await claim(store, instance)
    assert (claimed.id, claimed.has_run, claimed.binds) == (child, False, False)
    assert (await get_job(store, child)).blocked_on is None


async def test_parents_that_end_in_one_call_are_all_counted(store: Store) -> None:
    instance = await worker(store)
    parents = [await claimed_one(store, instance) for _ in range(40)]
    child = await add_child(store, *ids(parents))
    answer = await exchange(store, instance, [outcome(job, OutcomeKind.SUCCEEDED) for job in parents], wanting())
    assert ids(answer.jobs) == [child]


async def test_of_parents_that_end_in_one_call_the_failed_ones_cancel(store: Store) -> None:
    instance = await worker(store)
    good, bad = [await claimed_one(store, instance) for _ in range(2)]
    cancelled, run = await add_child(store, good.id, bad.id), await add_child(store, good.id, bad.id, if_fails=RUN)
    told = [outcome(good, OutcomeKind.SUCCEEDED), outcome(bad, OutcomeKind.DEAD)]
    assert ids((await exchange(store, instance, told, wanting())).jobs) == [run]
    assert await states(store, cancelled) == [JobState.CANCELLED]


async def test_a_child_is_due_when_its_last_parent_has_ended_and_not_before_its_own_time(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    late = await store.inspect.now() + HOUR
    old = await add_child(store, job.id, run_at=1_000_000)
    future = await add_child(store, job.id, run_at=late)
    before = await store.inspect.now()
    await end(store, instance, job, OutcomeKind.SUCCEEDED)
    after = await store.inspect.now()
    assert before <= to_us((await get_job(store, old)).run_at) <= after
    found = await get_job(store, future)
    assert (to_us(found.run_at), found.blocked_on, found.open_parents) == (late, None, 0)
    answer = await exchange(store, instance, [], wanting())
    assert ids(answer.jobs) == [old]
    assert answer.next_due_at == late


async def test_children_of_all_queues_and_priorities_are_claimed_as_other_jobs(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance, queue="first")
    low, high = [await add_child(store, job.id, priority=priority) for priority in (9, 0)]
    elsewhere = await add_child(store, job.id, queue="other")
    [plain] = await add(store, new_job(priority=5))
    await end(store, instance, job, OutcomeKind.SUCCEEDED)
    assert ids(await claim(store, instance)) == [high, plain, low]
    assert ids(await claim(store, instance, "other")) == [elsewhere]


async def test_nobody_makes_a_child_due_that_waits_for_parents(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    child = await add_child(store, job.id)
    assert await store.jobs.run_now([child]) == 0
    assert await claim(store, instance, wants=[BLOCKED_ON_PARENTS[:3], "task:greet"]) == []
    assert await store.jobs.expire_blocked("version:", await store.inspect.now() + HOUR, 10) == 0
    assert (await get_job(store, child)).open_parents == 1


async def test_a_waiting_child_that_is_cancelled_is_left_alone(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    child, below = await add_chain(store, job.id, 2)
    await store.jobs.cancel([child])
    assert await states(store, child, below) == [JobState.CANCELLED] * 2
    seen = await get_job(store, child)
    assert seen.error is None or seen.error.type != "ParentFailed"
    await end(store, instance, job, OutcomeKind.DEAD)
    assert await get_job(store, child) == seen
    assert await claim(store, instance) == []


async def test_a_waiting_child_expires_and_its_children_hear_of_it(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    child = await add_child(store, job.id, expires_at=1_000_000)
    cancelled, run = await add_child(store, child), await add_child(store, child, if_fails=RUN)
    assert await store.jobs.expire(10) == 1
    assert await states(store, child, cancelled) == [JobState.EXPIRED, JobState.CANCELLED]
    assert ids(await claim(store, instance)) == [run]
    await end(store, instance, job, OutcomeKind.SUCCEEDED)
    assert await state_of(store, child) is JobState.EXPIRED


async def test_runs_that_do_not_end_a_parent_release_nobody(store: Store) -> None:
    instance = await worker(store)
    [id] = await add(store, new_job(crash_limit=5))
    child = await add_child(store, id, if_fails=RUN)
    for kind in (OutcomeKind.RETRY, OutcomeKind.CRASHED, OutcomeKind.SNOOZED, OutcomeKind.RELEASED):
        await store.jobs.run_now([id])
        [job] = await claim(store, instance)
        await end(store, instance, job, kind)
        assert (job.id, (await get_job(store, child)).open_parents) == (id, 1), kind
    await store.jobs.run_now([id])
    await claim(store, instance)
    await store.instances.declare_dead(instance, beat=None, started=None, reason="silent")
    assert (await get_job(store, child)).open_parents == 1
    assert not await store.dependencies.advance()


@pytest.mark.parametrize("late", [OutcomeKind.SUCCEEDED, OutcomeKind.DEAD])
async def test_a_late_outcome_of_a_parent_counts_nothing(store: Store, late: OutcomeKind) -> None:
    """The duplicate of an answer that was lost, and what a zombie reports: the child has another parent, and waits for it."""
    instance, heir = await worker(store), await worker(store)
    job, other = await claimed_one(store, instance), await claimed_one(store, heir)
    child = await add_child(store, job.id, other.id, if_fails=RUN)
    await store.instances.declare_dead(instance, beat=None, started=[hold(job)], reason="silent")
    assert await end(store, instance, job, late) == "stale"
    assert (await get_job(store, child)).open_parents == 2
    [again] = await claim(store, heir)
    assert await end(store, heir, again, late) == "applied"
    for _ in range(3):
        assert await end(store, heir, again, late) == "duplicate"
    assert await end(store, instance, job, late) == "stale"
    assert (await get_job(store, child)).open_parents == 1
    assert await claim(store, heir) == []


async def test_the_late_outcomes_of_a_child_count_nothing_for_its_own(store: Store) -> None:
    instance = await worker(store)
    root, other = await claimed_one(store, instance), await claimed_one(store, instance)
    child = await add_child(store, root.id)
    below = await add_child(store, child, other.id)
    [job] = (await exchange(store, instance, [outcome(root, OutcomeKind.SUCCEEDED)], wanting())).jobs
    for status in ("applied", "duplicate", "duplicate"):
        assert await end(store, instance, job, OutcomeKind.SUCCEEDED) == status
    assert await end(store, instance, job, OutcomeKind.DEAD) == "stale"
    assert (await get_job(store, below)).open_parents == 1


async def test_on_dead_is_not_for_children_that_a_parent_cancels(store: Store) -> None:
    """Nobody need decide about them: that is asked of the parent."""
    instance = await worker(store)
    parent = await claimed_one(store, instance)
    child = await add_child(store, parent.id, on_dead="ask", key="k")
    late = await end(store, instance, parent, OutcomeKind.DEAD)
    await settle(store)
    assert (late, await state_of(store, child)) == ("applied", JobState.CANCELLED)
    assert await state_of(store, await add_child(store, parent.id, on_dead="ask")) is JobState.CANCELLED
    assert await claim(store, instance) == []


async def test_a_long_chain_is_cancelled_in_steps(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    chain = await add_chain(store, job.id, MAX_ADVANCED + 200)
    answer = await exchange(store, instance, [outcome(job, OutcomeKind.DEAD)])
    assert answer.is_releasing
    assert await states(store, chain[0], chain[-1]) == [JobState.CANCELLED, JobState.PENDING]
    await settle(store)
    assert (await store.inspect.count_jobs(JobFilter())).cancelled == len(chain)


async def test_a_cascade_of_ten_thousand_is_cancelled_in_steps(store: Store) -> None:
    """A thousand chains of ten."""
    instance = await worker(store)
    job = await claimed_one(store, instance)
    layers = [[new_job() for _ in range(1_000)] for _ in range(10)]
    links = [edge for child in layers[0] for edge in edges(child, job.id)]
    for above, below in pairwise(layers):
        links += [edge for parent, child in zip(above, below, strict=True) for edge in edges(child, parent)]
    await add_graph(store, [child for layer in layers for child in layer], links)
    answer = await exchange(store, instance, [outcome(job, OutcomeKind.DEAD)])
    assert answer.is_releasing
    assert await states(store, layers[0][0].id, layers[-1][-1].id) == [JobState.CANCELLED, JobState.PENDING]
    await settle(store)
    counts = await store.inspect.count_jobs(JobFilter())
    assert (counts.cancelled, counts.total) == (10_000, 10_001)


async def test_many_children_are_released_in_steps(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    children = [new_job() for _ in range(2_500)]
    await add_graph(store, children, [edge for child in children for edge in edges(child, job.id)])
    answer = await exchange(store, instance, [outcome(job, OutcomeKind.SUCCEEDED)], wanting(limit=5_000))
    assert (len(answer.jobs), answer.is_releasing) == (1_000, True)
    assert await store.dependencies.advance()
    assert not await store.dependencies.advance()
    rest = await claim(store, instance, limit=5_000)
    assert sorted([*ids(answer.jobs), *ids(rest)]) == sorted(ids(children))


async def test_a_person_cancels_a_long_chain_in_one_call(store: Store) -> None:
    [first] = await add(store, new_job())
    chain = await add_chain(store, first, 500)
    await store.jobs.cancel([first])
    assert (await store.inspect.count_jobs(JobFilter())).cancelled == len(chain) + 1
    assert not await store.dependencies.advance()
