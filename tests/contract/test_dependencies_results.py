"""What a child gets of its parents, kept for it whatever becomes of their history; and who waits for whom."""

import pytest

from drumbeat.core.dependencies import Binding, NewEdge, ParentLink, ParentResult
from drumbeat.core.job import JobState, OutcomeKind
from drumbeat.ids import JobId, new_job_id
from drumbeat.store.job_reads import get_job
from drumbeat.store.protocol import Store
from drumbeat.store.protocol.dependencies import MAX_BOUND_PARENTS
from tests.contract.cases.ends import ENDS
from tests.contract.graphs import CANCEL, RUN, WAIT, add_child, add_graph, bind, edges, settle
from tests.contract.making import BOOM, HOUR, add, claim, claimed_one, end, exchange, ids, new_job, outcome, worker

ODD = '{"text":"ä \\" \\\\ 😀","n":12345678901234567890}'


async def results(store: Store, child: JobId) -> list[ParentResult]:
    return (await store.dependencies.load_results([child])).get(child, [])


@pytest.mark.parametrize("is_late", [False, True], ids=["before", "after"])
async def test_results_come_in_the_order_of_the_parents(store: Store, is_late: bool) -> None:
    """Whether the child was added before or after they ended."""
    instance = await worker(store)
    jobs = [await claimed_one(store, instance, task=task) for task in ("a", "b", "c")]
    child = new_job()
    links = [
        bind(child, jobs[2].id, "x y"),
        NewEdge(jobs[0].id, child.id),
        bind(child, jobs[1].id, "z", Binding.OUTCOME),
    ]
    if not is_late:
        await add_graph(store, [child], links)
    for job in jobs:
        await end(store, instance, job, OutcomeKind.SUCCEEDED, result=ODD)
    if is_late:
        await add_graph(store, [child], links)
    assert await results(store, child.id) == [
        ParentResult(
            parent=jobs[at].id,
            task=task,
            binding=binding,
            argument=argument,
            place=place,
            state=JobState.SUCCEEDED,
            result=ODD,
        )
        for at, task, binding, argument, place in [
            (2, "c", Binding.RESULT, "x y", 0),
            (1, "b", Binding.OUTCOME, "z", 2),
        ]
    ]
    [claimed] = await claim(store, instance)
    assert (claimed.id, bool(claimed.binds)) == (child.id, True)


async def test_a_child_that_binds_nothing_has_no_entry(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    plain, binds = await add_child(store, job.id), new_job()
    await add_graph(store, [binds], [bind(binds, job.id)])
    await end(store, instance, job, OutcomeKind.SUCCEEDED, result="1")
    found = await store.dependencies.load_results([plain, new_job_id(), binds.id, job.id])
    assert found.keys() == {binds.id}
    assert {job.id: bool(job.binds) for job in await claim(store, instance)} == {plain: False, binds.id: True}
    assert await store.dependencies.load_results([]) == {}


@pytest.mark.parametrize("is_late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("way", list(ENDS))
async def test_an_outcome_says_how_the_parent_ended(store: Store, way: str, is_late: bool) -> None:
    ending = ENDS[way][0](store)
    parent = await anext(ending)
    child = new_job()
    if not is_late:
        await add_graph(store, [child], [bind(child, parent, "x", Binding.OUTCOME)])
    await anext(ending, None)
    if is_late:
        await add_graph(store, [child], [bind(child, parent, "x", Binding.OUTCOME)])
    await settle(store)
    [found] = await results(store, child.id)
    ended = await get_job(store, parent)
    assert (found.parent, found.task, found.state) == (parent, ended.task, ENDS[way][1])
    assert (found.result, found.result_error, found.error) == (ended.result, ended.result_error, ended.error)


async def test_a_result_that_could_not_be_kept_says_so(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    child = new_job()
    await add_graph(store, [child], [bind(child, job.id)])
    await end(store, instance, job, OutcomeKind.SUCCEEDED, result_error="too large")
    [found] = await results(store, child.id)
    assert (found.state, found.result, found.result_error) == (JobState.SUCCEEDED, None, "too large")


async def test_results_outlive_the_history_of_the_parents(store: Store) -> None:
    instance = await worker(store)
    good, bad = await claimed_one(store, instance), await claimed_one(store, instance)
    child, other = new_job(delay=HOUR), new_job(delay=HOUR)
    links = [bind(child, good.id), bind(child, bad.id, "y", Binding.OUTCOME)]
    await add_graph(store, [child], links)
    await end(store, instance, good, OutcomeKind.SUCCEEDED, result=ODD)
    await end(store, instance, bad, OutcomeKind.DEAD)
    await add_graph(store, [other], [bind(other, good.id, "z")])
    await store.jobs.discard([bad.id])
    before = await store.dependencies.load_results([child.id, other.id])
    assert [(each.result, each.error) for each in before[child.id]] == [(ODD, None), (None, BOOM)]
    assert await store.jobs.prune(await store.inspect.now() + 1, 10) == 2
    assert await store.inspect.get_jobs([good.id, bad.id]) == {}
    assert await store.dependencies.load_results([child.id, other.id]) == before


async def test_results_go_with_the_last_child_that_binds_them(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    first, second = new_job(queue="first"), new_job(queue="second")
    await add_graph(store, [first, second], [bind(first, job.id), bind(second, job.id)])
    await end(store, instance, job, OutcomeKind.SUCCEEDED, result="1")
    for queue, left in (("first", 1), ("second", 0)):
        [child] = await claim(store, instance, queue)
        await end(store, instance, child, OutcomeKind.SUCCEEDED)
        await store.jobs.prune(await store.inspect.now() + 1, 10)
        assert len(await results(store, second.id)) == left


async def test_a_child_that_runs_again_gets_the_same(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    child = new_job()
    await add_graph(store, [child], [bind(child, job.id)])
    await end(store, instance, job, OutcomeKind.SUCCEEDED, result="1")
    before = await results(store, child.id)
    for kind in (OutcomeKind.RETRY, OutcomeKind.DEAD, OutcomeKind.SUCCEEDED):
        [claimed] = await claim(store, instance)
        assert bool(claimed.binds)
        await end(store, instance, claimed, kind)
        await store.jobs.replay([child.id])
        assert await results(store, child.id) == before


async def test_the_result_of_a_replay_is_what_its_child_gets(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    child = new_job()
    await add_graph(store, [child], [NewEdge(job.id, child.id, WAIT, Binding.RESULT, "x")])
    await end(store, instance, job, OutcomeKind.DEAD)
    await store.jobs.replay([job.id])
    [again] = await claim(store, instance)
    await end(store, instance, again, OutcomeKind.SUCCEEDED, result="2")
    [found] = await results(store, child.id)
    assert (found.state, found.result, found.error) == (JobState.SUCCEEDED, "2", None)


async def test_results_of_many_parents_are_read_in_pages(store: Store) -> None:
    instance = await worker(store)
    parents = [new_job() for _ in range(MAX_BOUND_PARENTS + 500)]
    child, single = new_job(queue="last"), await claimed_one(store, instance)
    links = [bind(child, single.id, "one")]
    links += [bind(child, job.id, "all", Binding.RESULTS) for job in parents]
    await add_graph(store, [child, *parents], links)
    jobs = [single, *await claim(store, instance, limit=5_000)]
    places = {job.id: place for place, job in enumerate(parents, 1)}
    told = [outcome(job, OutcomeKind.SUCCEEDED, result=str(places.get(job.id, 0))) for job in jobs]
    for first in range(0, len(told), 500):
        await exchange(store, instance, told[first : first + 500])
    await settle(store)
    found = await results(store, child.id)
    assert [(each.argument, each.place, each.result) for each in found] == [("one", 0, "0"), ("all", 1, "1")]
    after, read = -1, list[ParentResult]()
    while page := await store.dependencies.page_results(child.id, "all", after, 700):
        assert len(page) <= 700
        read, after = read + page, page[-1].place
    assert [(each.parent, each.place, each.result) for each in read] == [
        (job.id, place, str(place)) for place, job in enumerate(parents, 1)
    ]
    assert await store.dependencies.page_results(child.id, "none", -1, 10) == []
    assert await store.dependencies.page_results(new_job_id(), "all", -1, 10) == []
    assert ids(await claim(store, instance, "last")) == [child.id]


async def test_every_id_has_its_parents_and_children(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance, task="extract")
    lonely, unknown = (await add(store, new_job(delay=HOUR)))[0], new_job_id()
    child = new_job(task="load")
    await add_graph(store, [child], [NewEdge(job.id, child.id, RUN, Binding.OUTCOME, "x")])
    facts = {"if_fails": RUN, "binding": Binding.OUTCOME, "argument": "x"}
    up = ParentLink(id=job.id, task="extract", state=JobState.RUNNING, is_open=True, **facts)  # type: ignore[arg-type]
    down = ParentLink(id=child.id, task="load", state=JobState.PENDING, is_open=True, **facts)  # type: ignore[arg-type]
    asked = [child.id, lonely, unknown, job.id]
    empty: dict[JobId, list[ParentLink]] = {id: [] for id in asked}
    assert await store.dependencies.list_parents(asked, 10) == empty | {child.id: [up]}
    assert await store.dependencies.list_children(asked, 10) == empty | {job.id: [down]}
    await end(store, instance, job, OutcomeKind.SUCCEEDED)
    [link] = (await store.dependencies.list_children([job.id], 10))[job.id]
    assert not link.is_open
    await store.jobs.prune(await store.inspect.now() + 1, 10)
    [link] = (await store.dependencies.list_parents([child.id], 10))[child.id]
    assert (link.id, link.task, link.state, link.is_open) == (job.id, "", None, False)


async def test_links_are_bounded_and_open_parents_come_first(store: Store) -> None:
    instance = await worker(store)
    jobs = [await claimed_one(store, instance) for _ in range(6)]
    child = await add_child(store, *ids(jobs))
    for job in jobs[:4]:
        await end(store, instance, job, OutcomeKind.SUCCEEDED)
    order = ids([*jobs[4:], *jobs[:4]])
    assert [link.id for link in (await store.dependencies.list_parents([child], 10))[child]] == order
    assert [link.id for link in (await store.dependencies.list_parents([child], 3))[child]] == order[:3]
    more = [await add_child(store, jobs[5].id, if_fails=CANCEL) for _ in range(3)]
    found = (await store.dependencies.list_children([jobs[5].id], 3))[jobs[5].id]
    assert [link.id for link in found] == sorted([child, *more])[:3]
    assert len(edges(new_job(), *order)) == 6
