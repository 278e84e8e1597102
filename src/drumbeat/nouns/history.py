"""`app.history`: every run that is still on record, with when it was due, when and where it ran, and how it ended."""

from __future__ import annotations

from typing import Any, TypedDict, cast

import msgspec

from drumbeat.client import Client
from drumbeat.ids import JobId
from drumbeat.model.job import Job, JobFilter
from drumbeat.tasks import Task

from .moments import Run, runs
from .wanted import Wanted, listed, paged, read_filter


class WantedRuns(TypedDict, total=False):
    """Whose runs."""

    queue: str | None
    key: str | None
    error: str | None
    state: str | None
    before: str | None
    """Only of jobs older than the one of this id: the next page."""
    limit: int
    """Of at most so many jobs; 50 if it is not said."""


class RunPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some runs, and how to go on."""

    items: list[Run]
    next: JobId | None
    """`before=` for the next page; None: there are no older jobs. A page may be empty and have a next one: jobs that have
    not run yet have no runs."""


async def history(client: Client, task: str | Task[..., Any] | None, wanted: WantedRuns) -> list[Run]:
    """The runs of jobs, newest job first, and of each the last run first."""
    return await _runs_of(client, await listed(client, _filter(task, wanted)))


async def history_page(client: Client, task: str | Task[..., Any] | None, wanted: WantedRuns) -> RunPage:
    """The same by one bounded look, with what the next page begins with."""
    page = await paged(client, _filter(task, wanted))
    return RunPage(items=await _runs_of(client, page.items), next=page.next)


def _filter(task: str | Task[..., Any] | None, wanted: WantedRuns) -> JobFilter:
    # A run has neither arguments nor results.
    return read_filter(cast(Wanted, {**wanted, "task": task.name if isinstance(task, Task) else task, "preview": 0}))


async def _runs_of(client: Client, jobs: list[Job]) -> list[Run]:
    store = await client.store()
    return [run for job in jobs for run in runs(job, await store.inspect.attempts(job.id))]
