"""The lower bound of a claim: it keeps claims quick where dead rows cannot be cleared away, and hides no job."""

from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest

from drumbeat.clock import FakeClock
from drumbeat.core.claim import ClaimRequest, Outcome
from drumbeat.core.job import OutcomeKind
from drumbeat.store.postgres import PostgresStore
from drumbeat.store.postgres.claim import NO_BOUND, ScanBound, ScanBounds
from drumbeat.store.protocol.wake import Subscriber
from tests.contract.making import add, claim, claimed_one, hold, ids, new_job, release, wanting, worker
from tests.engines.postgres.conftest import address_of
from tests.waiting import until

MANY, BATCH = 10_000, 250
SECOND = 1_000_000


async def test_a_job_below_the_bound_is_found_by_a_claim_that_is_not_filled(url: str) -> None:
    async with await PostgresStore.open(address_of(url)) as store, await PostgresStore.open(address_of(url)) as other:
        instance = await worker(store)
        await add(store, new_job(), new_job())
        assert len(await claim(store, instance, limit=1)) == 1
        [late] = await add(other, new_job(run_at=await store.inspect.now() - 3600 * SECOND))
        found = await claim(store, instance, limit=10)
        assert late in ids(found) and len(found) == 2


async def test_an_earlier_job_that_was_hinted_at_is_claimed_next(url: str) -> None:
    async with await PostgresStore.open(address_of(url)) as store, await PostgresStore.open(address_of(url)) as other:
        instance = await worker(store)
        hints: list[int] = []
        await add(store, new_job(), new_job(), new_job())
        async with store.wake.listen(Subscriber(hints.append)):
            assert len(await claim(store, instance, limit=1)) == 1
            [urgent] = await add(other, new_job(run_at=5))
            await until(lambda: 5 in hints, what="the hint")
            assert ids(await claim(store, instance, limit=1)) == [urgent]


async def test_what_is_given_back_below_the_bound_is_claimed_next(postgres: PostgresStore) -> None:
    instance = await worker(postgres)
    early = await claimed_one(postgres, instance, run_at=5)
    await add(postgres, new_job(), new_job())
    assert len(await claim(postgres, instance, limit=1)) == 1
    await release(postgres, instance, hold(early))
    assert ids(await claim(postgres, instance, limit=1)) == [early.id]


async def test_the_bound_is_trusted_for_a_second_only() -> None:
    clock = FakeClock()
    bounds = ScanBounds(clock)
    asked = ClaimRequest(queues=(("default", 1),), limit=1)
    bounds.advance([fake_claimed(run_at=10 * SECOND, priority=5)])
    assert bounds.for_claim(asked) == [NO_BOUND] * 5 + [ScanBound(9_900_000, None)] + [NO_BOUND] * 4
    await clock.advance(0.9)
    bounds.advance([fake_claimed(run_at=11 * SECOND, priority=5)])
    assert bounds.for_claim(asked)[5] == ScanBound(10_900_000, None)
    await clock.advance(0.2)
    assert bounds.for_claim(asked) == [NO_BOUND] * 10


def test_a_hint_lowers_the_bound_as_far_as_it_must() -> None:
    bounds = ScanBounds(FakeClock())
    asked = ClaimRequest(queues=(("other", 1), ("default", 1)), limit=1)
    bounds.advance([fake_claimed(run_at=10 * SECOND, priority=0)])
    bounds.lower_to(10 * SECOND)
    assert bounds.for_claim(asked) == [NO_BOUND] * 10 + [ScanBound(9_900_000, None)] + [NO_BOUND] * 9
    bounds.lower_to(9 * SECOND)
    assert bounds.for_claim(asked) == [NO_BOUND] * 10 + [ScanBound(9 * SECOND, None)] + [NO_BOUND] * 9
    bounds.lower_to(NO_BOUND.run_at)
    assert bounds.for_claim(asked) == [NO_BOUND] * 20


def test_after_a_claim_of_one_run_at_the_next_starts_at_its_last_id() -> None:
    bounds = ScanBounds(FakeClock())
    asked = ClaimRequest(queues=(("default", 1),), limit=1)
    bounds.advance(
        [fake_claimed(run_at=SECOND, priority=0, id=id) for id in "abc"] + [fake_claimed(run_at=SECOND, priority=1)]
    )
    assert bounds.for_claim(asked)[:3] == [ScanBound(SECOND, "c"), ScanBound(900_000, None), NO_BOUND]  # type: ignore[arg-type]
    bounds.advance([fake_claimed(run_at=SECOND, priority=0, id=id) for id in "ab"])
    assert bounds.for_claim(asked)[0] == ScanBound(SECOND, "c"), "an answer that comes late does not lower it"  # type: ignore[arg-type]
    bounds.lower_to(SECOND)
    assert bounds.for_claim(asked)[0] == ScanBound(SECOND, None), "a job with this run_at may have a smaller id"


def fake_claimed(*, run_at: int, priority: int, id: str = "i") -> Any:
    return SimpleNamespace(run_at=run_at, priority=priority, queue="default", id=id)


async def count_index_steps(url: str, raw: Any, apart: int) -> int:
    """Drain many jobs, due so many µs after each other, while another session's snapshot is open; returns how many entries of
    the claim index were stepped on."""
    async with await PostgresStore.open(address_of(url)) as store:
        instance = await worker(store)
        now = await store.inspect.now()
        await add(store, *(new_job(run_at=now - number * apart) for number in range(MANY)))
        async with raw.transaction(isolation="repeatable_read"):
            await raw.fetch("SELECT count(*) FROM drumbeat.meta")
            before = await read_index_steps(url)
            outcomes: list[Outcome] = []
            for _ in range(MANY // BATCH):
                answer = await store.jobs.report_and_claim(instance, outcomes, wanting(limit=BATCH))
                assert len(answer.jobs) == BATCH
                outcomes = [Outcome(id=job.id, token=job.token, kind=OutcomeKind.SUCCEEDED) for job in answer.jobs]
            await store._parts.claim_connection.close()  # its last counts are reported when it ends
            return await read_index_steps(url) - before


async def read_index_steps(url: str) -> int:
    other = await asyncpg.connect(url)
    try:
        found: int = await other.fetchval(
            "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'job_for_claim'"
        )
        return found
    finally:
        await other.close()


@pytest.mark.parametrize("apart", [SECOND, 0])
async def test_an_open_snapshot_elsewhere_does_not_slow_claims(
    url: str, raw: Any, monkeypatch: pytest.MonkeyPatch, apart: int
) -> None:
    bounded = await count_index_steps(url, raw, apart)
    monkeypatch.setattr(ScanBounds, "advance", lambda self, jobs: None)
    unbounded = await count_index_steps(url, raw, apart)
    assert bounded < unbounded / 5, f"{bounded} steps with the bound, {unbounded} without"


async def test_a_job_of_the_same_run_at_and_a_smaller_id_is_found(url: str) -> None:
    """Its producer's clock is behind, or it was slow."""
    async with await PostgresStore.open(address_of(url)) as store, await PostgresStore.open(address_of(url)) as other:
        instance = await worker(store)
        moment = await store.inspect.now() - SECOND
        late = new_job(run_at=moment)
        await add(store, *(new_job(run_at=moment) for _ in range(4)))
        assert len(await claim(store, instance, limit=2)) == 2
        await add(other, late)
        assert late.id in ids(await claim(store, instance, limit=4))
