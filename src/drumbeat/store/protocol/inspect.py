"""What people look at."""

from typing import Protocol

from drumbeat.ids import JobId
from drumbeat.model.instance import Instance
from drumbeat.model.job import Attempt, Job, JobFilter, QueueStats, TaskStats


class Inspect(Protocol):
    """What people look at. Reads only, from one snapshot each."""

    async def now(self) -> int:
        """The store's clock, in microseconds."""
        ...

    async def job(self, id: JobId) -> Job:
        """One job, wherever it is. Raises JobNotFound or JobExpired as `Jobs.ended` does."""
        ...

    async def jobs(self, filter: JobFilter) -> list[Job]:
        """Jobs newest first by id, at most filter.limit."""
        ...

    async def attempts(self, id: JobId) -> list[Attempt]:
        """All ended runs of a job, oldest first, the last one of a finished job included."""
        ...

    async def queues(self) -> list[QueueStats]:
        """Every queue that has live jobs, a pause, or a living worker that takes it, by name."""
        ...

    async def tasks(self) -> list[TaskStats]:
        """Every task that has jobs anywhere or a living instance that knows it, by name."""
        ...

    async def instances(self, *, all: bool = False) -> list[Instance]:
        """Living instances, oldest first; with `all` also those that left or died."""
        ...
