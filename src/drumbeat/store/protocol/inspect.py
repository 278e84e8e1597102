"""What every engine must answer for the dashboard, the command line and `app.jobs`."""

from collections.abc import Sequence
from typing import Protocol

from drumbeat.core.dead_letter import DeadLetterGroup
from drumbeat.core.health import HealthCheck
from drumbeat.core.instance import Instance, LeaderInfo
from drumbeat.core.job import Attempt, Job
from drumbeat.core.job_query import JobCounts, JobFilter, JobPage, QueueStats, TaskStats, WaitCounts
from drumbeat.ids import JobId
from drumbeat.store.malformed import Fault

MAX_GROUPED_LETTERS = 10_000
"""Number of dead letters that are read to group them."""


class Inspector(Protocol):
    """Reads for people. Each is from one snapshot."""

    async def now(self) -> int:
        """The store's clock, in microseconds."""
        ...

    async def get_jobs(self, ids: Sequence[JobId], *, preview: int | None = None) -> dict[JobId, Job]:
        """Those of these jobs (at most 1,000) that still exist, in whatever state; preview: as in `JobFilter`."""
        ...

    async def find_page(self, filter: JobFilter) -> JobPage:
        """The newest matching jobs, at most filter.limit, and where the next page begins.

        Bounded, whatever the filter: it scans no more than 2,500 jobs of each place (live, history, dead letters; on
        Redis 1,000 in all), or filter.limit where that is more, and then sets `next`, even when it has found few or
        none. With `before=next` the next page begins; a job that keeps matching is returned exactly once, whatever else
        ends, comes or is pruned between the pages. `next` is None when there is nothing older. From one snapshot; on
        Redis, a job that changes while a page is made may be returned as it was or as it is.
        """
        ...

    async def count_jobs(self, filter: JobFilter) -> JobCounts:
        """The number of matching jobs, by the state that people see; `before` and `limit` of the filter are ignored.

        Without a filter it is exact (on Redis `retrying` is searched among 2,000 jobs that were claimed before, and
        then `capped` is set), but where counting takes long the answer may be up to 10 s old. With a filter it scans no
        more than 10,000 jobs of each place and counts no more than 10,000 of a kind; `capped` says that there may be
        more.
        """
        ...

    async def count_waits(self) -> WaitCounts:
        """How many jobs wait for parents, for a signal, or asleep; one whose time is up is ready, and counts no more.

        On Redis those that are suspended are searched among 100,000 jobs that were claimed or have parents, and then `capped`
        is set.
        """
        ...

    async def get_attempts(self, ids: Sequence[JobId]) -> dict[JobId, list[Attempt]]:
        """All ended runs of each of these jobs (at most 1,000), oldest first, the last one of a finished job included.

        Every id has an entry: an empty list for a job that is unknown or has not run.
        """
        ...

    async def list_queues(self) -> list[QueueStats]:
        """Every queue that has live jobs, is paused, or is served by a living worker, by name.

        Where counting takes long, `ready` and `scheduled` may be up to 10 s old; all else is current.
        """
        ...

    async def list_tasks(self) -> list[TaskStats]:
        """Every task that has jobs anywhere or is known to a living instance, by name.

        Where counting takes long, the answer may be up to 10 s old.
        """
        ...

    async def list_instances(self, *, all: bool = False) -> list[Instance]:
        """Living instances, oldest first; with `all` also those that left or died."""
        ...

    async def group_dead_letters(self, limit: int, *, max_letters: int = MAX_GROUPED_LETTERS) -> list[DeadLetterGroup]:
        """The newest `max_letters` dead letters (by id) grouped by task and type of error, the largest groups first."""
        ...

    async def get_leader(self) -> LeaderInfo | None:
        """The current leader; None if no lease is valid."""
        ...

    async def count_ahead(self, job: Job, limit: int = 10_000) -> int:
        """How many ready jobs of its queue would be claimed before this one, counted up to `limit`. A job that is not
        due yet is treated as if it were; 0 for one that is not pending, or is blocked."""
        ...

    async def find_malformed(self, limit: int = 1_000) -> list[Fault]:
        """Records that cannot be decoded, field by field. Reads up to `limit` records of each kind, newest first."""
        ...

    async def check_health(self) -> list[HealthCheck]:
        """What an operator should know of this store, in a fixed order: version, size, what its settings mean for jobs,
        problems. What this user may not read is left out, or reported as unknown."""
        ...
