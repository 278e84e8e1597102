"""How many records of steps one job may keep, and how large they may be, alone and together."""

from collections.abc import Sequence

from drumbeat.core.step import MAX_RESULT_BYTES, MAX_STEPS, MAX_TOTAL_BYTES, StepRecord
from drumbeat.errors import StepError
from drumbeat.ids import JobId


class StepBudget:
    """Counts the records of one job: those that were loaded, and those that this run makes."""

    def __init__(self, job: JobId) -> None:
        self._job = job
        self._records = self._bytes = 0

    def add(self, steps: Sequence[StepRecord]) -> None:
        """These are on record."""
        self._records += len(steps)
        self._bytes += sum(len(step.result or "") for step in steps)

    def charge(self, name: str, size: int) -> None:
        """A step of this name is to be recorded with so many bytes.

        Raises:
            StepError: that is over a limit.
        """
        self._records += 1
        self._bytes += size
        if self._records > MAX_STEPS:
            raise StepError(self._job, name, f"is one too many: a job keeps at most {MAX_STEPS:,} records")
        if size > MAX_RESULT_BYTES:
            problem = f"returned {size:,} bytes of JSON, over the limit of {MAX_RESULT_BYTES:,}: keep it elsewhere"
            raise StepError(self._job, name, f"{problem}, and return where it is")
        if self._bytes > MAX_TOTAL_BYTES:
            problem = f"takes the results of this job over {MAX_TOTAL_BYTES:,} bytes together"
            raise StepError(self._job, name, problem)
