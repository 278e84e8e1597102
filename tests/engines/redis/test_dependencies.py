"""Dependencies on Redis: a full server, damaged records, memory, very many children and parents, idle workers."""

import os
from collections.abc import Iterator
from itertools import pairwise

import pytest

from drumbeat.core.dependencies import MAX_ADVANCED, Binding, IfParentFails, NewEdge, NewGraph, NewWorkflow
from drumbeat.core.job import JobState, NewJob, OutcomeKind
from drumbeat.core.job_query import JobFilter
from drumbeat.core.workflow import WorkflowState
from drumbeat.errors import JobExpired, StoreFull, WorkflowConflict
from drumbeat.ids import InstanceId, JobId, pack_id
from drumbeat.store.job_reads import find_jobs, get_job
from drumbeat.store.protocol import Store
from drumbeat.store.redis import RedisStore
from tests.contract.graphs import RUN, add_child, add_graph, bind, edges, new_workflow, settle
from tests.contract.making import HOUR, add, claim, claimed_one, end, exchange, ids, new_job, outcome, wanting, worker
from tests.engines.redis.conftest import open_redis
from tests.engines.redis.test_full_server import fill, pad
from tests.engines.redis.test_parked_claims import idle_worker
from tests.servers.redis import RedisServer

MANY = 100_000 if os.environ.get("DRUMBEAT_FULL") else 6_000
SOME = 10_000 if os.environ.get("DRUMBEAT_FULL") else 3_000
P = "{drumbeat}:"


@pytest.fixture
def full(kind: str) -> Iterator[RedisServer]:
    """A server of one's own, to be filled."""
    with RedisServer(kind) as server:
        pad(server)
        yield server


# A full server.


async def test_on_a_full_server_a_child_gets_the_result_of_a_parent_that_leaves_no_history(full: RedisServer) -> None:
    async with await open_redis(full) as store:
        me = await worker(store)
        parent = await claimed_one(store, me, task="fetch")
        child = new_job()
        await add_graph(store, [child], [bind(child, parent.id)])
        fill(full)
        answer = await exchange(store, me, [outcome(parent, OutcomeKind.SUCCEEDED, result='"done"')], wanting())
        assert ids(answer.jobs) == [child.id]
        assert (answer.jobs[0].binds, answer.is_releasing) == (True, False)
        with pytest.raises(JobExpired):
            await store.jobs.get_results([parent.id])
        [found] = (await store.dependencies.load_results([child.id]))[child.id]
        assert (found.task, found.state, found.result) == ("fetch", JobState.SUCCEEDED, '"done"')
        assert await end(store, me, answer.jobs[0], OutcomeKind.SUCCEEDED) == "applied"
        assert left_of_links(full) == []


async def test_on_a_full_server_failures_go_down_the_chain_in_steps(full: RedisServer) -> None:
    async with await open_redis(full) as store:
        me = await worker(store)
        parent = await claimed_one(store, me)
        chain = [new_job() for _ in range(5)]
        await add_graph(store, chain, [NewEdge(*link) for link in pairwise((parent.id, *ids(chain)))])
        runs = await add_child(store, chain[-1].id, if_fails=RUN)
        fill(full)
        answer = await exchange(store, me, [outcome(parent, OutcomeKind.DEAD)], wanting())
        while not answer.jobs:
            assert answer.is_releasing or await store.dependencies.advance(), "nothing leads on"
            answer = await exchange(store, me, [], wanting())
        assert ids(answer.jobs) == [runs]


async def test_on_a_full_server_nothing_of_a_graph_is_stored(full: RedisServer) -> None:
    async with await open_redis(full) as store:
        [parent] = await add(store, new_job())
        before = full.ask("DBSIZE")
        fill(full)
        child = new_job()
        with pytest.raises(StoreFull, match="maxmemory"):
            await add_graph(store, [child], [NewEdge(parent, child.id)], workflow=new_workflow())
        assert full.ask("DBSIZE") == before
        assert ids(await find_jobs(store, JobFilter())) == [parent]
        assert await store.workflows.find() == []
        full.ask("CONFIG", "SET", "maxmemory", "0")
        assert (await add_graph(store, [child], [NewEdge(parent, child.id)])).results[0].created


def left_of_links(server: RedisServer, database: int = 0) -> list[str]:
    """Keys of dependencies and workflows."""
    kinds = "parents kid kids edge edges places releasing kept cancelled_by workflow workflow_jobs workflows"
    names = {*kinds.split(), "workflows_of", "open_workflows"}
    keys = [key.decode("utf-8", "replace") for key in server.ask("KEYS", "*", database=database)]
    return sorted(key for key in keys if key.removeprefix(P).partition(":")[0] in names)


# What is pruned, and what is damaged.


def number_of(url: str) -> int:
    return int(url.rpartition("/")[2])


async def test_pruned_jobs_leave_nothing_of_their_links(redis: RedisStore, server: RedisServer, url: str) -> None:
    me = await worker(redis)
    await busy_graph(redis, me)
    assert left_of_links(server, number_of(url)) != []
    await finish_all(redis, me)
    letters = await find_jobs(redis, JobFilter(dead_letters=True))
    await redis.jobs.discard(ids(letters))
    while await redis.jobs.prune(await redis.inspect.now() + HOUR, 3):
        pass
    assert left_of_links(server, number_of(url)) == []
    assert await find_jobs(redis, JobFilter()) == []


async def busy_graph(store: Store, me: InstanceId) -> dict[str, str]:
    """One job of each kind: parents with one child and with several, that have ended or not, children with one parent and
    with several, a child that a failure cancelled."""
    done, dies, live = [await claimed_one(store, me) for _ in range(3)]
    workflow = new_workflow()
    names = ("one", "several", "other", "cancelled", "last")
    jobs = {name: new_job(task=name, workflow=workflow.id) for name in names}
    links = [
        bind(jobs["one"], done.id),
        *edges(jobs["several"], done.id, live.id, jobs["one"], if_fails=RUN),
        *edges(jobs["other"], live.id),
        *edges(jobs["cancelled"], dies.id),
        *edges(jobs["last"], jobs["several"], jobs["cancelled"], if_fails=RUN),
    ]
    await add_graph(store, list(jobs.values()), links, workflow=workflow)
    ended = [outcome(done, OutcomeKind.SUCCEEDED, result="1"), outcome(dies, OutcomeKind.DEAD)]
    await exchange(store, me, ended)
    await settle(store)
    assert (await get_job(store, jobs["cancelled"].id)).state is JobState.CANCELLED
    facts = {"done": done.id, "dies": dies.id, "live": live.id, "workflow": workflow.id}
    return {name: job.id for name, job in jobs.items()} | facts


async def finish_all(store: Store, me: InstanceId) -> None:
    """Whatever runs or becomes due ends well."""
    while held := await store.jobs.list_running(me):
        done = [outcome(claim, OutcomeKind.SUCCEEDED) for claim in held]
        await exchange(store, me, done, wanting())
        await settle(store)
        if not await store.jobs.list_running(me):
            await exchange(store, me, [], wanting())


DAMAGED = (
    "parents",
    "releasing",
    "cancelled_by",
    "blocked_since:parents",
    "workflows",
    "kid",
    "edge",
    "kept",
    "kids",
    "edges",
    "places",
    "workflow",
    "workflow_jobs",
    "workflows_of",
    "open_workflows",
)


@pytest.mark.parametrize("how", ["another type", "unreadable"])
@pytest.mark.parametrize("key", DAMAGED)
async def test_no_operation_fails_because_of_a_damaged_record(
    redis: RedisStore, server: RedisServer, url: str, key: str, how: str
) -> None:
    me = await worker(redis)
    names = await busy_graph(redis, me)
    database = number_of(url)
    [*found] = [
        name
        for name in server.ask("KEYS", "*", database=database)
        if name[len(P) :].partition(b":")[0] == key.encode() or name == (P + key).encode()
    ] or [(P + key).encode()]
    for name in found:
        damage(server, database, name, how)
    jobs = [JobId(names[name]) for name in names if name != "workflow"]
    await redis.dependencies.load_results(jobs)
    await redis.dependencies.page_results(jobs[0], "x", -1, 10)
    await redis.dependencies.list_parents(jobs, 10)
    await redis.dependencies.list_children(jobs, 10)
    await redis.dependencies.find_miscounted()
    await redis.workflows.get([names["workflow"]])
    await redis.workflows.find(name="nightly")
    await redis.workflows.get_graph(names["workflow"])
    await redis.workflows.list_sinks(names["workflow"])
    await redis.jobs.replay([JobId(names["dies"])])
    await finish_all(redis, me)
    await redis.jobs.cancel(jobs)
    await redis.workflows.mark_cancelled(names["workflow"])
    while await redis.jobs.prune(await redis.inspect.now() + HOUR, 3):
        pass
    # The store works on as if nothing had been.
    parent = await claimed_one(redis, me)
    child = await add_child(redis, parent.id)
    await end(redis, me, parent, OutcomeKind.SUCCEEDED)
    assert child in ids(await claim(redis, me))


def damage(server: RedisServer, database: int, name: bytes, how: str) -> None:
    if how == "another type":
        was_text = server.ask("TYPE", name, database=database) == b"string"
        server.ask("DEL", name, database=database)
        server.ask(*(("SADD", name, "x") if was_text else ("SET", name, "x")), database=database)
        return
    kind = server.ask("TYPE", name, database=database)
    if kind == b"hash":
        for field in server.ask("HKEYS", name, database=database):
            server.ask("HSET", name, field, b"\x00,;\n+", database=database)
    elif kind == b"set":
        server.ask("SADD", name, "x", database=database)
    elif kind == b"zset":
        server.ask("ZADD", name, 0, "x", database=database)
    else:
        server.ask("RPUSH", name, "x", b"\x00" * 40, database=database)


# Memory, and how long the server stands still.


def used_memory(server: RedisServer) -> int:
    return int(server.ask("INFO", "memory")["used_memory"])


async def test_a_waiting_child_takes_little_more_than_a_job(own_server: RedisServer) -> None:
    async with await open_redis(own_server) as store:
        await add(store, *(new_job() for _ in range(100)))
        plain = await bytes_of(own_server, store, [new_job() for _ in range(10_000)])
        parents = await add(store, *(new_job(queue="parents") for _ in range(10_000)))
        children = [new_job() for _ in range(10_000)]
        links = [NewEdge(parent, child.id) for parent, child in zip(parents, children, strict=True)]
        waiting = await bytes_of(own_server, store, children, links)
        seen = f"{plain} bytes for a plain job, {waiting} for a child and its edge"
        print(seen)
        assert waiting - plain < 450, seen


async def bytes_of(
    server: RedisServer, store: RedisStore, jobs: list[NewJob], links: list[NewEdge] | None = None
) -> int:
    before = used_memory(server)
    if links is None:
        await add(store, *jobs)
    else:
        await add_graph(store, jobs, links)
    return (used_memory(server) - before) // len(jobs)


def busy_us(server: RedisServer) -> int:
    """Microseconds of processor time that the server has used: how long it stood still, however busy the machine is."""
    info = server.ask("INFO", "cpu")
    return round(1_000_000 * sum(float(info[f"used_cpu_{part}"]) for part in ("user", "sys")))


async def test_a_hundred_thousand_children_of_one_parent(own_server: RedisServer) -> None:
    async with await open_redis(own_server) as store:
        me = await worker(store)
        parent = await claimed_one(store, me)
        children = [new_job(queue="many") for _ in range(MANY)]
        before = busy_us(own_server)
        await add_graph(store, children, [NewEdge(parent.id, child.id) for child in children])
        took = {"add": busy_us(own_server) - before}
        assert (await exchange(store, me, [outcome(parent, OutcomeKind.SUCCEEDED)])).is_releasing
        steps = await time_steps(own_server, store)
        took |= {"steps": len(steps), "longest step": max(steps), "all steps": sum(steps)}
        print(took)
        assert len(steps) == MANY // 1_000 - 1
        assert (await store.inspect.count_jobs(JobFilter())).ready == MANY
        assert max(steps) < 100_000, took
        assert took["add"] < 5_000_000, took


async def time_steps(server: RedisServer, store: RedisStore) -> list[int]:
    steps: list[int] = []
    is_releasing = True
    while is_releasing:
        before = busy_us(server)
        is_releasing = await store.dependencies.advance()
        steps.append(busy_us(server) - before)
    return steps


async def test_many_children_are_cancelled_and_revived_in_steps(own_server: RedisServer) -> None:
    async with await open_redis(own_server) as store:
        me = await worker(store)
        parent = await claimed_one(store, me)
        children = [new_job(queue="many") for _ in range(SOME)]
        await add_graph(store, children, [NewEdge(parent.id, child.id) for child in children])
        await exchange(store, me, [outcome(parent, OutcomeKind.DEAD)])
        died = await time_steps(own_server, store)
        assert (await store.inspect.count_jobs(JobFilter())).cancelled == SOME
        before = busy_us(own_server)
        assert (await store.jobs.replay([parent.id]))[0].replayed
        revived = busy_us(own_server) - before
        assert (await store.inspect.count_jobs(JobFilter())).waiting == SOME
        took = {"longest step": max(died), "all steps": sum(died), "all that revive": revived}
        print(took)
        assert max(died) < 200_000, took


async def test_a_child_that_is_added_between_a_replay_and_the_look_at_the_death_before_lives_its_first_life(
    redis: RedisStore,
) -> None:
    """The client that replays dies before all has been followed."""
    me = await worker(redis)
    parent = await claimed_one(redis, me)
    children = [new_job(queue="many") for _ in range(MAX_ADVANCED * 3)]
    await add_graph(redis, children, [edge for child in children for edge in edges(child, parent.id)])
    assert (await exchange(redis, me, [outcome(parent, OutcomeKind.DEAD)])).is_releasing
    assert await redis._pool.run("replay_dead_letters", pack_id(parent.id)) == [1, [1]]
    child = await add_child(redis, parent.id)
    await settle(redis)
    found = await get_job(redis, child)
    assert (found.state, found.open_parents, found.replays) == (JobState.PENDING, 1, 0)
    assert await redis.dependencies.find_miscounted(10_000) == []


async def test_a_hundred_thousand_parents_of_one_child(own_server: RedisServer) -> None:
    async with await open_redis(own_server) as store:
        me = await worker(store)
        parents = [new_job(queue="many") for _ in range(MANY)]
        child = new_job()
        links = [NewEdge(parent.id, child.id, IfParentFails.RUN, Binding.RESULTS, "results") for parent in parents]
        before = busy_us(own_server)
        await store.dependencies.add(NewGraph(jobs=[*parents, child], edges=links))
        took = {"add": busy_us(own_server) - before}
        before, jobs = busy_us(own_server), await claim(store, me, "many", limit=500)
        count = 0
        while jobs:
            count += len(jobs)
            done = [outcome(job, OutcomeKind.SUCCEEDED, result=str(count)) for job in jobs]
            jobs = (await exchange(store, me, done, wanting("many", limit=500))).jobs
        took["run all"] = busy_us(own_server) - before
        assert count == MANY
        [last] = await claim(store, me)
        assert (last.id, last.binds) == (child.id, True)
        before = busy_us(own_server)
        assert len((await store.dependencies.load_results([child.id]))[child.id]) == 1
        page = await store.dependencies.page_results(child.id, "results", MANY - 1_001, 1_000)
        took["a page"] = busy_us(own_server) - before
        assert [each.place for each in page] == list(range(MANY - 1_000, MANY))
        assert {each.parent for each in page} == {job.id for job in parents[-1_000:]}
        print(took)
        assert took["add"] < 5_000_000, took
        assert took["a page"] < 100_000, took


# Idle workers.


async def test_an_idle_worker_hears_of_a_child_that_became_due(redis: RedisStore, url: str) -> None:
    me = await worker(redis)
    parent = await claimed_one(redis, me)
    child = await add_child(redis, parent.id)
    async with idle_worker(url) as idle:
        await exchange(redis, me, [outcome(parent, OutcomeKind.SUCCEEDED)])
        await idle.expect_hint()
        assert ids(await claim(idle.store, idle.instance)) == [child]


async def test_a_child_whose_parents_have_ended_is_not_handed_over_without_its_count(
    redis: RedisStore, url: str
) -> None:
    """A hand-off sends bodies only; what a child binds is in its live state."""
    me = await worker(redis)
    parent = await claimed_one(redis, me)
    await end(redis, me, parent, OutcomeKind.SUCCEEDED)
    async with idle_worker(url) as idle:
        child = new_job()
        await add_graph(redis, [child], [bind(child, parent.id)])
        await idle.expect_hint()
        [job] = await claim(idle.store, idle.instance)
        assert (job.id, job.binds) == (child.id, True)


async def test_jobs_of_a_graph_without_parents_are_handed_over(redis: RedisStore, url: str) -> None:
    async with idle_worker(url) as idle:
        first, second = new_job(), new_job()
        await add_graph(redis, [first, second], edges(second, first))
        await idle.expect_jobs(first.id)
        assert (await get_job(redis, second.id)).open_parents == 1


@pytest.mark.parametrize(("pages", "counted"), [(3, 4), (5, 6), (6, 6), (9, 6)])
async def test_the_first_and_the_last_jobs_of_a_large_workflow_are_counted(
    redis: RedisStore, monkeypatch: pytest.MonkeyPatch, pages: int, counted: int
) -> None:
    """Else it had ended for whoever looks as soon as the first ones have."""
    for name, value in (("MAX_COUNTED_NODES", 6), ("MAX_GRAPH_NODES", 2), ("_PAGE", 2)):
        monkeypatch.setattr(f"drumbeat.store.redis.workflows.{name}", value)
    me, workflow = await worker(redis), new_workflow()
    parents = [new_job(workflow=workflow.id) for _ in range(pages)]
    last = new_job(workflow=workflow.id, task="add_up")
    await add_graph(redis, [*parents, last], edges(last, *parents), workflow=workflow)
    for job in (await claim(redis, me, limit=100))[:-1]:
        await end(redis, me, job, OutcomeKind.SUCCEEDED)
    found = (await redis.workflows.get([workflow.id]))[workflow.id]
    assert (sum(found.counts.values()), found.capped) == (counted, pages >= 6)
    assert (found.counts["waiting"], found.state) == (1, WorkflowState.RUNNING)
    graph = await redis.workflows.get_graph(workflow.id)
    assert graph is not None and graph.capped == found.capped
    assert sum(sum(node.counts.values()) for node in graph.tasks) == counted
    assert {"waiting": 1} in [node.counts for node in graph.tasks]


async def test_a_workflow_of_a_name_is_found_live_again_after_a_replay(redis: RedisStore) -> None:
    """The index of live workflows forgets those that have ended."""
    me = await worker(redis)
    first = NewWorkflow(id="first", name="nightly", unique=True)
    await add_graph(redis, [new_job(workflow="first")], workflow=first)
    [job] = await claim(redis, me)
    await end(redis, me, job, OutcomeKind.DEAD)
    second = NewWorkflow(id="second", name="nightly", unique=True)
    await add_graph(redis, [], workflow=second)
    await redis.jobs.replay([job.id])
    with pytest.raises(WorkflowConflict, match="first"):
        await add_graph(
            redis, [new_job(workflow="third")], workflow=NewWorkflow(id="third", name="nightly", unique=True)
        )
