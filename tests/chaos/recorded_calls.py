"""What a process of the run asks of its store, in the journal: calls about locks, applied fires, claims after SIGTERM.

Calls are seen where they are made. Between that and the answer a call has its effect, perhaps also if there is no answer.
"""

import itertools
import logging
import os
import time
from typing import Any, cast

import msgspec

from drumbeat import Drumbeat
from drumbeat.store.protocol import Store
from drumbeat.testing.store_wrapper import StoreCall, WrappedStore
from tests.chaos import journal
from tests.proof.call_observer import CallObserver

OPERATIONS = ("locks.acquire", "locks.ticket_status", "locks.release", "schedules.fire")
CLAIM = "jobs.report_and_claim"


class JournalSink:
    """One for a process. Of the lines with one number the last counts."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def add(self, record: msgspec.Struct) -> int:
        number = next(self._numbers)
        self.replace(number, record)
        return number

    def replace(self, number: int, record: msgspec.Struct) -> None:
        journal.write("call", number=number, kind=type(record).__name__, record=record)


class DrainWatch(logging.Handler):
    """A worker says that it drains in the step in which it makes its last claim impossible: so one that begins later is wrong,
    however late the signal was delivered."""

    is_draining = False

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == "draining":
            self.is_draining = True
            journal.write("draining")

    def wrap(self, call: str, real: StoreCall) -> StoreCall:
        if call != CLAIM:
            return real

        async def report_and_claim(instance: Any, outcomes: Any, claim: Any) -> Any:
            if self.is_draining and claim is not None:
                journal.write("claims")
            return await real(instance, outcomes, claim)

        return report_and_claim


def record_calls(app: Drumbeat) -> None:
    observer, drain = CallObserver(JournalSink(), time.monotonic, OPERATIONS), DrainWatch()
    logging.getLogger("drumbeat.worker.worker").addHandler(drain)

    def wrap(store: Store) -> Store:
        observed = observer.observe(store, os.environ[journal.NODE])
        return cast("Store", WrappedStore(cast("Store", observed), drain.wrap))

    app._internals.client.wrap_store = wrap
