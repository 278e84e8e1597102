"""A store that writes into the history what it was asked and what it answered, at the moment at which it does.

It stands behind the network: a request that comes late, or that nobody waits for any more, is recorded when it arrives.
"""

from collections.abc import Callable

from tests.proof.call_observer import CallObserver, HistorySink
from tests.proof.history import History

OPERATIONS = (
    "locks.acquire",
    "locks.ticket_status",
    "locks.release",
    "instances.heartbeat",
    "jobs.report_and_claim",
    "schedules.fire",
)


class StoreObserver(CallObserver):
    """What one run of the simulation writes down about all its stores."""

    def __init__(self, history: History, time: Callable[[], float]) -> None:
        super().__init__(HistorySink(history), time, OPERATIONS)
