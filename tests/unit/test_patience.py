import pytest

from drumbeat.sinks.patience import BASE, CAP, Patience


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
def patience(watch: Watch) -> Patience:
    return Patience(watch, uniform=lambda least, most: 1.0)


def test_as_long_as_all_is_well_everybody_may_send(patience: Patience) -> None:
    assert [patience.enter() for _ in range(3)] == [True] * 3
    assert not patience.is_away


def test_after_a_failure_nobody_sends_until_its_pause_is_over_and_then_one_does(
    patience: Patience, watch: Watch
) -> None:
    assert patience.failed()
    assert patience.is_away and not patience.enter()
    watch.now += BASE
    assert patience.enter()
    assert not patience.enter(), "one is trying already"
    patience.leave()
    assert patience.enter()


def test_pauses_grow_up_to_a_bound(patience: Patience, watch: Watch) -> None:
    pauses = []
    for _ in range(10):
        patience.failed()
        pauses.append(patience.pause())
        watch.now += patience.pause()
    assert pauses[:4] == [BASE, 2 * BASE, 4 * BASE, 8 * BASE]
    assert pauses[-1] == CAP


def test_batches_that_fail_together_are_one_failure(patience: Patience) -> None:
    assert [patience.failed() for _ in range(5)] == [True, False, False, False, False]
    assert patience.pause() == BASE


def test_a_broker_that_says_how_long_is_believed(patience: Patience, watch: Watch) -> None:
    patience.failed(60.0)
    assert patience.pause() == 60
    patience.failed(90.0)
    watch.now += 89
    assert not patience.enter()
    watch.now += 1
    assert patience.enter()


def test_a_success_ends_it_and_is_news_once(patience: Patience) -> None:
    patience.failed()
    assert patience.succeeded()
    assert not patience.succeeded()
    assert patience.enter() and patience.enter()
