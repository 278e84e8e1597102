"""What every engine must do with the steps of jobs."""

from collections.abc import Sequence
from typing import Protocol

from drumbeat.core.claim import WriteStatus
from drumbeat.core.step import NewStep, StepRecord
from drumbeat.ids import InstanceId, JobId


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
