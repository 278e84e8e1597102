"""`app.dead`: the dead letters, jobs that were given up and wait for a person."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Unpack

import msgspec

from drumbeat.client import Client
from drumbeat.clock import Clock
from drumbeat.core.dead_letter import DeadLetterGroup
from drumbeat.core.job import Job, JobState, ReplayResult
from drumbeat.core.job_query import JobFilter, JobPage
from drumbeat.errors import InvalidArguments, UniqueConflict
from drumbeat.ids import JobId

from .bulk import pace_pages, read_rate
from .filters import JobCriteria, all_ids, check_selection, list_jobs, page_jobs, read_filter, read_ids
from .jobs import Jobs


class DeadLetterQuery(JobCriteria, total=False):
    """Which dead letters to list."""

    id: str | None
    before: str | None
    limit: int
    preview: int


class Dead:
    """Look at dead letters, replay them, or let them go."""

    def __init__(self, client: Client, jobs: Jobs, clock: Clock) -> None:
        self._client = client
        self._jobs = jobs
        self._clock = clock

    async def list(self, **query: Unpack[DeadLetterQuery]) -> builtins.list[Job]:
        """Dead letters, newest first; `before=` the last one's id gives the next page."""
        return await list_jobs(self._client, _only_dead_letters(read_filter(query)))

    async def page(self, **query: Unpack[DeadLetterQuery]) -> JobPage:
        """The same by a bounded look: perhaps fewer than `limit`, or none, and `next`, which given as `before=` goes on."""
        return await page_jobs(self._client, _only_dead_letters(read_filter(query)))

    async def show(self, id: str) -> Job:
        """One dead letter, with its error and its arguments."""
        job = await self._jobs.show(id)
        if job.state is not JobState.DEAD:
            raise InvalidArguments(f"job {id} is {job.state}, not a dead letter", "id")
        return job

    async def groups(self, *, limit: int = 50) -> builtins.list[DeadLetterGroup]:
        """What the newest 10,000 dead letters have in common: task and type of error, the largest groups first."""
        store = await self._client.store()
        return await store.inspect.group_dead_letters(read_filter({"limit": limit}).limit)

    async def replay(
        self, which: str | Iterable[str] | None = None, *, rate: float | None = None, **criteria: Unpack[JobCriteria]
    ) -> builtins.list[ReplayResult]:
        """Give dead letters a new life under the same id: by id, or all that have something in common, oldest first.

        One answer for each. `rate`: at most so many in a second; None: all at once.

        Raises:
            InvalidArguments, JobNotFound, UniqueConflict: one single id was given, and could not be replayed.
        """
        rate = read_rate(rate)
        check_selection(which, criteria)
        answers: builtins.list[ReplayResult] = []
        store = await self._client.store()
        async for ids in pace_pages(self._select_ids(which, criteria), self._clock, rate):
            answers += await store.jobs.replay(ids)
        if isinstance(which, str) and not answers[0].replayed:
            await self._raise_refusal(answers[0])
        return answers

    async def discard(self, which: str | Iterable[str] | None = None, **criteria: Unpack[JobCriteria]) -> int:
        """Move dead letters to history, where they are pruned in time. Returns how many there were.

        Raises:
            InvalidArguments, JobNotFound: one single id was given, and is no dead letter.
        """
        check_selection(which, criteria)
        store = await self._client.store()
        discarded = 0
        async for ids in pace_pages(self._select_ids(which, criteria), self._clock, None):
            discarded += await store.jobs.discard(ids)
        if isinstance(which, str) and not discarded:
            await self.show(which)
            raise _not_dead_letter_error(which)
        return discarded

    async def _select_ids(
        self, which: str | Iterable[str] | None, criteria: JobCriteria
    ) -> AsyncIterator[Sequence[JobId]]:
        """The oldest first, as they came; so all of them have to be known before the first is told."""
        if which is not None:
            yield read_ids(which)
            return
        yield [id async for page in all_ids(self._client, _only_dead_letters(read_filter(criteria))) for id in page][
            ::-1
        ]

    async def _raise_refusal(self, answer: ReplayResult) -> None:
        job = await self.show(answer.id)
        if answer.conflict is not None:
            raise UniqueConflict(answer.id, job.key or "", answer.conflict)
        raise _not_dead_letter_error(answer.id)


def _not_dead_letter_error(id: str) -> InvalidArguments:
    return InvalidArguments(f"job {id} is no dead letter any more: somebody has discarded it", "id")


def _only_dead_letters(filter: JobFilter) -> JobFilter:
    return msgspec.structs.replace(filter, state=JobState.DEAD, dead_letters=True)
