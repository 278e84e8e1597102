"""Schedules on PostgreSQL: plans, days of history that come later, lines that nobody moves, and no deadlock."""

import asyncio
from typing import Any

import asyncpg
import pytest

from drumbeat.core.job import JobState, OutcomeKind
from drumbeat.core.job_query import JobFilter
from drumbeat.core.schedule import Overlap
from drumbeat.store.job_reads import find_jobs
from drumbeat.store.postgres import PostgresStore
from drumbeat.store.postgres.statements import statements
from tests.contract.making import claim, end, outcome, report, worker
from tests.contract.scheduling import SECOND, after, fire, firing, got, new_schedule, put
from tests.engines.postgres.conftest import address_of
from tests.engines.postgres.test_plans import explain, pages, scans_of

MANY = 20_000
SQL = statements("drumbeat").schedules
WAITING = JobFilter(state=JobState.PENDING, limit=20)
FILL = """
INSERT INTO drumbeat.schedule (name, task, kind, rule, queue, args, signature, tz, priority, crash_limit, catch_up,
                               catch_up_limit, overlap, jitter, origin, app, version, every, state, revision, next_at,
                               created_at, changed_at, declared_at, changed_by, reason)
SELECT 's' || number, 'noop', 'grid', '1', 'default', '{}', 's', 'UTC', 5, 3, 'latest', 100, 'skip', 0, 'code', 'a', '1',
       CASE WHEN number % 2 = 0 THEN number END, 'active', 1, drumbeat.now_us() + 3600000000 + number, 1, 1, 99, '', ''
  FROM generate_series(1, $1::integer) AS number"""


@pytest.fixture(params=["never analysed", "analysed when empty", "settled"])
async def filled(request: pytest.FixtureRequest, postgres: PostgresStore, raw: Any) -> PostgresStore:
    """A store with many schedules, none of which is due."""
    await raw.execute("ALTER TABLE drumbeat.schedule SET (autovacuum_enabled = off)")
    if request.param == "analysed when empty":
        await raw.execute("ANALYZE drumbeat.schedule")
    await raw.execute(FILL, MANY, timeout=300)
    if request.param == "settled":
        await raw.execute("VACUUM ANALYZE drumbeat.schedule")
    return postgres


async def test_an_idle_read_is_an_index_probe(filled: PostgresStore, raw: Any) -> None:
    now = await raw.fetchval("SELECT drumbeat.now_us()")
    due = await explain(filled._parts.connection, SQL.due, now, 200)
    assert {index for _, index in scans_of(due, "schedule")} == {"schedule_by_next_at"}
    ahead = await explain(filled._parts.connection, SQL.next_due)
    assert {index for _, index in scans_of(ahead, "schedule")} == {"schedule_by_next_at", "schedule_running"}
    for plan in (due, ahead, await explain(filled._parts.connection, SQL.find_stalled, [])):
        assert pages(plan) < 40


async def test_a_fire_uses_the_index_of_names(filled: PostgresStore) -> None:
    names = [f"s{number}" for number in range(1, 201)]
    none = [None] * 200
    for statement, given in (
        (SQL.lock, [names]),
        (SQL.move_cursor, [names, [False] * 200, none, none, none]),
        (SQL.enqueue, [names, [f"00000000-0000-7000-8000-{n:012}" for n in range(200)], [1] * 200, [1] * 200, none]),
    ):
        plan = await explain(filled._parts.connection, statement, *given)
        assert {index for _, index in scans_of(plan, "schedule") if index} == {"schedule_pkey"}
        assert "Seq Scan" not in {kind for kind, _ in scans_of(plan, "schedule")}


async def test_a_day_of_history_that_is_made_later_lets_schedules_go_on(postgres: PostgresStore, raw: Any) -> None:
    """A finish that lies in a day which nobody has made yet."""
    await put(postgres, after())
    await fire(postgres, "sweep", 10)
    me = await worker(postgres)
    [job] = await claim(postgres, me)
    far = 2_524_608_000_000_000
    assert await raw.fetchval("SELECT to_regclass('drumbeat.history_20500101')") is None
    await end(postgres, me, job, OutcomeKind.SUCCEEDED, finished_at=far)
    assert await raw.fetchval("SELECT count(*) FROM drumbeat.history_20500101") == 1
    found = await got(postgres, "sweep")
    assert (found.current, found.next_at is not None) == (None, True)


async def test_what_a_program_of_the_version_before_ends_is_set_going_by_the_sweep(
    postgres: PostgresStore, raw: Any
) -> None:
    """Its statements name no schedule, so that nothing is triggered."""
    await put(postgres, after())
    await put(postgres, new_schedule(overlap=Overlap.QUEUE))
    await fire(postgres, "sweep", 10)
    _, queued = (await fire(postgres, "nightly", 10, 20)).jobs
    await raw.execute("DELETE FROM drumbeat.job WHERE blocked_on IS NULL")
    assert await postgres.schedules.advance_stalled() == 2
    assert (await got(postgres, "sweep")).next_at is not None
    assert (await got(postgres)).current == queued
    assert [job.id for job in await claim(postgres, await worker(postgres))] == [queued]


async def test_the_end_of_a_job_does_not_wait_for_a_locked_successor(postgres: PostgresStore, raw: Any) -> None:
    """Whoever cancels a job holds it, and may want the schedule next."""
    await put(postgres, new_schedule(overlap=Overlap.QUEUE))
    _, queued = (await fire(postgres, "nightly", 10, 20)).jobs
    me = await worker(postgres)
    [job] = await claim(postgres, me)
    async with raw.transaction(), asyncio.timeout(3):
        await raw.execute("SELECT FROM drumbeat.job WHERE id = $1 FOR UPDATE", queued)
        assert await report(postgres, me, outcome(job, OutcomeKind.SUCCEEDED)) == ["applied"]
    assert await postgres.schedules.advance_stalled() == 1
    assert (await got(postgres)).current == queued


async def test_a_locked_schedule_is_fired_when_the_lock_is_released(postgres: PostgresStore, raw: Any) -> None:
    held, free = await put(postgres, new_schedule("held")), await put(postgres, new_schedule("free"))
    transaction = raw.transaction()
    await transaction.start()
    await raw.execute("SELECT FROM drumbeat.schedule WHERE name = 'held' FOR UPDATE")
    async with asyncio.TaskGroup() as group:
        firing_both = group.create_task(postgres.schedules.fire([firing(held, 10), firing(free, 10)]))
        while not await raw.fetchval("SELECT count(*) FROM drumbeat.fire"):
            assert not firing_both.done()
        await transaction.rollback()
    assert [fired.applied for fired in firing_both.result()] == [True, True]


async def test_a_schedule_that_stays_locked_is_refused_and_delays_no_other(postgres: PostgresStore, raw: Any) -> None:
    held, free = await put(postgres, new_schedule("held")), await put(postgres, new_schedule("free"))
    transaction = raw.transaction()
    await transaction.start()
    await raw.execute("SELECT FROM drumbeat.schedule WHERE name = 'held' FOR UPDATE")
    fired = await postgres.schedules.fire([firing(held, 10), firing(free, 10)])
    await transaction.rollback()
    assert [each.applied for each in fired] == [False, True]
    assert (await fire(postgres, "held", 10)).applied


async def test_fires_and_ends_of_many_schedules_never_deadlock(url: str, postgres: PostgresStore, raw: Any) -> None:
    """Both touch jobs and schedules, in opposite orders; a deadlock would be repeated, and cost a second each."""
    before = await deadlocks(raw)
    number_of = 30
    for number in range(number_of):
        overlap = list(Overlap)[number % 4]
        await put(postgres, new_schedule(f"s{number:02}", overlap=overlap), next_at=SECOND)

    async def control(store: PostgresStore) -> None:
        for _ in range(12):
            found = (await store.schedules.get_due(100)).schedules
            firings = [firing(each, (each.next_at or 0), next_at=(each.next_at or 0) + SECOND) for each in found]
            await store.schedules.fire(firings)
            await store.schedules.declare([each.name for each in reversed(found)])
            await store.schedules.advance_stalled()

    async def work(store: PostgresStore, me: Any) -> None:
        for turn in range(12):
            jobs = await claim(store, me, limit=40)
            ended = [outcome(job, OutcomeKind.SUCCEEDED if turn % 2 else OutcomeKind.DEAD) for job in reversed(jobs)]
            await report(store, me, *ended)
            waiting = [job.id for job in await find_jobs(store, WAITING)]
            await store.jobs.cancel(waiting[::-3])

    async with (
        await PostgresStore.open(address_of(url)) as one,
        await PostgresStore.open(address_of(url)) as two,
        await PostgresStore.open(address_of(url)) as three,
    ):
        workers = [(store, await worker(store)) for store in (two, three)]
        async with asyncio.TaskGroup() as group:
            for store in (postgres, one):
                group.create_task(control(store))
            for store, me in workers:
                group.create_task(work(store, me))
    assert await deadlocks(raw) == before


async def deadlocks(raw: Any) -> int:
    await raw.execute("SELECT pg_stat_clear_snapshot()")
    found: int = await raw.fetchval("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    return found


async def test_a_second_job_for_a_fire_time_is_refused_by_the_table_itself(postgres: PostgresStore, raw: Any) -> None:
    """Two leaders that both fire: whatever their code believes, one of them rolls back."""
    await put(postgres, new_schedule())
    await fire(postgres, "nightly", 10)
    again = "INSERT INTO drumbeat.fire SELECT * FROM drumbeat.fire"
    with pytest.raises(asyncpg.UniqueViolationError):
        await raw.execute(again)
