"""What people look at."""

from collections.abc import Sequence
from typing import Protocol

from drumbeat.core.dead_letter import DeadLetterGroup
from drumbeat.core.health import HealthCheck
from drumbeat.core.instance import Instance, LeaderInfo
from drumbeat.core.job import Attempt, Job
from drumbeat.core.job_query import JobCounts, JobFilter, JobPage, QueueStats, TaskStats
from drumbeat.ids import JobId
from drumbeat.store.malformed import Fault

MAX_GROUPED_LETTERS = 10_000
"""So many dead letters are looked at to group them."""


class Inspector(Protocol):
    """What people look at. Reads only, from one snapshot each."""

    async def now(self) -> int:
        """The store's clock, in microseconds."""
        ...

    async def get_jobs(self, ids: Sequence[JobId], *, preview: int | None = None) -> dict[JobId, Job]:
        """Those of these jobs (at most 1,000) that are still known, wherever they are; preview: as in `JobFilter`."""
        ...

    async def find_page(self, filter: JobFilter) -> JobPage:
        """The newest of such jobs, at most filter.limit, and where to go on.

        Bounded, whatever the filter: it looks at no more than 2,500 jobs of each place (live, history, dead letters; on Redis
        1,000 in all), or at filter.limit where that is more, and then says `next`, even when it has found few or none. With
        `before=next` the next page begins; a job that keeps matching is met exactly once, whatever else ends, comes or is
        pruned between the pages. `next` is None when there is nothing older. From one snapshot; on Redis, a job that changes
        while a page is made may be shown as it was or as it is.
        """
        ...

    async def count_jobs(self, filter: JobFilter) -> JobCounts:
        """How many such jobs there are, by the word people see; `before` and `limit` of the filter do not count.

        Without a filter exact (on Redis `retrying` is looked for among 2,000 that were claimed before, and then
        `capped` is said), but in a store where that takes long the answer may be up to 10 s old. With one, it looks at no
        more than 10,000 jobs of each place and counts no more than 10,000 of a kind; `capped` says that there may be more.
        """
        ...

    async def get_attempts(self, ids: Sequence[JobId]) -> dict[JobId, list[Attempt]]:
        """All ended runs of each of these jobs (at most 1,000), oldest first, the last one of a finished job included.

        Every id has an entry: an empty list for a job that is unknown or has not run.
        """
        ...

    async def list_queues(self) -> list[QueueStats]:
        """Every queue that has live jobs, a pause, or a living worker that takes it, by name.

        Where counting takes long, `ready` and `scheduled` may be up to 10 s old; all else is of this moment.
        """
        ...

    async def list_tasks(self) -> list[TaskStats]:
        """Every task that has jobs anywhere or a living instance that knows it, by name.

        Where counting takes long, the answer may be up to 10 s old.
        """
        ...

    async def list_instances(self, *, all: bool = False) -> list[Instance]:
        """Living instances, oldest first; with `all` also those that left or died."""
        ...

    async def group_dead_letters(self, limit: int, *, max_letters: int = MAX_GROUPED_LETTERS) -> list[DeadLetterGroup]:
        """What the `newest` dead letters (by id) have in common: task and type of error, the largest groups first."""
        ...

    async def get_leader(self) -> LeaderInfo | None:
        """Who leads; None: nobody has a lease that lasts."""
        ...

    async def count_ahead(self, id: JobId, limit: int = 10_000) -> int:
        """How many ready jobs of its queue would be claimed before this one, counted up to `limit`. One that is not due yet is
        taken as if it were; 0 for one that is not pending, or waits for something other than time. Raises as `job` does.
        """
        ...

    async def find_malformed(self, limit: int = 1_000) -> list[Fault]:
        """Records that cannot be read as they are, field by field: up to `limit` records of each kind are looked at, the newest
        first.
        """
        ...

    async def check_health(self) -> list[HealthCheck]:
        """What a person should know of this store: what it is, how large, what its settings mean for jobs, whether something is
        wrong with it; in a fixed order. What this user may not look at is left out, or said to be unknown.
        """
        ...
