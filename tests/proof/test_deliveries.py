"""The checkers of forwarded jobs find broken histories."""

import pytest

from tests.proof.deliveries import check_deliveries
from tests.proof.history import CancelAnswered, Delivered, Enqueued, History, JobRecord


def make_history(*deliveries: Delivered, state: str = "succeeded", cancelled_at: float | None = None) -> History:
    cancels = [] if cancelled_at is None else [CancelAnswered(job="a", at=cancelled_at, answer="cancelled")]
    return History(
        enqueued=[Enqueued(id="a", at=1.0, acknowledged=True, due=2.0)],
        cancels=cancels,
        deliveries=list(deliveries),
        jobs=[JobRecord(id="a", task="notice", state=state, failures=0, crashes=0)],
        forwarded=("notice",),
    )


def deliver(job: str = "a", *, at: float = 3.0, taken: bool = True, answered: bool = True) -> Delivered:
    return Delivered(job=job, at=at, taken=taken, answered=answered)


def test_what_was_acknowledged_once_or_more_often_is_in_order() -> None:
    assert check_deliveries(make_history(deliver())) == []
    assert check_deliveries(make_history(deliver(taken=False), deliver(answered=False), deliver(), deliver())) == []
    assert check_deliveries(make_history(state="dead")) == []


@pytest.mark.parametrize(
    ("history", "promise"),
    [
        (make_history(), "K1"),
        (make_history(deliver(taken=False)), "K1"),
        (make_history(deliver(answered=False)), "K1"),
        (make_history(deliver(), deliver("b")), "K2"),
        (make_history(deliver(at=1.5), deliver()), "K2"),
        (make_history(deliver(), state="cancelled", cancelled_at=2.5), "K2"),
    ],
)
def test_a_broken_promise_is_named(history: History, promise: str) -> None:
    [violation] = check_deliveries(history)
    assert violation.startswith(promise)
