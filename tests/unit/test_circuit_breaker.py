import pytest

from drumbeat.sinks.circuit_breaker import BASE_DELAY, MAX_DELAY, CircuitBreaker


class Watch:
    """A clock in the hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def patience(watch: Watch) -> CircuitBreaker:
    return CircuitBreaker(watch, uniform=lambda least, most: 1.0)


def test_as_long_as_all_is_well_everybody_may_send(patience: CircuitBreaker) -> None:
    assert [patience.try_begin() for _ in range(3)] == [True] * 3
    assert not patience.has_failures


def test_after_a_failure_nobody_sends_until_its_pause_is_over_and_then_one_does(
    patience: CircuitBreaker, watch: Watch
) -> None:
    assert patience.record_failure()
    assert patience.has_failures and not patience.try_begin()
    watch.now += BASE_DELAY
    assert patience.try_begin()
    assert not patience.try_begin(), "one is trying already"
    patience.end()
    assert patience.try_begin()


def test_pauses_grow_up_to_a_bound(patience: CircuitBreaker, watch: Watch) -> None:
    pauses = []
    for _ in range(10):
        patience.record_failure()
        pauses.append(patience.retry_delay())
        watch.now += patience.retry_delay()
    assert pauses[:4] == [BASE_DELAY, 2 * BASE_DELAY, 4 * BASE_DELAY, 8 * BASE_DELAY]
    assert pauses[-1] == MAX_DELAY


def test_batches_that_fail_together_are_one_failure(patience: CircuitBreaker) -> None:
    assert [patience.record_failure() for _ in range(5)] == [True, False, False, False, False]
    assert patience.retry_delay() == BASE_DELAY


def test_a_broker_that_says_how_long_is_believed(patience: CircuitBreaker, watch: Watch) -> None:
    patience.record_failure(60.0)
    assert patience.retry_delay() == 60
    patience.record_failure(90.0)
    watch.now += 89
    assert not patience.try_begin()
    watch.now += 1
    assert patience.try_begin()


def test_a_success_ends_it_and_is_news_once(patience: CircuitBreaker) -> None:
    patience.record_failure()
    assert patience.record_success()
    assert not patience.record_success()
    assert patience.try_begin() and patience.try_begin()
