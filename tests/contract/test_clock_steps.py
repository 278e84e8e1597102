"""The wall clock of the store steps back: tokens grow all the same, of jobs and of locks."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import msgspec
import pytest

from drumbeat.clock import SYSTEM, Clock, FakeClock
from drumbeat.core.claim import WriteStatus
from drumbeat.core.job import OutcomeKind
from drumbeat.core.lock import NewTicket, TicketStatus
from drumbeat.store.protocol import Store
from drumbeat.store.redis.scripts import SCRIPTS
from tests.contract.making import HOUR, claim, claimed_one, end, worker

Step = Callable[[int], Awaitable[None]]
"""Step the clock by so many seconds."""

BACK = (-3_600, -60, 0)
FUNCTIONS = ("drumbeat.now_us()", "drumbeat.clock_us()")
SECOND = 1_000_000


@pytest.fixture
def clock(engine: str) -> Clock:
    return FakeClock() if engine == "sqlite" else SYSTEM


@pytest.fixture
async def step(engine: str, store_url: str, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Step]:
    """A server's own clock is not for us to set: its functions and scripts read it with an offset."""
    if isinstance(clock, FakeClock):

        async def step_host(seconds: int) -> None:
            clock.jump(seconds)

        yield step_host
    elif engine.startswith("postgres"):
        raw = await asyncpg.connect(store_url)
        as_it_was = [await raw.fetchval("SELECT pg_get_functiondef($1::regprocedure)", each) for each in FUNCTIONS]
        yield lambda seconds: step_postgres(raw, seconds)
        for definition in as_it_was:
            await raw.execute(definition)
        await raw.close()
    else:

        async def step_redis(seconds: int) -> None:
            now = "local now = clock[1] * 1000000 + clock[2]\n"
            assert now[:-1] in SCRIPTS["report_and_claim"].lua and now[:-1] in SCRIPTS["acquire_lock"].lua
            for name, script in SCRIPTS.items():
                stepped = script.lua.replace(now[:-1], f"{now[:-1]} + ({seconds * SECOND})", 1)
                monkeypatch.setitem(SCRIPTS, name, msgspec.structs.replace(script, lua=stepped))

        yield step_redis


async def step_postgres(raw: "asyncpg.Connection[asyncpg.Record]", seconds: int) -> None:
    for name in FUNCTIONS:
        definition = await raw.fetchval("SELECT pg_get_functiondef($1::regprocedure)", name)
        stepped = definition.replace("::bigint", f"::bigint + ({seconds * SECOND})", 1)
        assert stepped != definition
        await raw.execute(stepped)


async def test_the_token_of_a_job_grows_at_each_claim(store: Store, step: Step) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance, run_at=await store.inspect.now() - 10 * HOUR)
    for seconds in BACK:
        old = job
        await end(store, instance, old, OutcomeKind.RELEASED)
        await step(seconds)
        [job] = await claim(store, instance)
        assert job.token > old.token
        assert await end(store, instance, old, OutcomeKind.SUCCEEDED) is WriteStatus.STALE
    assert await end(store, instance, job, OutcomeKind.SUCCEEDED) is WriteStatus.APPLIED


async def test_the_token_of_a_dead_letter_grows_when_it_is_replayed(store: Store, step: Step) -> None:
    instance = await worker(store)
    dead = await claimed_one(store, instance)
    await end(store, instance, dead, OutcomeKind.DEAD)
    await step(-3_600)
    await store.jobs.replay([dead.id])
    [again] = await claim(store, instance)
    assert again.token > dead.token
    assert await end(store, instance, again, OutcomeKind.SUCCEEDED) is WriteStatus.APPLIED


async def acquire(store: Store) -> TicketStatus:
    return await store.locks.acquire(NewTicket(id=os.urandom(8).hex(), lock="x", lease=HOUR, limit=2))


async def test_the_token_of_a_lock_grows_with_each_ticket(store: Store, step: Step) -> None:
    tokens = [(await acquire(store)).token]
    for seconds in BACK:
        held = await acquire(store)
        await store.locks.release([held.ticket])
        await step(seconds)
        tokens += [held.token, (await acquire(store)).token]
    assert tokens == sorted(set(tokens))
