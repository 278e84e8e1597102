"""Which job enqueued which: kept with a job wherever it goes, and found by its parent without a scan."""

from drumbeat.admin.lineage import read_lineage
from drumbeat.core.job import JobState, OutcomeKind, PendingView
from drumbeat.core.job_query import JobFilter
from drumbeat.ids import JobId, new_job_id
from drumbeat.store.job_reads import get_job
from drumbeat.store.protocol import Store
from tests.contract.making import HOUR, add, claim, end, new_job, worker


async def children(store: Store, parent: JobId, **wanted: object) -> list[JobId]:
    return [job.id for job in (await store.inspect.find_page(JobFilter(parent=parent, **wanted))).items]  # type: ignore[arg-type]


async def test_a_job_keeps_its_parent_through_every_end_and_is_found_by_it(store: Store) -> None:
    instance, parent = await worker(store), new_job_id()
    kinds = (OutcomeKind.SUCCEEDED, OutcomeKind.CANCELLED, OutcomeKind.DEAD, OutcomeKind.RETRY)
    made = [
        (await add(store, new_job(parent=parent, key=key, queue="mail")))[0] for key in (None, "k", None, "k", None)
    ]
    await add(store, new_job(queue="mail"), new_job(queue="mail", parent=new_job_id()))
    claimed = {job.id: job for job in await claim(store, instance, "mail")}
    for id, kind in zip(made, kinds, strict=False):
        await end(store, instance, claimed[id], kind)
    assert [(await get_job(store, id)).parent for id in made] == [parent] * 5
    assert await children(store, parent) == sorted(made, reverse=True)
    assert await children(store, parent, state=JobState.DEAD) == [made[2]]
    assert await children(store, parent, key="k") == sorted([made[1], made[3]], reverse=True)
    assert await children(store, parent, view=PendingView.RETRYING) in ([], [made[3]])  # it may be due again
    counts = await store.inspect.count_jobs(JobFilter(parent=parent))
    assert (counts.total, counts.succeeded, counts.dead, counts.running) == (5, 1, 1, 1)
    await store.jobs.replay([made[2]])
    assert (await get_job(store, made[2])).parent == parent
    assert await children(store, made[0]) == []


async def test_many_children_are_found_page_by_page(store: Store) -> None:
    parent = new_job_id()
    made = await add(store, *(new_job(parent=parent, delay=HOUR) for _ in range(25)))
    await add(store, *(new_job(delay=HOUR) for _ in range(25)))
    found, before = list[JobId](), None
    while True:
        page = await store.inspect.find_page(JobFilter(parent=parent, limit=10, before=before))
        found += [job.id for job in page.items]
        if (before := page.next) is None:
            break
    assert found == sorted(made, reverse=True)


async def test_pruning_takes_the_children_that_have_ended(store: Store) -> None:
    instance, parent = await worker(store), new_job_id()
    await add(store, new_job(id=parent))
    ended, live = await add(store, new_job(parent=parent), new_job(parent=parent, delay=HOUR))
    for job in await claim(store, instance):
        await end(store, instance, job, OutcomeKind.SUCCEEDED)
    assert await children(store, parent) == [live, ended]
    await store.jobs.prune(await store.inspect.now() + 48 * HOUR, 1_000)
    assert ended not in await children(store, parent)
    lineage = await read_lineage(store, await get_job(store, live), before=None, limit=10)
    assert (lineage.ancestors, lineage.missing) == ([], parent)


async def test_a_lineage_has_the_ancestors_and_a_bounded_tree(store: Store) -> None:
    """A chain of four, whose last but one has three children, of which one has a child of its own."""
    root, middle, here = new_job_id(), new_job_id(), new_job_id()
    await add(store, new_job(id=root), new_job(id=middle, parent=root), new_job(id=here, parent=middle))
    one, two, three = await add(store, *(new_job(parent=here) for _ in range(3)))
    [below] = await add(store, new_job(parent=two))
    lineage = await read_lineage(store, await get_job(store, here), before=None, limit=10)
    assert [job.id for job in lineage.ancestors] == [root, middle]
    assert lineage.missing is None
    assert [(each.job.id, each.depth) for each in lineage.descendants] == [(three, 1), (two, 1), (below, 2), (one, 1)]
    assert all(each.job.args == "" for each in lineage.descendants)
    assert lineage.next is None
    first = await read_lineage(store, await get_job(store, here), before=None, limit=2)
    assert [(each.job.id, each.has_more) for each in first.descendants] == [(three, True), (two, True)]
    rest = await read_lineage(store, await get_job(store, here), before=first.next, limit=2)
    assert [each.job.id for each in rest.descendants] == [one]


async def test_a_circle_that_only_a_damaged_store_has_ends(store: Store) -> None:
    one, two = new_job_id(), new_job_id()
    await add(store, new_job(id=one, parent=two), new_job(id=two, parent=one))
    lineage = await read_lineage(store, await get_job(store, one), before=None, limit=10)
    assert [job.id for job in lineage.ancestors] == [two]
    assert len(lineage.descendants) <= 10
