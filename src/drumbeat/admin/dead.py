"""`app.dead`: dead letters, jobs that were given up and wait for a person's decision."""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from typing import NamedTuple, Unpack

import msgspec

from drumbeat.core.dead_letter import DeadLetterGroup
from drumbeat.core.job import Job, JobState, ReplayResult
from drumbeat.core.job_query import JobFilter, JobPage
from drumbeat.errors import InvalidArguments, UniqueConflict
from drumbeat.ids import JobId

from .bulk import Action, BulkProgress, apply_pages, list_pages, read_rate, select_jobs
from .filters import JobCriteria, list_jobs, page_jobs, read_filter, read_limit
from .jobs import check_id
from .part import AdminPart


class DeadLetterQuery(JobCriteria, total=False):
    """Which dead letters to list."""

    id: str | None
    before: str | None
    limit: int
    preview: int


class SelectedLetter(NamedTuple):
    """A dead letter that an action would be about."""

    id: JobId
    task: str


class Dead(AdminPart):
    """List dead letters, replay them, or discard them."""

    async def list(self, **query: Unpack[DeadLetterQuery]) -> builtins.list[Job]:
        """Dead letters, newest first; `before=` the last one's id gives the next page."""
        return await list_jobs(self._client, _only_dead_letters(read_filter(query)))

    async def page(self, **query: Unpack[DeadLetterQuery]) -> JobPage:
        """The same by a bounded scan: perhaps fewer than `limit`, or none; `before=` its `next` gives the next page."""
        return await page_jobs(self._client, _only_dead_letters(read_filter(query)))

    async def show(self, id: str) -> Job:
        """One dead letter, with its error and its arguments."""
        job = await self._client.get_job(check_id(id))
        if job.state is not JobState.DEAD:
            raise InvalidArguments(f"job {id} is {job.state}, not a dead letter", "id")
        return job

    async def groups(self, *, limit: int = 50) -> builtins.list[DeadLetterGroup]:
        """The newest 10,000 dead letters, grouped by task and type of error; the largest groups first."""
        store = await self._client.store()
        return await store.inspect.group_dead_letters(read_limit("limit", limit))

    async def select(
        self, which: Iterable[str] | None = None, *, all: bool = False, **criteria: Unpack[JobCriteria]
    ) -> builtins.list[SelectedLetter]:
        """The dead letters that `replay` or `discard` would act on, oldest first: to show before they are changed.

        Raises:
            InvalidArguments, JobNotFound: one of the ids is no dead letter.
        """
        selection = select_jobs(Action.REPLAY, which, criteria, all=all)
        if selection.ids is not None:
            return [await self._select_one(id) for id in selection.ids]
        pages = list_pages(self._client, selection)
        return [SelectedLetter(job.id, job.task) async for page in pages for job in page][::-1]

    async def _select_one(self, id: JobId) -> SelectedLetter:
        job = await self.show(id)
        if not await self.list(id=id, preview=0):
            raise _discarded_error(id)
        return SelectedLetter(id, job.task)

    async def replay(
        self,
        which: str | Iterable[str] | None = None,
        *,
        rate: float | None = None,
        progress: BulkProgress | None = None,
        **criteria: Unpack[JobCriteria],
    ) -> builtins.list[ReplayResult]:
        """Run dead letters again under the same id: by id, or all that match a filter, oldest first.

        One answer for each. `rate`: at most this many a second; None: all at once. `progress`: lets others watch and stop it,
        as of `app.jobs.bulk`; then there are answers for those that were reached.

        Raises:
            InvalidArguments, JobNotFound, UniqueConflict: one single id was given, and could not be replayed.
        """
        rate = read_rate(rate)
        selection = select_jobs(Action.REPLAY, which, criteria)
        pages = apply_pages(self._client, selection, self._client.clock, rate, progress)
        answers = [answer async for page in pages for answer in page.replayed]
        if isinstance(which, str) and answers and not answers[0].replayed:
            await self._raise_refusal(answers[0])
        return answers

    async def discard(self, which: str | Iterable[str] | None = None, **criteria: Unpack[JobCriteria]) -> int:
        """Move dead letters to history, which is pruned after `retention`. Returns how many.

        Raises:
            InvalidArguments, JobNotFound: one single id was given, and is no dead letter.
        """
        selection = select_jobs(Action.DISCARD, which, criteria)
        discarded = sum([page.touched async for page in apply_pages(self._client, selection, self._client.clock)])
        if isinstance(which, str) and not discarded:
            await self.show(which)
            raise _discarded_error(which)
        return discarded

    async def _raise_refusal(self, answer: ReplayResult) -> None:
        job = await self.show(answer.id)
        if answer.conflict is not None:
            raise UniqueConflict(answer.id, job.key or "", answer.conflict)
        raise _discarded_error(answer.id)


def _discarded_error(id: str) -> InvalidArguments:
    return InvalidArguments(f"job {id} is no dead letter any more: somebody has discarded it", "id")


def _only_dead_letters(filter: JobFilter) -> JobFilter:
    return msgspec.structs.replace(filter, state=JobState.DEAD, dead_letters=True)
