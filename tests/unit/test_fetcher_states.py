"""The fetcher's state machine: each state, each event, and the state that follows."""

from collections.abc import Callable
from typing import Any

import pytest

from drumbeat.clock import FakeClock
from drumbeat.core.claim import ClaimRequest
from drumbeat.worker.buffer import JobBuffer
from drumbeat.worker.fetcher import FetchCapacity, Fetcher, FetchState, FetchTimer
from drumbeat.worker.prefetch import Prefetch
from drumbeat.worker.queue_weights import QueueWeights
from tests.unit.test_fetcher import BATCH, POLL, answer

STATES = tuple(state.name for state in FetchState)


def state_of(fetcher: Fetcher) -> str:
    return fetcher.state.name


class Bench:
    """A fetcher in a given state, with one claim under way, and switches for its surroundings."""

    def __init__(self, state: str) -> None:
        self.clock = FakeClock()
        self.is_resting = False
        prefetch = Prefetch(10, max_jobs=5 * BATCH)
        prefetch.record_run(1)
        weights = QueueWeights({"default": 1}, rests={"default": lambda: self.is_resting})
        capacity = FetchCapacity(JobBuffer(lambda: None), prefetch, batch_sizes={}, max_claim=BATCH)
        self.fetcher = Fetcher(FetchTimer(self.clock, POLL), capacity, weights, lambda: None)
        self.claim = self.ask()
        match state:
            case "WAITING":
                pass
            case "NOTIFIED":
                self.fetcher.on_notification(0)
            case "STREAMING":
                self.answer_full()
                self.claim = self.ask()
            case "STREAMING_NOTIFIED":
                self.answer_full()
                self.claim = self.ask()
                self.fetcher.on_notification(0)
            case "STOPPED":
                self.fetcher.stop()
        assert state_of(self.fetcher) == state

    def ask(self) -> ClaimRequest:
        claim = self.fetcher.next_claim()
        assert claim is not None
        return claim

    def answer_full(self) -> None:
        self.fetcher.on_answer(self.claim, answer(self.clock, jobs=BATCH), self.clock.monotonic())

    def answer_partly(self) -> None:
        self.fetcher.on_answer(self.claim, answer(self.clock, jobs=1), self.clock.monotonic())

    def ask_while_resting(self) -> None:
        self.is_resting = True
        assert self.fetcher.next_claim() is None

    def park_without_capacity(self) -> None:
        self.fetcher.capacity.on_stalled()
        assert self.fetcher.next_parked_claim() is None


EVENTS: dict[str, Callable[[Bench], Any]] = {
    "notification": lambda bench: bench.fetcher.on_notification(0),
    "notification of a later job": lambda bench: bench.fetcher.on_notification(bench.clock.now_us() + 1_000_000),
    "unblocked jobs": lambda bench: bench.fetcher.set_unblocks(("version:a",)),
    "next claim": lambda bench: bench.fetcher.next_claim(),
    "next claim, all queues rest": Bench.ask_while_resting,
    "parked claim": lambda bench: bench.fetcher.next_parked_claim(),
    "parked claim without capacity": Bench.park_without_capacity,
    "full answer": Bench.answer_full,
    "partial answer": Bench.answer_partly,
    "failed claim": lambda bench: bench.fetcher.on_claim_failed(bench.claim),
    "stop": lambda bench: bench.fetcher.stop(),
}

W, N, S, SN, X = STATES
TABLE: dict[str, tuple[str, ...]] = {  # the states that follow WAITING, NOTIFIED, STREAMING, STREAMING_NOTIFIED
    "notification": (N, N, SN, SN),
    "notification of a later job": (W, N, S, SN),
    "unblocked jobs": (N, N, SN, SN),
    "next claim": (W, W, S, S),
    "next claim, all queues rest": (W, W, W, W),
    "parked claim": (W, W, S, S),
    "parked claim without capacity": (N, N, SN, SN),
    "full answer": (SN, SN, SN, SN),
    "partial answer": (W, N, W, N),
    "failed claim": (N, N, SN, SN),
    "stop": (X, X, X, X),
}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", STATES)
def test_each_event_in_each_state(state: str, event: str) -> None:
    bench = Bench(state)
    EVENTS[event](bench)
    expected = X if state == X else TABLE[event][STATES.index(state)]
    assert state_of(bench.fetcher) == expected


@pytest.mark.parametrize(("state", "claims"), [(W, False), (N, True), (S, True), (SN, True), (X, False)])
def test_which_states_claim_at_once(state: str, claims: bool) -> None:
    bench = Bench(state)
    assert (bench.fetcher.next_claim() is not None) == claims
    assert (Bench(state).fetcher.seconds_until_poll == 0.0) == claims


@pytest.mark.parametrize(("state", "claims"), [(W, True), (X, False)])
async def test_a_waiting_fetcher_claims_when_the_poll_is_due(state: str, claims: bool) -> None:
    bench = Bench(state)
    await bench.clock.advance(2 * POLL)
    assert (bench.fetcher.next_claim() is not None) == claims


def test_an_answer_that_comes_after_the_stop_frees_its_capacity() -> None:
    bench = Bench(X)
    assert bench.fetcher.capacity.in_flight
    bench.answer_partly()
    assert not bench.fetcher.capacity.in_flight
