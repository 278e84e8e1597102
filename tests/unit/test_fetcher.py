"""When a worker claims jobs: once for each reason, and never later than the next known due time."""

from typing import Any

import pytest

from drumbeat.clock import FakeClock
from drumbeat.core.claim import ClaimedJob, ClaimResult
from drumbeat.worker.buffer import JobBuffer
from drumbeat.worker.fetcher import FetchCapacity, Fetcher, FetchTimer
from drumbeat.worker.prefetch import Prefetch
from drumbeat.worker.queue_weights import QueueWeights

BATCH = 10
POLL = 2.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def woken() -> list[None]:
    return []


@pytest.fixture
def fetcher(clock: FakeClock, woken: list[None]) -> Fetcher:
    """Of a worker whose jobs are quick: there is always capacity for more than a batch."""
    prefetch = Prefetch(10, max_jobs=4 * BATCH)
    prefetch.record_run(1)
    capacity = FetchCapacity(JobBuffer(lambda: None), prefetch, batch_sizes={}, max_claim=BATCH)
    return Fetcher(FetchTimer(clock, POLL), capacity, QueueWeights({"default": 1}), lambda: woken.append(None))


def job(number: int) -> ClaimedJob:
    facts: dict[str, Any] = dict.fromkeys(ClaimedJob.__struct_fields__)
    return ClaimedJob(**(facts | {"id": str(number), "task": "noop", "queue": "default"}))


def answer(clock: FakeClock, jobs: int = 0, **facts: Any) -> ClaimResult:
    return ClaimResult(statuses=[], jobs=[job(each) for each in range(jobs)], now=clock.now_us(), **facts)


def ask(fetcher: Fetcher, clock: FakeClock, **said: Any) -> None:
    claim = fetcher.next_claim()
    assert claim is not None
    fetcher.on_answer(claim, answer(clock, **said), clock.monotonic())


async def test_a_poll_is_made_once_however_many_lanes_there_are(fetcher: Fetcher, clock: FakeClock) -> None:
    ask(fetcher, clock)
    await clock.advance(2 * POLL)
    assert fetcher.next_claim() is not None
    assert fetcher.next_claim() is None


def test_both_lanes_go_on_while_claims_are_filled(fetcher: Fetcher, clock: FakeClock) -> None:
    ask(fetcher, clock, jobs=BATCH)
    assert fetcher.next_claim() is not None
    assert fetcher.next_claim() is not None


def test_an_answer_wakes_the_other_lane_which_may_sleep_for_too_long(
    fetcher: Fetcher, clock: FakeClock, woken: list[None]
) -> None:
    ask(fetcher, clock, next_due_at=clock.now_us() + 100_000)
    assert woken
    assert fetcher.seconds_until_poll == pytest.approx(0.1, abs=0.001)


def test_a_hint_that_is_younger_than_the_answer_is_not_forgotten(fetcher: Fetcher, clock: FakeClock) -> None:
    ask(fetcher, clock)
    fetcher.on_notification(0)
    claim = fetcher.next_claim()
    assert claim is not None
    fetcher.on_notification(clock.now_us() + 200_000)
    fetcher.on_answer(claim, answer(clock), clock.monotonic())
    assert fetcher.seconds_until_poll == pytest.approx(0.2, abs=0.001)


async def test_a_due_time_is_that_of_the_stores_clock(fetcher: Fetcher, clock: FakeClock) -> None:
    ask(fetcher, clock)
    behind = clock.now_us()
    clock.jump(3600)
    fetcher.on_notification(behind + 300_000)
    assert fetcher.seconds_until_poll == pytest.approx(0.3, abs=0.001)
    await clock.advance(0.31)
    claim = fetcher.next_claim()
    assert claim is not None and claim.is_expected


def test_idle_slots_do_not_wait_for_a_call_without_a_claim_and_make_one_claim(fetcher: Fetcher) -> None:
    assert fetcher.next_idle_claim() is not None
    assert fetcher.next_idle_claim() is None


def test_where_claims_stand_one_goes_with_the_last_outcomes_though_it_is_not_time(
    fetcher: Fetcher, clock: FakeClock
) -> None:
    ask(fetcher, clock, parked_claim=True)
    assert fetcher.next_claim() is None
    claim = fetcher.next_parked_claim()
    assert claim is not None
    fetcher.on_answer(claim, answer(clock, parked_claim=True), clock.monotonic())
    fetcher.on_parked_jobs([job(1)])
    assert fetcher.next_claim() is None, "what is running is no reason to ask"
    assert fetcher.next_parked_claim() is not None


def test_where_no_claim_stands_it_is_tried_once(fetcher: Fetcher, clock: FakeClock) -> None:
    ask(fetcher, clock)
    claim = fetcher.next_parked_claim()
    assert claim is not None
    fetcher.on_answer(claim, answer(clock), clock.monotonic())
    assert fetcher.next_parked_claim() is None
    fetcher.on_notification(0)
    ask(fetcher, clock, parked_claim=True)
    assert fetcher.next_parked_claim() is not None, "the store can do it again"
