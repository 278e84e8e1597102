"""The store's clock, estimated from its answers."""

import pytest

from drumbeat.clock import FakeClock
from drumbeat.worker.store_clock import MARGIN_SECONDS, MAX_AGE_SECONDS, StoreClock, StoreClockOffset

STORE_US = 1_800_000_000_000_000


def test_nothing_is_known_before_the_first_answer() -> None:
    assert StoreClockOffset().to_local(STORE_US, now=5.0) is None


def test_now_is_now_whatever_is_known() -> None:
    assert StoreClockOffset().to_local(0, now=5.0) == 5.0


def test_a_due_time_comes_when_the_stores_clock_shows_it_and_not_later() -> None:
    offset = StoreClockOffset()
    offset.record_answer(STORE_US, asked_at=100.0)
    assert offset.to_local(STORE_US + 3_000_000, now=100.5) == pytest.approx(103.0 + MARGIN_SECONDS, abs=1e-5)


def test_the_quickest_answer_counts() -> None:
    offset = StoreClockOffset()
    offset.record_answer(STORE_US + 50_000, asked_at=100.0)  # 50 ms passed before the store looked at its clock
    offset.record_answer(STORE_US + 1_000_000, asked_at=101.0)
    offset.record_answer(STORE_US + 2_080_000, asked_at=102.0)
    assert offset.to_local(STORE_US + 3_000_000, now=102.0) == pytest.approx(103.0 + MARGIN_SECONDS, abs=1e-5)


def test_clocks_that_drift_apart_are_compared_anew() -> None:
    offset = StoreClockOffset()
    offset.record_answer(STORE_US, asked_at=100.0)
    later = 100.0 + MAX_AGE_SECONDS + 1
    offset.record_answer(STORE_US + int((later - 100.0) * 1e6) + 30_000, asked_at=later)
    due = STORE_US + int((later - 100.0) * 1e6) + 1_030_000
    assert offset.to_local(due, now=later) == pytest.approx(later + 1.0 + MARGIN_SECONDS, abs=1e-5)


def test_a_slow_answer_does_not_set_back_the_stores_clock() -> None:
    """Two calls are under way: one claims a job, the other comes back later from before the job was due."""
    local = FakeClock()
    clock = StoreClock(local.now_us)
    clock.record_answer(STORE_US)
    local.jump(0.001)
    clock.record_answer(STORE_US - 60_000)
    assert clock.now_us() == STORE_US + 1_000


def test_the_stores_clock_is_never_before_an_answer_that_has_arrived() -> None:
    local = FakeClock()
    clock = StoreClock(local.now_us)
    clock.record_answer(STORE_US)
    local.jump(MAX_AGE_SECONDS + 0.001)
    last = STORE_US + int(MAX_AGE_SECONDS * 1e6) - 90_000
    clock.record_answer(last)  # slow, but the other is too old to be believed
    local.jump(-MAX_AGE_SECONDS)
    assert clock.now_us() == last
    local.jump(MAX_AGE_SECONDS + 0.5)
    assert clock.now_us() == last + 500_000
