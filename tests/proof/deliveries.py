"""The promises about forwarded jobs (docs/sinks.md), as pure functions over a history.

K1: a forwarded job that succeeded was acknowledged by its receiver, at least once. K2: nothing else is sent, nothing before it
is due, and nothing that was answered `cancelled` before. Of the order nothing can be said here: after failures and over several
workers it is promised only nearly.
"""

from collections.abc import Iterator

from tests.proof.history import History


def check_deliveries(history: History) -> list[str]:
    """All violations."""
    return [*_find_unacknowledged(history), *_find_early(history), *_find_cancelled(history)]


def _find_unacknowledged(history: History) -> Iterator[str]:
    taken = {delivery.job for delivery in history.deliveries if delivery.taken and delivery.answered}
    for job in history.jobs:
        if job.task in history.forwarded and job.state == "succeeded" and job.id not in taken:
            yield f"K1: {job.id} succeeded, and its receiver has not acknowledged it"


def _find_early(history: History) -> Iterator[str]:
    due = {call.id: call.due for call in history.enqueued}
    for delivery in history.deliveries:
        if delivery.job not in due:
            yield f"K2: {delivery.job} was sent, and nobody enqueued it"
        elif delivery.at < due[delivery.job] - 0.000_001:
            yield f"K2: {delivery.job} was due at {due[delivery.job]:.6f} and sent at {delivery.at:.6f}"


def _find_cancelled(history: History) -> Iterator[str]:
    cancelled = {cancel.job: cancel.at for cancel in history.cancels if cancel.answer == "cancelled"}
    for delivery in history.deliveries:
        at = cancelled.get(delivery.job)
        if at is not None and delivery.at > at:
            yield f"K2: {delivery.job} was cancelled at {at:.3f} and sent at {delivery.at:.3f}"
