"""core/transitions.py where no contract test sees it: texts, and answers for states that do not exist."""

import pytest

from drumbeat.core.job import CancelAnswer
from drumbeat.core.transitions import HOUR_US, answer_cancel, expired_block_failure


@pytest.mark.parametrize(
    ("blocked_on", "hours", "message"),
    [
        ("task:charge", 24, "no worker registered task 'charge' within 24 h"),
        ("version:shop.charge@bb63", 1.5, "no worker registered version 'bb63' of task 'shop.charge' within 1.5 h"),
        ("odd", 0, "no worker registered 'odd' within 0 h"),
    ],
)
def test_an_expired_block_says_what_no_worker_registered(blocked_on: str, hours: float, message: str) -> None:
    failure = expired_block_failure(blocked_on, 1_000, 1_000 + int(hours * HOUR_US))
    assert (failure.type, failure.message) == ("WaitExpired", message)


@pytest.mark.parametrize(
    ("state", "answer"),
    [
        ("pending", CancelAnswer.CANCELLED),
        ("running", CancelAnswer.REQUESTED),
        ("succeeded", CancelAnswer.SUCCEEDED),
        ("cancelled", CancelAnswer.CANCELLED),
        ("dead", CancelAnswer.DEAD),
        ("expired", CancelAnswer.EXPIRED),
        (None, CancelAnswer.UNKNOWN),
        ("written by hand", CancelAnswer.CANCELLED),
    ],
)
def test_a_request_to_cancel_is_answered_by_the_state(state: str | None, answer: CancelAnswer) -> None:
    assert answer_cancel(state) is answer
