"""Dependencies on PostgreSQL: what only several connections at once can do to each other, made to happen with held locks."""

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from drumbeat.core.claim import ClaimRef, WriteStatus
from drumbeat.core.dependencies import BLOCKED_ON_PARENTS, MAX_ADVANCED, IfParentFails, NewEdge, NewGraph, NewWorkflow
from drumbeat.core.job import Job, JobState, NewJob, OutcomeKind
from drumbeat.core.step import NewStep
from drumbeat.errors import DrumbeatError
from drumbeat.ids import InstanceId, JobId, new_job_id
from drumbeat.store.job_reads import get_job
from drumbeat.store.postgres import PostgresStore, history
from tests.contract.graphs import CANCEL, RUN, WAIT, add_child, add_graph, bind, edges, settle, state_of
from tests.contract.making import add, claim, claimed_one, end, exchange, ids, new_job, outcome, report, wanting, worker
from tests.engines.postgres.conftest import address_of
from tests.waiting import Stalls, until

DAY = 86_400_000_000
ROUNDS = 20
WIDE = 100_000 if os.environ.get("DRUMBEAT_FULL") else 5_000
GATE = """
CREATE OR REPLACE FUNCTION drumbeat.gate() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NULL; END';
CREATE OR REPLACE TRIGGER gate AFTER INSERT ON drumbeat.edge FOR EACH STATEMENT EXECUTE FUNCTION drumbeat.gate()"""
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@asynccontextmanager
async def closed_gate(raw: Any) -> AsyncIterator[None]:
    """Nobody gets past the insert of edges: jobs and edges are stored and not committed."""
    await raw.execute(GATE)
    await raw.execute("SELECT pg_advisory_lock(7)")
    try:
        yield
    finally:
        await raw.execute("SELECT pg_advisory_unlock(7)")


async def waiting(raw: Any, number: int) -> None:
    """Until so many sessions wait for a lock."""

    async def look() -> bool:
        await raw.execute("SELECT pg_stat_clear_snapshot()")
        return bool(await raw.fetchval(WAITING) == number)

    await until(look, what=f"{number} sessions that wait for a lock")


@pytest.fixture
async def other(url: str) -> AsyncIterator[PostgresStore]:
    async with await PostgresStore.open(address_of(url)) as store:
        yield store


async def dead_letter(store: PostgresStore, instance: InstanceId) -> JobId:
    job = await claimed_one(store, instance)
    await end(store, instance, job, OutcomeKind.DEAD)
    return job.id


async def standing(store: PostgresStore, id: JobId) -> tuple[JobState, str | None, int | None]:
    job: Job = await get_job(store, id)
    return job.state, job.blocked_on, job.open_parents


OPEN = (JobState.PENDING, BLOCKED_ON_PARENTS, 1)
DUE = (JobState.PENDING, None, 0)


async def test_a_child_is_added_while_the_end_of_its_parent_waits_for_the_row(
    postgres: PostgresStore, other: PostgresStore, raw: Any
) -> None:
    """The end's snapshot is older than its wait, and shows neither child nor edge."""
    instance = await worker(postgres)
    for _ in range(ROUNDS):
        parent = await claimed_one(postgres, instance)
        async with asyncio.TaskGroup() as group:
            async with closed_gate(raw):
                adding = group.create_task(add_child(other, parent.id))
                await waiting(raw, 1)
                ended = [outcome(parent, OutcomeKind.SUCCEEDED)]
                ending = group.create_task(exchange(postgres, instance, ended, wanting()))
                await waiting(raw, 2)
        assert ids(ending.result().jobs) == [adding.result()]
        assert not ending.result().is_releasing
        await end(postgres, instance, ending.result().jobs[0], OutcomeKind.SUCCEEDED)


async def test_a_child_is_added_while_its_parent_ends(postgres: PostgresStore, raw: Any) -> None:
    """The other way round: the parent's row is gone when its lock is free, and its release has not been followed."""
    instance = await worker(postgres)
    sql = postgres._parts.sql.jobs.move_to_history
    for _ in range(ROUNDS):
        [parent, sibling] = await add(postgres, new_job(), new_job(delay=3_600_000_000))
        await add_child(postgres, parent, sibling)
        async with asyncio.TaskGroup() as group:
            async with raw.transaction():
                none: list[None] = [None]
                ended = ([parent], ["succeeded"], none, none, none, none, none, none)
                assert await raw.fetchval(sql, *ended) == 1
                adding = group.create_task(add_child(postgres, parent, sibling))
                await waiting(raw, 1)
        await settle(postgres)
        assert await standing(postgres, adding.result()) == OPEN
        assert await postgres.dependencies.find_miscounted() == []
    assert await claim(postgres, instance) == []


@pytest.mark.parametrize("act", ["replay", "discard"])
@pytest.mark.parametrize("policy", [CANCEL, RUN, WAIT])
async def test_a_dead_letter_waits_for_a_child_that_is_being_added(
    postgres: PostgresStore, other: PostgresStore, raw: Any, act: str, policy: IfParentFails
) -> None:
    instance = await worker(postgres)
    letter = await dead_letter(postgres, instance)
    async with asyncio.TaskGroup() as group:
        async with closed_gate(raw):
            adding = group.create_task(add_child(other, letter, if_fails=policy))
            await waiting(raw, 1)
            acting = group.create_task(getattr(postgres.jobs, act)([letter]))
            await waiting(raw, 2)
            assert not acting.done()
    await settle(postgres)
    found = await standing(postgres, adding.result())
    if policy is RUN:
        assert found == DUE
    elif act == "replay":
        assert found == OPEN
        [again] = [job for job in await claim(postgres, instance) if job.id == letter]
        answer = await exchange(postgres, instance, [outcome(again, OutcomeKind.SUCCEEDED)], wanting())
        assert ids(answer.jobs) == [adding.result()]
    else:
        assert found[0] is JobState.CANCELLED


@pytest.mark.parametrize("policy", [CANCEL, RUN, WAIT])
async def test_a_child_is_added_while_its_dead_parent_is_being_replayed(
    postgres: PostgresStore, raw: Any, policy: IfParentFails
) -> None:
    """When the lock is free the letter is gone, and the job lives: it is looked for again."""
    instance = await worker(postgres)
    letter = await dead_letter(postgres, instance)
    sql = postgres._parts.sql.jobs
    async with asyncio.TaskGroup() as group:
        async with raw.transaction():
            await raw.fetch(sql.lock_dead_letters, [letter])
            await raw.fetch(sql.replay, [letter])
            adding = group.create_task(add_child(postgres, letter, if_fails=policy))
            await waiting(raw, 1)
    assert await standing(postgres, adding.result()) == OPEN
    [again] = await claim(postgres, instance)
    answer = await exchange(postgres, instance, [outcome(again, OutcomeKind.SUCCEEDED)], wanting())
    assert ids(answer.jobs) == [adding.result()]


async def test_two_advances_at_once_count_an_end_once(postgres: PostgresStore, raw: Any) -> None:
    instance = await worker(postgres)
    ended, open_one = await claimed_one(postgres, instance), await claimed_one(postgres, instance)
    child = await add_child(postgres, ended.id, open_one.id)
    await raw.execute("SELECT pg_advisory_lock(hashtextextended('drumbeat.advance', 0))")
    async with asyncio.TaskGroup() as group:
        ending = group.create_task(report(postgres, instance, outcome(ended, OutcomeKind.SUCCEEDED)))
        await waiting(raw, 1)
        advancing = group.create_task(postgres.dependencies.advance())
        await waiting(raw, 2)
        await raw.execute("SELECT pg_advisory_unlock(hashtextextended('drumbeat.advance', 0))")
    assert ending.result() == [WriteStatus.APPLIED]
    assert advancing.result() is False
    assert await standing(postgres, child) == OPEN
    answer = await exchange(postgres, instance, [outcome(open_one, OutcomeKind.SUCCEEDED)], wanting())
    assert ids(answer.jobs) == [child]


async def test_a_parent_ends_during_an_advance(postgres: PostgresStore, raw: Any) -> None:
    """Its end itself waits for nobody; what it left is followed behind the advance, by the same call."""
    instance = await worker(postgres)
    first, second = await claimed_one(postgres, instance), await claimed_one(postgres, instance)
    child = await add_child(postgres, first.id, second.id)
    ends = postgres._parts.sql.jobs.move_to_history
    none: list[None] = [None]
    await raw.fetchval(ends, [first.id], ["succeeded"], none, none, none, none, none, none)
    async with asyncio.TaskGroup() as group:
        async with raw.transaction():
            assert not (await raw.fetchrow("SELECT * FROM drumbeat.advance(1000)"))["is_more"]
            ended = [outcome(second, OutcomeKind.SUCCEEDED)]
            ending = group.create_task(exchange(postgres, instance, ended, wanting()))
            await waiting(raw, 1)
            assert await state_of(postgres, second.id) is JobState.SUCCEEDED
    assert ids(ending.result().jobs) == [child]


async def test_a_child_is_added_while_the_release_of_its_parent_is_being_followed(
    postgres: PostgresStore, other: PostgresStore, raw: Any
) -> None:
    """Part of the edges are followed: the new one is behind the cursor, and must be counted once."""
    instance = await worker(postgres)
    parent = await claimed_one(postgres, instance)
    [open_one] = await add(postgres, new_job(delay=3_600_000_000))
    for _ in range(3):
        await add_child(postgres, parent.id)
    none: list[None] = [None]
    ends = postgres._parts.sql.jobs.move_to_history
    await raw.fetchval(ends, [parent.id], ["succeeded"], none, none, none, none, none, none)
    async with asyncio.TaskGroup() as group:
        async with raw.transaction():
            assert (await raw.fetchrow("SELECT * FROM drumbeat.advance(2)"))["is_more"]
            adding = group.create_task(add_child(other, parent.id, open_one))
            await waiting(raw, 1)
    await settle(postgres)
    assert await standing(postgres, adding.result()) == OPEN
    assert await postgres.dependencies.find_miscounted() == []
    assert len(await claim(postgres, instance)) == 3


@pytest.mark.parametrize("heir", ["same", "another", "nobody"])
async def test_what_a_zombie_adds_while_its_claim_ends_is_refused(postgres: PostgresStore, raw: Any, heir: str) -> None:
    instance = await worker(postgres)
    job = await claimed_one(postgres, instance)
    step = NewStep(claim=ClaimRef(job.id, job.token), name="pages", started_at=1, finished_at=2, result="[]")
    child = new_job()
    graph = NewGraph(jobs=[child], edges=edges(child, job.id), instance=instance, step=step)
    async with asyncio.TaskGroup() as group:
        async with raw.transaction():
            taken = "UPDATE drumbeat.job SET instance = $2, token = token + 1 WHERE id = $1::text::uuid"
            await raw.execute(taken, job.id, {"same": instance, "another": "other", "nobody": None}[heir])
            adding = group.create_task(postgres.dependencies.add(graph))
            await waiting(raw, 1)
    assert (adding.result().status, adding.result().results) == (WriteStatus.STALE, [])
    assert await raw.fetchval("SELECT count(*) FROM drumbeat.job") == 1
    assert await raw.fetchval("SELECT count(*) FROM drumbeat.step") == 0


async def test_the_end_of_a_claim_waits_for_what_its_job_adds(
    postgres: PostgresStore, other: PostgresStore, raw: Any
) -> None:
    instance = await worker(postgres)
    job = await claimed_one(postgres, instance)
    step = NewStep(claim=ClaimRef(job.id, job.token), name="pages", started_at=1, finished_at=2, result="[]")
    child = new_job()
    graph = NewGraph(jobs=[child], edges=edges(child, job.id), instance=instance, step=step)
    async with asyncio.TaskGroup() as group:
        async with closed_gate(raw):
            adding = group.create_task(other.dependencies.add(graph))
            await waiting(raw, 1)
            burying = group.create_task(
                postgres.instances.declare_dead(instance, beat=None, started=[], reason="silent")
            )
            await waiting(raw, 2)
    assert adding.result().status is WriteStatus.APPLIED
    assert burying.result().declared
    assert [each.name for each in (await postgres.steps.load([job.id]))[job.id]] == ["pages"]
    assert await standing(postgres, child.id) == OPEN


async def test_eight_connections_that_add_and_end_in_random_order_do_not_deadlock(url: str, raw: Any) -> None:
    """Each adds children of some of the newest jobs, in any order, and ends what it claims in any way."""
    known: list[JobId] = []
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(await PostgresStore.open(address_of(url))) for _ in range(8)]
        instances = [await worker(store) for store in stores]
        known += await add(stores[0], *(new_job() for _ in range(20)))
        async with asyncio.TaskGroup() as group:
            for number, (store, instance) in enumerate(zip(stores, instances, strict=True)):
                group.create_task(_disturb(store, instance, known, random.Random(number)))
        store, instance = stores[0], instances[0]
        await _drain(store, instance)
        assert await store.dependencies.find_miscounted() == []
        left = await raw.fetch("SELECT id, blocked_on, open_parents FROM drumbeat.job WHERE state = 'pending'")
        dead = await raw.fetchval("SELECT count(*) FROM drumbeat.dead")
        assert dead and all(row["blocked_on"] == BLOCKED_ON_PARENTS for row in left), (
            "only what waits for a dead letter"
        )
        await store.jobs.discard([row[0] for row in await raw.fetch("SELECT id::text FROM drumbeat.dead")])
        await _drain(store, instance)
        assert await raw.fetchval("SELECT count(*) FROM drumbeat.job WHERE state = 'pending'") == 0
    stats = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    await raw.execute("SELECT pg_stat_force_next_flush(), pg_stat_clear_snapshot()")
    assert await raw.fetchval(stats) == 0


async def _disturb(store: PostgresStore, instance: InstanceId, known: list[JobId], chance: random.Random) -> None:
    for _ in range(40):
        recent = known[-30:]
        jobs: list[NewJob] = [new_job() for _ in range(chance.randint(1, 3))]
        links: list[NewEdge] = []
        for job in jobs:
            parents = chance.sample(recent, chance.randint(1, 6))
            links += edges(job, *parents, if_fails=chance.choice([CANCEL, RUN, WAIT]))
        await add_graph(store, jobs, links)
        known += [job.id for job in jobs]
        held = await claim(store, instance, limit=chance.randint(1, 6))
        chance.shuffle(held)
        kinds = [OutcomeKind.SUCCEEDED] * 4 + [OutcomeKind.DEAD, OutcomeKind.CANCELLED]
        ended = [outcome(job, chance.choice(kinds)) for job in held]
        assert await report(store, instance, *ended) == [WriteStatus.APPLIED] * len(held)
        some = chance.sample(recent, 2)
        match chance.randint(0, 5):
            case 0:
                await store.jobs.cancel(some)
            case 1:
                await store.jobs.replay(recent)
            case 2:
                await store.jobs.discard(some)


async def _drain(store: PostgresStore, instance: InstanceId) -> None:
    await settle(store)
    while jobs := await claim(store, instance):
        await report(store, instance, *(outcome(job, OutcomeKind.SUCCEEDED) for job in jobs))
        await settle(store)


async def test_a_refused_graph_leaves_nothing(postgres: PostgresStore, raw: Any) -> None:
    [parent] = await add(postgres, new_job())
    child = new_job()
    with pytest.raises(DrumbeatError):
        await add_graph(postgres, [child], edges(child, parent, new_job().id))
    for table in ("edge", "release", "cancelled_child", "parent_result"):
        assert await raw.fetchval(f"SELECT count(*) FROM drumbeat.{table}") == 0
    assert not await raw.fetchval("SELECT bool_or(is_parent) FROM drumbeat.job")


async def test_a_wide_fan_out_is_released_in_steps_between_which_others_work(
    postgres: PostgresStore, other: PostgresStore
) -> None:
    instance, another = await worker(postgres), await worker(other)
    parent = await claimed_one(postgres, instance)
    children = [new_job() for _ in range(WIDE)]
    await add_graph(postgres, children, [edge for child in children for edge in edges(child, parent.id)])
    answer = await exchange(postgres, instance, [outcome(parent, OutcomeKind.SUCCEEDED)], wanting(limit=100))
    assert len(answer.jobs) == 100 and answer.is_releasing
    steps, longest = 1, 0.0
    with Stalls() as stalls:
        is_more = True
        while is_more:
            plain = await claimed_one(other, another, queue="plain")
            async with asyncio.TaskGroup() as group:
                advancing = group.create_task(postgres.dependencies.advance())
                began = time.monotonic()
                await end(other, another, plain, OutcomeKind.SUCCEEDED)
                await other.instances.heartbeat(another, 1)
                longest = max(longest, time.monotonic() - began)
            is_more = advancing.result()
            steps += 1
    assert steps in (WIDE // MAX_ADVANCED, WIDE // MAX_ADVANCED + 1)
    assert longest < 0.5 + stalls.seconds, "an exchange and a heartbeat; a tenth of it on a machine of its own"
    assert len(await claim(other, another, limit=WIDE)) == WIDE - 100


async def test_a_wide_fan_in_counts_every_parent_that_existed_before(postgres: PostgresStore) -> None:
    instance = await worker(postgres)
    parents = [new_job() for _ in range(WIDE)]
    await add(postgres, *parents)
    child = new_job(queue="last")
    await add_graph(postgres, [child], edges(child, *(parent.id for parent in parents)))
    assert await standing(postgres, child.id) == (JobState.PENDING, BLOCKED_ON_PARENTS, WIDE)
    answer = await exchange(postgres, instance, [], wanting("default", limit=1_000))
    ended = 0
    while answer.jobs:
        outcomes = [outcome(job, OutcomeKind.SUCCEEDED) for job in answer.jobs]
        ended += len(outcomes)
        answer = await exchange(postgres, instance, outcomes, wanting("default", limit=1_000))
    assert ended == WIDE
    await settle(postgres)
    assert ids(await claim(postgres, instance, "last")) == [child.id]


@pytest.mark.parametrize("large_bytes", [0, 2**30], ids=["dropped", "row by row"])
async def test_edges_kept_results_and_workflows_go_with_history(
    url: str, raw: Any, monkeypatch: pytest.MonkeyPatch, large_bytes: int
) -> None:
    """With a whole day as well as row by row; what jobs need that are still there stays."""
    monkeypatch.setattr(history.HistoryPartitions.__init__, "__kwdefaults__", {"large_bytes": large_bytes})
    async with await PostgresStore.open(address_of(url)) as store:
        instance = await worker(store)
        now = await store.inspect.now()
        first, second, late = (new_job_id(now - 6 * DAY + number) for number in (0, 1_000, 2_000))
        for name in ("gone", "stays"):
            await add_graph(store, [], workflow=NewWorkflow(id=name, name=name))
        await raw.execute("UPDATE drumbeat.workflow SET created_at = 0")
        jobs = [new_job(id=first, workflow="gone"), new_job(id=second, workflow="stays")]
        child = new_job(id=new_job_id(now - 6 * DAY + 3_000), workflow="gone")
        last = new_job(id=late, workflow="stays", delay=DAY)
        links = [bind(child, first), bind(child, second), bind(last, second)]
        await add_graph(store, [*jobs, child, last], links)
        old = {"finished_at": now - 5 * DAY, "result": "1"}
        for expected in ({first, second}, {child.id}):
            held = await claim(store, instance)
            assert set(ids(held)) == expected
            await report(store, instance, *(outcome(job, OutcomeKind.SUCCEEDED, **old) for job in held))
        while await store.jobs.prune(now - 2 * DAY, 10):
            pass
        assert await raw.fetch("SELECT parent::text, child::text FROM drumbeat.edge") == [(second, late)]
        assert await raw.fetch("SELECT parent::text FROM drumbeat.parent_result") == [(second,)]
        assert await raw.fetch("SELECT id FROM drumbeat.workflow") == [("stays",)]


@pytest.mark.parametrize("large_bytes", [0, 2**30], ids=["dropped", "row by row"])
async def test_the_result_of_a_parent_whose_release_is_held_back_outlives_its_history(
    url: str, raw: Any, monkeypatch: pytest.MonkeyPatch, large_bytes: int
) -> None:
    """It was reported days late, and somebody who adds a child to it holds its release while history is pruned."""
    monkeypatch.setattr(history.HistoryPartitions.__init__, "__kwdefaults__", {"large_bytes": large_bytes})
    async with await PostgresStore.open(address_of(url)) as store:
        instance = await worker(store)
        parent = await claimed_one(store, instance)
        child = new_job()
        await add_graph(store, [child], [bind(child, parent.id)])
        now = await store.inspect.now()
        none: list[None] = [None]
        await raw.execute("SELECT drumbeat.ensure_history_day($1)", (now - 5 * DAY) // DAY * DAY)
        ended = [[parent.id], ["succeeded"], ["succeeded"], none, [now - 5 * DAY], ["7"], none, none]
        await raw.fetchval(store._parts.sql.jobs.move_to_history, *ended)
        async with raw.transaction():
            await raw.fetch(store._parts.sql.dependencies.lock_releases, [parent.id])
            for _ in range(3):
                await store.jobs.prune(now - 2 * DAY, 10)
        await settle(store)
        assert ids(await claim(store, instance)) == [child.id]
        [kept] = (await store.dependencies.load_results([child.id]))[child.id]
        assert (kept.state, kept.result) == (JobState.SUCCEEDED, "7")


async def test_a_workflow_is_not_cancelled_between_the_look_at_it_and_the_release_of_its_jobs(
    postgres: PostgresStore, raw: Any
) -> None:
    """Else a job became due after the caller was told that none of them does any more."""
    workflow = NewWorkflow(id="w", name="w")
    root, child = new_job(workflow="w"), new_job(workflow="w")
    await add_graph(postgres, [root, child], edges(child, root), workflow=workflow)
    async with asyncio.TaskGroup() as group:
        async with raw.transaction():
            await raw.execute("INSERT INTO drumbeat.release (parent, life, event) VALUES ($1, 0, 'succeeded')", root.id)
            await raw.execute("SELECT drumbeat.advance($1)", MAX_ADVANCED)
            cancelling = group.create_task(postgres.workflows.mark_cancelled("w"))
            await waiting(raw, 1)
    assert cancelling.result()
    assert (await get_job(postgres, child.id)).blocked_on is None
