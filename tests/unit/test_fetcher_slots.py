"""Jobs under limits are claimed for slots that are free and promised to nobody; where they wait, nothing is prefetched."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from drumbeat.clock import FakeClock
from drumbeat.core.claim import ClaimRequest
from drumbeat.worker.buffer import JobBuffer
from drumbeat.worker.fetcher import CAUTIOUS_ANSWERS, FetchCapacity, Fetcher, FetchTimer
from drumbeat.worker.prefetch import Prefetch
from drumbeat.worker.queue_weights import QueueWeights
from tests.unit.test_fetcher import answer, job
from tests.waiting import until

BATCH, SLOTS = 40, 4


class SlotBench:
    """A fetcher of a worker with quick jobs, and as many waiting slots as a test wants."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.woken = 0
        self.buffer = JobBuffer(self._wake)
        self.prefetch = Prefetch(SLOTS, max_jobs=4 * BATCH)
        self.prefetch.record_run(1)
        self.capacity = FetchCapacity(self.buffer, self.prefetch, batch_sizes={}, max_claim=BATCH)
        self.fetcher = Fetcher(FetchTimer(self.clock, 600.0), self.capacity, QueueWeights({"default": 1}), self._wake)

    def _wake(self) -> None:
        self.woken += 1

    @asynccontextmanager
    async def waiting(self, count: int) -> AsyncIterator[None]:
        before = self.buffer.idle_slots
        async with asyncio.TaskGroup() as group:
            slots = [group.create_task(self.buffer.take()) for _ in range(count)]
            await until(lambda: self.buffer.idle_slots == before + count)
            yield
            for slot in slots:
                slot.cancel()

    def ask(self) -> ClaimRequest:
        claim = self.fetcher.next_claim()
        assert claim is not None
        return claim

    def reply(self, claim: ClaimRequest, *, jobs: int = 0, has_limited: bool = False) -> None:
        self.fetcher.on_answer(claim, answer(self.clock, jobs=jobs, has_limited=has_limited), self.clock.monotonic())


@pytest.fixture
def bench() -> SlotBench:
    return SlotBench()


async def test_a_claim_offers_the_slots_that_wait(bench: SlotBench) -> None:
    async with bench.waiting(3):
        claim = bench.ask()
    assert claim.slots == 3
    assert claim.limit == BATCH, "plain jobs are prefetched beside them"


async def test_slots_that_are_promised_to_a_claim_in_flight_are_not_offered_again(bench: SlotBench) -> None:
    bench.reply(bench.ask(), jobs=BATCH)  # there may be more: both lanes of the store loop claim
    async with bench.waiting(3):
        first = bench.ask()
        second = bench.ask()
        assert (first.slots, second.slots) == (3, 0)
        bench.reply(first, jobs=BATCH)
        bench.fetcher.on_claim_failed(second)
        assert bench.ask().slots == 3


async def test_slots_that_held_jobs_will_take_are_not_offered(bench: SlotBench) -> None:
    bench.buffer.put([job(1), job(2)])
    assert bench.ask().slots == 0


async def test_where_jobs_under_limits_wait_nothing_is_prefetched_and_a_free_slot_is_a_reason_to_claim(
    bench: SlotBench,
) -> None:
    claim = bench.ask()
    bench.reply(claim, has_limited=True)
    assert bench.fetcher.next_claim() is None, "no slot is free"
    assert bench.fetcher.seconds_until_poll is None, "so it does not even ask when"
    async with bench.waiting(2):
        assert bench.woken, "a slot that begins to wait wakes the loop"
        claim = bench.ask()
        assert (claim.limit, claim.slots) == (2, 2)
        assert bench.fetcher.next_claim() is None, "once for each free slot"
        bench.reply(claim, jobs=0)
        assert bench.fetcher.next_claim() is None, "they are gone: it waits as ever"


async def test_a_full_answer_may_say_so_too(bench: SlotBench) -> None:
    claim = bench.ask()
    bench.reply(claim, jobs=BATCH, has_limited=True)
    assert bench.capacity.prefetch_limit == 0
    assert bench.fetcher.next_claim() is None


async def test_after_that_little_is_prefetched_for_a_while(bench: SlotBench) -> None:
    limits: list[int] = []
    bench.reply(bench.ask(), jobs=BATCH, has_limited=True)
    async with bench.waiting(1):
        for _ in range(CAUTIOUS_ANSWERS):
            bench.reply(bench.ask(), jobs=BATCH, has_limited=False)
            limits.append(bench.capacity.prefetch_limit)
    assert set(limits[:-1]) == {SLOTS} and limits[-1] == 4 * BATCH


async def test_jobs_that_were_claimed_for_slots_start_before_those_that_wait_here() -> None:
    buffer = JobBuffer(lambda: None)
    buffer.put([job(1), job(2)])
    buffer.put([job(3)], first=[job(4), job(5)])
    assert [(await taken(buffer)) for _ in range(5)] == ["4", "5", "1", "2", "3"]


async def taken(buffer: JobBuffer) -> str:
    found = await buffer.take()
    assert found is not None
    return found.id
