"""What every engine must do with the steps of jobs."""

from collections.abc import Sequence
from typing import Protocol

from drumbeat.core.claim import WriteStatus
from drumbeat.core.signals import NewSignal, SignalAnswer, SignalRecord, SignalWait, TakenSignal
from drumbeat.core.step import NewStep, StepRecord
from drumbeat.ids import InstanceId, JobId

MAX_FOUND_JOBS = 10


class StepStore(Protocol):
    """Steps, sleeps and waits of jobs (`core.step`). They live as long as their job: with its history they are pruned; a dead
    letter keeps them, and so does its replay."""

    async def record(self, instance: InstanceId, steps: Sequence[NewStep]) -> list[WriteStatus]:
        """Record results of steps, of any number of jobs; durable when it returns. One status for each, in order.

        APPLIED: it is on record. The first record of a job and name counts, so that repeating a call is harmless. STALE: the
        job does not run under this instance with this token, and nothing was recorded. Fenced like an outcome: a record never
        counts once the claim has ended, whoever ended it.

        Raises:
            StoreFull: nothing was stored, there is no space.
        """
        ...

    async def load(self, ids: Sequence[JobId]) -> dict[JobId, list[StepRecord]]:
        """All records of each of these jobs (at most 1,000), in the order in which they began.

        Every id has an entry: an empty list for a job that is unknown or has none.
        """
        ...

    async def send_signal(self, signal: NewSignal) -> SignalAnswer:
        """Store a signal for a live job; durable when it returns. Each is read by one wait, the oldest first, also by one that
        begins later. A job that is suspended on it is due now, which wakes workers: whichever comes first, a suspension or its
        signal, one of them sees the other.

        An id that this job has had before is not stored again, and wakes nobody; it is SENT, also where the job has ended
        since. Else nothing is stored for a job that is unknown or has ended, or that has MAX_UNREAD_SIGNALS unread ones.

        Raises:
            StoreFull: nothing was stored, there is no space.
        """
        ...

    async def find_live(self, task: str, key: str) -> list[JobId]:
        """The live jobs of this task with this key, at most MAX_FOUND_JOBS; from one snapshot, whatever their state is."""
        ...

    async def take_signal(self, instance: InstanceId, wait: SignalWait) -> TakenSignal:
        """Give a wait of a running job the oldest unread signal of its name; that it was read, and the wait's record, are one
        step. If there is none and the wait is on record with an `until` that has passed, it has timed out, and that goes
        on record: a later signal changes nothing. What is on record is returned again. Fenced as `record` is."""
        ...

    async def list_signals(self, ids: Sequence[JobId]) -> dict[JobId, list[SignalRecord]]:
        """All signals of each of these jobs (at most 1,000), oldest first, read or not; they live as long as steps. Every id
        has an entry."""
        ...
