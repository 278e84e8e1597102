"""Lanes on PostgreSQL: what only several connections at once can do to each other; and plans, whatever the number of lanes.

`DRUMBEAT_FULL=1` plans with 100,000 lanes and a million jobs that wait in a full one, and runs the random histories longer.
"""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import asyncpg
import pytest

from drumbeat.core.claim import ClaimedJob, Outcome
from drumbeat.core.job import OutcomeKind
from drumbeat.core.limits import Bounds
from drumbeat.ids import InstanceId
from drumbeat.store.postgres import PostgresStore
from drumbeat.store.postgres.lane_claim import PostgresLaneClaimer
from drumbeat.store.postgres.statements import statements
from tests.contract.lanes import add_jobs, ask, asking, declare, finish, groups_of, lane_job, take
from tests.contract.making import HOUR, add, exchange, ids, new_job, outcome, worker
from tests.engines.postgres.conftest import address_of
from tests.engines.postgres.test_plans import claim_arguments, explain, pages, scans_of
from tests.waiting import until

Raw = Any
IS_FULL = bool(os.environ.get("DRUMBEAT_FULL"))
LANES, WAITING = (100_000, 1_000_000) if IS_FULL else (2_000, 20_000)
RUN_S = 30.0 if IS_FULL else 4.0
SQL = statements("drumbeat").jobs
FILL = """
INSERT INTO drumbeat.job (id, task, queue, priority, args, signature, created_at, due_at, run_at, crash_limit, "group", lane)
SELECT md5(number::text)::uuid, 'greet', 'default', 5, '{}', 's', 0, 0, drumbeat.now_us() - number, 3, 'g', lane
  FROM (SELECT number, CASE WHEN number <= $1 THEN 'greet full' ELSE 'greet g' || number END AS lane
          FROM generate_series(1, $1 + $2::integer) AS number) AS wanted"""


@pytest.fixture
async def other(url: str) -> AsyncIterator[PostgresStore]:
    """Another process."""
    async with await PostgresStore.open(address_of(url)) as store:
        yield store


@pytest.fixture
async def third(url: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    connection = await asyncpg.connect(url)
    yield connection
    await connection.close()


class InterruptedSession:
    """Something happens once, before a statement is sent."""

    def __init__(self, session: Any, statement: str, action: Callable[[], Awaitable[Any]]) -> None:
        self._session = session
        self._statement = statement
        self._action: Callable[[], Awaitable[Any]] | None = action

    async def fetch(self, query: str, *args: Any) -> Any:
        await self._interrupt(query)
        return await self._session.fetch(query, *args)

    async def execute(self, query: str, *args: Any) -> Any:
        await self._interrupt(query)
        return await self._session.execute(query, *args)

    async def fetchval(self, query: str, *args: Any) -> Any:
        await self._interrupt(query)
        return await self._session.fetchval(query, *args)

    async def _interrupt(self, query: str) -> None:
        if query == self._statement and self._action is not None:
            action, self._action = self._action, None
            await action()


def interrupt(
    monkeypatch: pytest.MonkeyPatch, store: PostgresStore, statement: str, action: Callable[[], Awaitable[Any]]
) -> None:
    """Do something in the middle of the next claim of lanes."""
    claim = PostgresLaneClaimer.claim

    async def run(lanes: PostgresLaneClaimer, session: Any, *args: Any) -> Any:
        if lanes is not store._parts.filler._lanes:
            return await claim(lanes, session, *args)
        return await claim(lanes, InterruptedSession(session, statement, action), *args)  # type: ignore[arg-type]

    monkeypatch.setattr(PostgresLaneClaimer, "claim", run)


@pytest.mark.parametrize("moment", ["claim_lanes", "settle_lanes"])
@pytest.mark.parametrize("priority", [5, 2])
async def test_an_add_between_the_lock_and_the_look_or_after_it_is_not_lost(
    postgres: PostgresStore, other: PostgresStore, monkeypatch: pytest.MonkeyPatch, moment: str, priority: int
) -> None:
    instance = await worker(postgres)
    await declare(postgres, each=Bounds(9))
    wanted = set(await add_jobs(postgres, "a", 1))

    async def add_another() -> None:
        wanted.update(await add_jobs(other, "a", 1, priority=priority))

    interrupt(monkeypatch, postgres, getattr(SQL, moment), add_another)
    got = await take(postgres, instance)
    monkeypatch.undo()
    got += await take(postgres, instance)
    assert set(ids(got)) == wanted
    assert (await ask(postgres, instance)).next_due_at is None


@pytest.mark.parametrize("moment", ["claim_lanes", "settle_lanes"])
async def test_an_end_in_the_middle_of_a_claim_gives_its_room_back(
    postgres: PostgresStore, other: PostgresStore, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    instance = await worker(postgres)
    await declare(postgres, each=Bounds(2), whole=Bounds(2))
    wanted = await add_jobs(postgres, "a", 3)
    [first] = await take(postgres, instance, limit=1)

    async def end_it() -> None:
        await exchange(other, instance, [outcome(first, OutcomeKind.SUCCEEDED)])

    interrupt(monkeypatch, postgres, getattr(SQL, moment), end_it)
    assert ids(await take(postgres, instance)) == [wanted[1]]
    monkeypatch.undo()
    assert ids(await take(postgres, instance)) == [wanted[2]]
    assert await postgres.limits.sweep(0, 100) == (0, 0)


async def test_what_another_session_holds_is_looked_at_again_soon(
    postgres: PostgresStore, other: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = await worker(postgres), await worker(postgres)
    await declare(postgres, each=Bounds(5))
    wanted = await add_jobs(postgres, "a", 2)
    answers = []

    async def look() -> None:
        answers.append(await ask(other, two))

    interrupt(monkeypatch, postgres, SQL.claim_lanes, look)
    assert ids(await take(postgres, one, limit=1)) == wanted[:1]
    [answer] = answers
    assert answer.jobs == []
    assert answer.next_due_at is not None and answer.now < answer.next_due_at <= answer.now + 10_000
    assert ids(await take(other, two)) == wanted[1:]


async def test_a_line_that_another_session_holds_is_looked_at_again_soon(
    postgres: PostgresStore, other: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = await worker(postgres), await worker(postgres)
    await declare(postgres, whole=Bounds(5))
    await declare(postgres, "free", fair=True)
    await add_jobs(postgres, "a", 2)
    free = await add_jobs(postgres, "a", 2, line="free", task="free")
    answers = []

    async def look() -> None:
        answers.append(await ask(other, two))

    interrupt(monkeypatch, postgres, SQL.claim_lanes, look)
    got = await take(postgres, one, limit=1)
    [answer] = answers
    assert {job.task for job in answer.jobs} <= {"free"}
    assert answer.next_due_at is not None and answer.next_due_at <= answer.now + 10_000
    rest = await take(other, two)
    assert len({*ids(got), *ids(answer.jobs), *ids(rest)}) == 4
    assert set(free) <= {*ids(got), *ids(answer.jobs), *ids(rest)}


async def test_adds_in_open_transactions_hold_up_nobody(postgres: PostgresStore, raw: Raw, third: Raw) -> None:
    """Neither claims of these lanes, nor each other, in whatever order they add."""
    instance = await worker(postgres)
    await declare(postgres, each=Bounds(9), whole=Bounds(99))
    at_once = await add_jobs(postgres, "a", 2)
    held = [lane_job(group) for group in ("a", "b", "b", "a")]
    add_inside = postgres.transactional.add
    await raw.execute("BEGIN")
    await third.execute("BEGIN")
    await add_inside(raw, held[:1])
    await add_inside(third, held[2:3])
    async with asyncio.timeout(4):
        assert ids(await take(postgres, instance)) == at_once
        await add_inside(raw, held[1:2])
        await add_inside(third, held[3:])
    await raw.execute("COMMIT")
    assert set(ids(await take(postgres, instance))) == set(ids(held[:2]))
    await third.execute("COMMIT")
    assert set(ids(await take(postgres, instance))) == set(ids(held[2:]))


async def test_an_add_that_is_rolled_back_to_a_savepoint_is_told_when_it_is_repeated(
    postgres: PostgresStore, raw: Raw
) -> None:
    """Adds of a lane at one moment are told once in a transaction."""
    instance = await worker(postgres)
    await declare(postgres, each=Bounds(9))
    jobs = [lane_job("a", delay=1_000) for _ in range(3)]
    await raw.execute("BEGIN; SAVEPOINT here")
    await postgres.transactional.add(raw, jobs[:1])
    await raw.execute("ROLLBACK TO here")
    await postgres.transactional.add(raw, jobs[1:])
    await raw.execute("COMMIT")
    found = await postgres.limits.list_groups("default", "greet")
    assert [(each.group, each.waiting) for each in found] == [("a", 2)]

    async def took() -> list[ClaimedJob]:
        return await take(postgres, instance)

    assert {*ids(await until(took, what="the jobs"))} <= set(ids(jobs[1:]))


async def test_many_adds_of_a_lane_in_one_call_are_little_news(postgres: PostgresStore, raw: Raw) -> None:
    await declare(postgres, each=Bounds(9))
    await add(postgres, *(lane_job("a") for _ in range(40)))
    await postgres.jobs.add([lane_job("a") for _ in range(1_000)])
    assert await raw.fetchval("SELECT count(*) FROM drumbeat.news") == 2


async def test_plain_jobs_leave_no_news(postgres: PostgresStore, raw: Raw) -> None:
    instance = await worker(postgres)
    await declare(postgres, each=Bounds(9))
    await add(postgres, *(new_job() for _ in range(3)))
    for kind in (OutcomeKind.SUCCEEDED, OutcomeKind.RETRY, OutcomeKind.DEAD):
        [job] = await take(postgres, instance, limit=1)
        await finish(postgres, instance, job, kind=kind)
    assert await raw.fetchval("SELECT count(*) FROM drumbeat.news") == 0


async def test_limits_that_change_while_a_claim_is_under_way_hold_for_the_next_one(
    postgres: PostgresStore, other: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change waits for the claim, which would else write what the older limits say."""
    instance = await worker(postgres)
    await declare(postgres, each=Bounds(1))
    await add_jobs(postgres, "a", 5)
    changes = []

    async def change() -> None:
        changes.append(asyncio.Task(declare(other, each=Bounds(3), version=2)))
        await asyncio.wait(changes, timeout=0.2)

    interrupt(monkeypatch, postgres, SQL.settle_lanes, change)
    assert len(await take(postgres, instance)) == 1
    await changes[0]
    assert len(await take(postgres, instance)) == 2


async def test_a_change_that_was_cut_off_goes_on_with_the_next_sweep(
    postgres: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = await worker(postgres)
    await declare(postgres, each=Bounds(1))
    await add_jobs(postgres, "a", 5)
    assert len(await take(postgres, instance)) == 1

    async def die(*_: Any) -> None:
        return None

    monkeypatch.setattr(type(postgres.limits), "_tell", die)
    await declare(postgres, each=Bounds(3), version=2)
    monkeypatch.undo()
    assert await take(postgres, instance) == []
    await postgres.limits.sweep(0, 100)
    assert len(await take(postgres, instance)) == 2


async def test_a_count_that_has_drifted_is_put_right(postgres: PostgresStore, raw: Raw) -> None:
    instance = await worker(postgres)
    await declare(postgres, each=Bounds(1), whole=Bounds(1))
    await add_jobs(postgres, "a", 2)
    [job] = await take(postgres, instance)
    await raw.execute("UPDATE drumbeat.lane SET running = 7")
    await raw.execute("UPDATE drumbeat.line SET running = -3")
    assert await postgres.limits.sweep(0, 100) == (0, 2)
    assert await take(postgres, instance) == []
    await finish(postgres, instance, job)
    assert len(await take(postgres, instance)) == 1


async def test_never_too_many_at_once_and_none_is_lost(url: str, postgres: PostgresStore, raw: Raw, third: Raw) -> None:
    """Claimers, adders, cancellations and deaths at random: a check in the database looks at every claim, and in the end no job
    is left, and nothing has to be corrected."""
    await raw.execute("""
        CREATE FUNCTION drumbeat.check_limits() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF (SELECT count(*) FROM drumbeat.job WHERE state = 'running' AND lane = NEW.lane) > 2
               OR (SELECT count(*) FROM drumbeat.job WHERE state = 'running' AND lane >= 'tight ' AND lane < 'tight!') > 3
            THEN
                RAISE EXCEPTION 'too many at once in %', NEW.lane USING ERRCODE = 'DB009';
            END IF;
            RETURN NULL;
        END $$;
        CREATE TRIGGER check_limits AFTER UPDATE ON drumbeat.job
           FOR EACH ROW WHEN (NEW.state = 'running' AND OLD.state = 'pending' AND NEW.lane <> '')
               EXECUTE FUNCTION drumbeat.check_limits()""")
    await declare(postgres, "greet", each=Bounds(2), fair=True)
    await declare(postgres, "tight", each=Bounds(2), whole=Bounds(3))
    await declare(postgres, "held", order="hold")
    dice = random.Random(7)
    loop = asyncio.get_running_loop()
    end = loop.time() + RUN_S
    added = 0

    def some_jobs(count: int) -> list[Any]:
        return [
            lane_job(
                dice.choice("abcdef"),
                line=(line := dice.choice(["greet", "tight", "held"])),
                task=line,
                priority=dice.choice([1, 5]),
                delay=dice.choice([0, 0, 0, 20_000]),
                retries=99,
                crash_limit=99,
            )
            for _ in range(count)
        ]

    async def add_some(connection: Any) -> None:
        nonlocal added
        while loop.time() < end - RUN_S / 4:
            jobs = some_jobs(dice.choice([1, 3, 30]))
            if dice.random() < 0.3:
                await connection.execute("BEGIN")
                await postgres.transactional.add(connection, jobs)
                await connection.execute(f"SELECT pg_sleep({dice.random() / 50})")
                await connection.execute("COMMIT")
            else:
                await postgres.jobs.add(jobs)
            added += len(jobs)
            if dice.random() < 0.2:
                await postgres.jobs.cancel([dice.choice(jobs).id])
            await postgres.jobs.run_now([job.id for job in jobs])
            await connection.execute(f"SELECT pg_sleep({dice.random() / 20})")

    async def work(store: PostgresStore) -> None:
        instance = await worker(store)
        outcomes: list[Outcome] = []
        while True:
            answer = await exchange(store, instance, outcomes, asking(limit=dice.choice([1, 4, 40])))
            outcomes = []
            if not answer.jobs and answer.next_due_at is None and loop.time() > end:
                return
            if dice.random() < 0.03:
                await postgres.instances.declare_dead(instance, beat=None, started=None, reason="test")
                outcomes = [outcome(job, OutcomeKind.SUCCEEDED) for job in answer.jobs[:1]]
                await exchange(store, instance, outcomes)
                outcomes, instance = [], await worker(store)
                continue
            for job in answer.jobs:
                kind = dice.choices([OutcomeKind.SUCCEEDED, OutcomeKind.RETRY, OutcomeKind.RELEASED], [8, 1, 1])[0]
                delay = {"delay": 5_000} if kind is OutcomeKind.RETRY else {}
                outcomes.append(outcome(job, kind, **delay))
            if not answer.jobs:
                await store.inspect.now()

    async with AsyncExitStack() as stack, asyncio.timeout(RUN_S * 6 + 20):
        stores = [await stack.enter_async_context(await PostgresStore.open(address_of(url))) for _ in range(4)]
        async with asyncio.TaskGroup() as group:
            for store in stores:
                group.create_task(work(store))
            for connection in (raw, third):
                group.create_task(add_some(connection))
    left = await raw.fetch("SELECT lane, state, count(*) FROM drumbeat.job GROUP BY lane, state")
    assert left == [], "lost"
    assert added == await raw.fetchval("SELECT count(*) FROM drumbeat.history")
    assert (await postgres.limits.sweep(0, 1_000))[1] == 0
    assert await raw.fetchval("SELECT count(*) FROM drumbeat.lane WHERE running <> 0") == 0
    assert set((await groups_of(postgres, "tight")).values()) <= {(0, 0)}


@pytest.mark.parametrize("kind", [OutcomeKind.SUCCEEDED, OutcomeKind.SNOOZED])
@pytest.mark.parametrize("limit", [None, 1])
async def test_room_that_a_worker_does_not_take_wakes_others(
    postgres: PostgresStore, kind: OutcomeKind, limit: int | None
) -> None:
    """It reports without a claim, or takes plain jobs as many as it can."""
    instance = await worker(postgres)
    await declare(postgres, each=Bounds(1))
    await add_jobs(postgres, "a", 3)
    jobs = await take(postgres, instance)
    assert len(jobs) == 1
    plain = await add(postgres, *(new_job(task="plain") for _ in range(3)))
    await postgres._parts.notifier.flush()
    postgres._parts.filler._ready_lines.clear()  # else it might be the turn of the lane
    heard: list[int] = []
    postgres._parts.notifier.listeners.append(heard.append)
    ended = [outcome(job, kind, **({"delay": HOUR} if kind is OutcomeKind.SNOOZED else {})) for job in jobs]
    answer = await exchange(postgres, instance, ended, None if limit is None else asking(limit=limit))
    assert set(ids(answer.jobs)) <= set(plain)
    assert heard and min(heard) <= answer.now


async def test_the_death_of_an_instance_wakes_others_for_the_room_of_its_runs(postgres: PostgresStore) -> None:
    instance = await worker(postgres)
    await declare(postgres, each=Bounds(1))
    await add(postgres, *(lane_job("a", crash_limit=1) for _ in range(2)))
    assert len(await take(postgres, instance)) == 1
    heard: list[int] = []
    postgres._parts.notifier.listeners.append(heard.append)
    await postgres.instances.declare_dead(instance, beat=None, started=None, reason="test")
    assert heard


@pytest.fixture
async def crowded(url: str, raw: Raw) -> AsyncIterator[tuple[PostgresStore, InstanceId]]:
    """Many lanes with a job each, and many jobs in one that is full; nothing was ever analysed."""
    async with await PostgresStore.open(address_of(url)) as store:
        instance = await worker(store)
        await declare(store, each=Bounds(2))
        await add_jobs(store, "full", 2)
        assert len(await take(store, instance)) == 2
        await raw.execute("ALTER TABLE drumbeat.job DISABLE TRIGGER USER")
        await raw.execute(FILL, WAITING, LANES, timeout=300)
        await raw.execute("ALTER TABLE drumbeat.job ENABLE TRIGGER USER")
        await raw.execute(
            "INSERT INTO drumbeat.lane (queue, name, line, head_at, levels, used_at)"
            " SELECT queue, lane, 'greet', run_at, 32, 0 FROM drumbeat.job WHERE lane <> 'greet full'",
            timeout=300,
        )
        yield store, instance


async def explain_lanes(store: PostgresStore, statement: str, *arguments: Any) -> dict[str, Any]:
    return await explain(store._parts.claim_connection, statement, *arguments)


async def test_a_claim_of_lanes_touches_no_more_than_it_takes(
    crowded: tuple[PostgresStore, InstanceId], raw: Raw
) -> None:
    store, instance = crowded
    limit = 100
    hot = await explain_lanes(store, SQL.report_and_claim, *claim_arguments(instance, [], limit))
    assert pages(hot) < 200, "it must not look at jobs of lanes"
    assert "Seq Scan" not in {kind for kind, _ in scans_of(hot, "lane")}
    opened = await explain_lanes(store, SQL.open_lanes, ["default"], limit, 1_000)
    assert opened["Actual Rows"] == limit + 1
    assert pages(opened) < 20 * limit
    names = [row[0] for row in await raw.fetch("SELECT name FROM drumbeat.lane WHERE line = 'greet' LIMIT $1", limit)]
    asked = [["default"] * limit, names, [2] * limit, [32] * limit]
    for order in ("", "hold", "skip"):
        now = await store.inspect.now()
        taken = await explain_lanes(store, SQL.claim_lanes, instance, now, *asked, [order] * limit)
        assert {index for _, index in scans_of(taken, "job")} <= {"job_for_claim", "job_in_order", "job_pkey", ""}
        assert "Seq Scan" not in {kind for kind, _ in scans_of(taken, "job")}
        assert pages(taken) < 80 * limit
    places = [row[0] for row in await raw.fetch("SELECT ctid::text FROM drumbeat.lane LIMIT $1", limit)]
    zero, none = [0] * limit, [None] * limit
    settled = await explain_lanes(
        store, SQL.settle_lanes, places, zero, none, zero, zero, ["[]"] * limit, zero, zero, zero, 0
    )
    assert {kind for kind, _ in scans_of(settled, "lane")} <= {"Tid Scan"}
    assert pages(settled) < 40 * limit


async def test_jobs_that_wait_in_a_full_lane_cost_a_claim_nothing(
    crowded: tuple[PostgresStore, InstanceId], raw: Raw
) -> None:
    store, instance = crowded
    touched = "SELECT sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read) FROM pg_statio_user_tables"
    done = 0
    await raw.execute("SELECT pg_stat_force_next_flush()")
    await raw.execute("SELECT pg_stat_clear_snapshot()")
    before = await raw.fetchval(touched)
    for _ in range(10):
        jobs = await take(store, instance, limit=100)
        done += len(jobs)
        await finish(store, instance, *jobs)
    assert done == 1_000
    await store._parts.claim_connection.close()
    await raw.execute("SELECT pg_stat_clear_snapshot()")
    assert await raw.fetchval(touched) - before < 150 * done


@asynccontextmanager
async def snapshot_of(raw: Raw) -> AsyncIterator[None]:
    """An open snapshot of another session: nothing that dies meanwhile can be vacuumed."""
    async with raw.transaction(isolation="repeatable_read"):
        await raw.fetchval("SELECT 1 FROM drumbeat.lane LIMIT 1")
        yield


async def test_lanes_are_served_beside_an_open_snapshot(postgres: PostgresStore, raw: Raw) -> None:
    instance = await worker(postgres)
    await declare(postgres, each=Bounds(1), fair=True)
    async with snapshot_of(raw):
        await postgres.jobs.add([lane_job(f"g{number % 20}") for number in range(400)])
        done = 0
        while jobs := await take(postgres, instance, limit=20):
            done += len(jobs)
            await finish(postgres, instance, *jobs)
        assert done == 400


async def test_a_future_job_of_a_lane_is_no_reason_to_look_again(postgres: PostgresStore) -> None:
    instance = await worker(postgres)
    await declare(postgres, each=Bounds(1))
    await add_jobs(postgres, "a", 1, delay=HOUR)
    for _ in range(2):
        answer = await ask(postgres, instance)
        assert answer.next_due_at is not None and answer.next_due_at > answer.now + HOUR // 2
