"""`app.jobs`: every queued call of a task, and how it ended."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping
from typing import Any, Unpack

from drumbeat.admin.explain.context import gather_context
from drumbeat.admin.explain.parents import describe_wait
from drumbeat.admin.explain.reason import Explanation
from drumbeat.admin.explain.reasons import explain
from drumbeat.core.dependencies import ParentLink
from drumbeat.core.job import Attempt, CancelAnswer, Job, JobState
from drumbeat.core.job_query import JobCounts, JobPage
from drumbeat.core.signals import SignalRecord
from drumbeat.core.step import StepRecord
from drumbeat.core.suspension import awaited_signal
from drumbeat.durations import Duration, seconds
from drumbeat.errors import InvalidArguments, JobNotFound
from drumbeat.handle import JobHandle
from drumbeat.ids import JobId, is_job_id
from drumbeat.tasks.options import JobOptions

from . import bulk
from .enqueue_by_name import build_job
from .filters import (
    JobCriteria,
    JobQuery,
    list_ended_jobs,
    list_jobs,
    page_jobs,
    read_ended,
    read_filter,
    read_limit,
    without_ended,
)
from .lineage import Lineage, read_lineage
from .part import AdminPart


class Jobs(AdminPart):
    """List jobs, wait for them, cancel them, run them now."""

    async def list(self, **query: Unpack[JobQuery]) -> builtins.list[Job]:
        """Jobs, newest first; `before=` the last one's id gives the next page."""
        filter = read_filter(without_ended(query))
        if (ended := read_ended(query)) is not None:
            return await list_ended_jobs(self._client, ended, filter)
        return await list_jobs(self._client, filter)

    async def page(self, **query: Unpack[JobQuery]) -> JobPage:
        """The same by a bounded scan, for interactive use: perhaps fewer than `limit`, or none; `before=` its `next` gives the
        next page, and `next` is None at the end."""
        return await page_jobs(self._client, read_filter(without_ended(query)), read_ended(query))

    async def counts(self, **query: Unpack[JobQuery]) -> JobCounts:
        """Number of jobs in each state; with a filter at most 10,000 of each, and `capped` says so."""
        store = await self._client.store()
        return await store.inspect.count_jobs(read_filter(query))

    async def show(self, id: str) -> Job:
        """One job, wherever it is.

        Raises:
            JobNotFound: no job has this id. JobExpired: it is so old that its history may have been pruned.
        """
        return await self._client.get_job(check_id(id))

    async def attempts(self, id: str) -> builtins.list[Attempt]:
        """All ended runs of a job, oldest first."""
        store = await self._client.store()
        job = check_id(id)
        return (await store.inspect.get_attempts([job]))[job]

    async def steps(self, id: str) -> builtins.list[StepRecord]:
        """What a job has on record of its runs: steps, sleeps and waits, in the order in which they began."""
        store, job = await self._client.store(), check_id(id)
        return (await store.steps.load([job]))[job]

    async def signals(self, id: str) -> builtins.list[SignalRecord]:
        """The signals that were sent to a job, oldest first, read or not."""
        store, job = await self._client.store(), check_id(id)
        return (await store.steps.list_signals([job]))[job]

    async def signal(self, id: str, name: str, payload: Any = None, *, signal_id: str | None = None) -> str:
        """Send a signal to a job, as `app.signal`. Returns the signal's id."""
        job = check_id(id)
        return await self._client.send_signal(job, name, payload, task=None, key=None, id=signal_id, conn=None)

    async def lineage(self, id: str, *, before: str | None = None, limit: int = 50) -> Lineage:
        """Which job enqueued it, and which jobs it enqueued: its ancestors, and the tree below it.

        before: the next page of its children, `next` of the page before. limit: of all jobs below it, three levels deep.

        Raises:
            JobNotFound, JobExpired: as `show`.
        """
        job = await self._client.get_job(check_id(id))
        read = read_filter({"before": before, "limit": limit})
        return await read_lineage(await self._client.store(), job, before=read.before, limit=min(read.limit, 500))

    async def parents(self, id: str, *, limit: int = 50) -> builtins.list[ParentLink]:
        """The jobs that a job depends on, those that it still waits for first. (Which job enqueued it: `lineage`.)"""
        store, job = await self._client.store(), check_id(id)
        return (await store.dependencies.list_parents([job], read_limit("limit", limit)))[job]

    async def children(self, id: str, *, limit: int = 50) -> builtins.list[ParentLink]:
        """The jobs that depend on a job, oldest first; `is_open`: they still wait for it."""
        store, job = await self._client.store(), check_id(id)
        return (await store.dependencies.list_children([job], read_limit("limit", limit)))[job]

    async def explain(self, id: str) -> Explanation:
        """Why a job is not running: every reason that holds, the decisive one first; or that it runs, or has ended.

        Raises:
            JobNotFound, JobExpired: as `show`.
        """
        return explain(await gather_context(self._client, check_id(id)))

    def handle(self, id: str) -> JobHandle[Any]:
        """A handle for the job with this id."""
        return JobHandle(self._client, check_id(id), created=False)

    async def wait(self, id: str, timeout: Duration | None = None) -> Job:
        """Wait until the job has ended, in whatever state, and return it.

        Raises:
            TimeoutError: `timeout` has passed. JobNotFound, JobExpired: as `show`.
        """
        limit = None if timeout is None else seconds(timeout, name="timeout", error=InvalidArguments)
        await self._client.wait_for_end(check_id(id), limit)
        return await self.show(id)

    async def cancel(
        self, which: str | Iterable[str] | None = None, **criteria: Unpack[JobCriteria]
    ) -> builtins.list[CancelAnswer]:
        """Cancel jobs by id, or all pending and running ones that match a filter. One answer for each."""
        pages = bulk.apply_pages(
            self._client, bulk.select_jobs(bulk.Action.CANCEL, which, criteria), self._client.clock
        )
        return [answer async for page in pages for answer in page.cancelled]

    async def run_now(self, which: str | Iterable[str]) -> int:
        """Make pending jobs due at once. Returns how many; one single id that is not pending is refused."""
        pages = bulk.apply_pages(self._client, bulk.select_jobs(bulk.Action.RUN_NOW, which, {}), self._client.clock)
        made_due = sum([page.touched async for page in pages])
        if not made_due and isinstance(which, str):
            job = await self.show(which)
            if (signal := awaited_signal(job.suspended)) is not None:
                raise InvalidArguments(f"job {which} waits for the signal {signal!r}: signal it", "id")
            if (wait := describe_wait(job)) is not None and job.open_parents:
                raise InvalidArguments(f"job {which} waits for {wait}: it starts when they have ended", "id")
            instead = "; replay a dead letter with dead.replay" if job.state is JobState.DEAD else ""
            raise InvalidArguments(f"job {which} is {job.state}: only a pending job can be run now{instead}", "id")
        return made_due

    async def enqueue(
        self, task: str, args: str | Mapping[str, Any] = "{}", **options: Unpack[JobOptions]
    ) -> JobHandle[Any]:
        """Enqueue a call of a task by its name, with its arguments as a JSON object (text, or a dict).

        A task of this program checks the arguments by its signature; for a task that only living workers have, nothing does.

        Raises:
            UnknownTask: neither this program nor a living worker has it. InvalidArguments: which argument or option is wrong.
        """
        return await self._client.enqueue(await build_job(self._client, task, args, **options))

    async def bulk(
        self,
        action: str,
        which: str | Iterable[str] | None = None,
        *,
        all: bool = False,
        rate: float | None = None,
        dry_run: bool = False,
        progress: bulk.BulkProgress | None = None,
        **query: Unpack[JobQuery],
    ) -> bulk.BulkResult:
        """Cancel, run_now, replay or discard many jobs: by id, by filter, or `all` in a state that allows it.

        rate: at most this many a second; None: as fast as possible. dry_run: only count them.
        progress: lets another task watch and stop it.

        Raises:
            InvalidArguments: there is no such action, or the jobs are not specified.
        """
        pace = bulk.read_rate(rate)
        selection = bulk.check_ids(bulk.select_jobs(action, which, query, all=all))
        if dry_run:
            return await bulk.count_matching(self._client, selection)
        return await bulk.apply_to_all(self._client, selection, self._client.clock, pace, progress)


def check_id(id: str) -> JobId:
    if not is_job_id(id):
        raise JobNotFound(id)
    return JobId(id)
