"""`app.history`: the recorded runs of jobs: when each was due, when and where it ran, and how it ended."""

from __future__ import annotations

from typing import Any, TypedDict, cast

import msgspec

from drumbeat.client import Client
from drumbeat.core.job import Attempt, Job
from drumbeat.core.job_query import JobFilter
from drumbeat.ids import JobId
from drumbeat.tasks import Task

from .filters import PAGE, JobQuery, list_jobs, page_jobs, read_filter
from .views import Run, job_runs


class RunQuery(TypedDict, total=False):
    """Which runs."""

    queue: str | None
    key: str | None
    error: str | None
    state: str | None
    before: str | None
    """Only runs of jobs older than the one with this id: the next page."""
    limit: int
    """Number of jobs whose runs are read. Default: 50."""


class RunPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of runs."""

    items: list[Run]
    next: JobId | None
    """`before=` for the next page; None: there are no older jobs. A page may be empty and have a next one, because jobs that
    have not run yet have no runs."""


async def history(client: Client, task: str | Task[..., Any] | None, query: RunQuery) -> list[Run]:
    """The runs of jobs, newest job first; those of one job in reverse order."""
    return await _read_runs(client, await list_jobs(client, _build_filter(task, query)))


async def history_page(client: Client, task: str | Task[..., Any] | None, query: RunQuery) -> RunPage:
    """The same by a bounded scan, with the start of the next page."""
    page = await page_jobs(client, _build_filter(task, query))
    return RunPage(items=await _read_runs(client, page.items), next=page.next)


def _build_filter(task: str | Task[..., Any] | None, query: RunQuery) -> JobFilter:
    # A run has neither arguments nor results.
    return read_filter(cast(JobQuery, {**query, "task": task.name if isinstance(task, Task) else task, "preview": 0}))


async def _read_runs(client: Client, jobs: list[Job]) -> list[Run]:
    store = await client.store()
    attempts: dict[JobId, list[Attempt]] = {}
    for start in range(0, len(jobs), PAGE):
        attempts |= await store.inspect.get_attempts([job.id for job in jobs[start : start + PAGE]])
    return [run for job in jobs for run in reversed(job_runs(job, attempts[job.id]))]
