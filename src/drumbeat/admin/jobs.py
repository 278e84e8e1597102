"""`app.jobs`: every queued call of a task, and what became of it."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping
from typing import Any, Unpack

import msgspec

from drumbeat.admin.explain.context import gather_context
from drumbeat.admin.explain.reasons import Explanation, explain
from drumbeat.client import Client
from drumbeat.clock import SYSTEM, Clock
from drumbeat.core.job import Attempt, CancelAnswer, Job, JobState
from drumbeat.core.job_query import JobCounts, JobPage
from drumbeat.durations import Duration, seconds
from drumbeat.errors import InvalidArguments, JobNotFound, UniqueConflict
from drumbeat.handle import JobHandle
from drumbeat.ids import JobId, is_job_id

from .bulk import BulkProgress, BulkResult, apply_to_all, count_matching, read_rate, select_jobs
from .enqueue_by_name import EnqueueByNameOptions, build_job
from .filters import JobCriteria, JobQuery, all_ids, check_selection, list_jobs, page_jobs, read_filter, read_ids


class Jobs:
    """Look at jobs, wait for them, cancel them."""

    def __init__(self, client: Client, clock: Clock = SYSTEM) -> None:
        self._client = client
        self._clock = clock

    async def list(self, **query: Unpack[JobQuery]) -> builtins.list[Job]:
        """Jobs, newest first; `before=` the last one's id gives the next page."""
        return await list_jobs(self._client, read_filter(query))

    async def page(self, **query: Unpack[JobQuery]) -> JobPage:
        """The same by a bounded look, for a person who waits: perhaps fewer than `limit`, or none, and `next`, which given as
        `before=` goes on; None at the end."""
        return await page_jobs(self._client, read_filter(query))

    async def counts(self, **query: Unpack[JobQuery]) -> JobCounts:
        """How many jobs there are, by the word people see; with a filter at most 10,000 of a kind, and `capped` says so."""
        store = await self._client.store()
        return await store.inspect.count_jobs(read_filter(query))

    async def show(self, id: str) -> Job:
        """One job, wherever it is.

        Raises:
            JobNotFound: there is none. JobExpired: it is so old that its history may have been pruned.
        """
        return await self._client.get_job(_check_id(id))

    async def attempts(self, id: str) -> builtins.list[Attempt]:
        """All runs of a job that have ended, oldest first."""
        store = await self._client.store()
        job = _check_id(id)
        return (await store.inspect.get_attempts([job]))[job]

    async def explain(self, id: str) -> Explanation:
        """Why it is not running: every reason that holds, the one that counts first; or that it runs, or has ended.

        Raises:
            JobNotFound, JobExpired: as `show`.
        """
        return explain(await gather_context(self._client, _check_id(id)))

    def handle(self, id: str) -> JobHandle[Any]:
        """A handle for a job whose id was kept somewhere."""
        return JobHandle(self._client, _check_id(id), created=False)

    async def wait(self, id: str, timeout: Duration | None = None) -> Job:
        """The job, once it has ended, however that was.

        Raises:
            TimeoutError: `timeout` is over. JobNotFound, JobExpired: as `show`.
        """
        limit = None if timeout is None else seconds(timeout, name="timeout", error=InvalidArguments)
        await self._client.wait_for_end(_check_id(id), limit)
        return await self.show(id)

    async def cancel(
        self, which: str | Iterable[str] | None = None, **criteria: Unpack[JobCriteria]
    ) -> builtins.list[CancelAnswer]:
        """Cancel jobs by id, or all live ones that have something in common. One answer for each."""
        check_selection(which, criteria)
        store = await self._client.store()
        if which is not None:
            return await store.jobs.cancel(read_ids(which))
        answers: builtins.list[CancelAnswer] = []
        # Running ones last: a pending job that is claimed between the two looks is met as a running one.
        for state in (JobState.PENDING, JobState.RUNNING):
            filter = msgspec.structs.replace(read_filter(criteria), state=state)
            async for ids in all_ids(self._client, filter, check_names=state is JobState.PENDING):
                answers += await store.jobs.cancel(ids)
        return answers

    async def run_now(self, which: str | Iterable[str]) -> int:
        """Make waiting jobs due at once. Returns how many; one single id that is not waiting is refused."""
        store = await self._client.store()
        made_due = await store.jobs.run_now(read_ids(which))
        if not made_due and isinstance(which, str):
            job = await self.show(which)
            raise InvalidArguments(f"job {which} is {job.state}: only a pending job can be run now", "id")
        return made_due

    async def retry(self, id: str) -> Job:
        """Let a job run now: a dead letter gets a new life, a pending one is due at once. Gives the job as it is then.

        Raises:
            InvalidArguments: it is running, or has ended otherwise. UniqueConflict: a live job has its key.
            JobNotFound, JobExpired: as `show`.
        """
        job = await self.show(id)
        if job.state is JobState.PENDING:
            await self.run_now(id)
        elif job.state is JobState.DEAD:
            store = await self._client.store()
            (answer,) = await store.jobs.replay([job.id])
            if answer.conflict is not None:
                raise UniqueConflict(id, job.key or "", answer.conflict)
            if not answer.replayed:
                raise InvalidArguments(f"job {id} is no dead letter any more: somebody has discarded it", "id")
        else:
            raise InvalidArguments(f"job {id} is {job.state}: only a pending job or a dead letter can be retried", "id")
        return await self.show(id)

    async def enqueue(
        self, task: str, args: str | Mapping[str, Any] = "{}", **options: Unpack[EnqueueByNameOptions]
    ) -> JobHandle[Any]:
        """Queue a call of a task by its name, with its arguments as a JSON object (text, or a dict).

        A task of this program judges the arguments itself; one that only living workers know is taken on trust.

        Raises:
            UnknownTask: neither this program nor a living worker has it. InvalidArguments: which argument or option, and why.
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
        progress: BulkProgress | None = None,
        **query: Unpack[JobQuery],
    ) -> BulkResult:
        """Cancel, run_now, replay or discard many jobs: by id, by what they have in common, or all that it can be done to.

        rate: at most so many in a second; None: as fast as it goes. dry_run: only count them.
        progress: tells another task how far it has come, and lets it be stopped.

        Raises:
            InvalidArguments: there is no such act, or it is not said which jobs.
        """
        pace = read_rate(rate)
        choice = select_jobs(action, which, all=all, query=query)
        if dry_run:
            return await count_matching(self._client, choice)
        return await apply_to_all(self._client, choice, self._clock, pace, progress)


def _check_id(id: str) -> JobId:
    """Nothing that is not written as an id can be a job's."""
    if not is_job_id(id):
        raise JobNotFound(id)
    return JobId(id)
