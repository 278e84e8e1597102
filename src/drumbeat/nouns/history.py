"""`app.history`: every run that is still on record, with when it was due, when and where it ran, and how it ended."""

from __future__ import annotations

from typing import Any, TypedDict

from drumbeat.client import Client
from drumbeat.tasks import Task

from .moments import Run, runs
from .wanted import Wanted, listed, read_filter


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


async def history(client: Client, task: str | Task[..., Any] | None, wanted: WantedRuns) -> list[Run]:
    """The runs of jobs, newest job first, and of each the last run first."""
    chosen: Wanted = {**wanted, "task": task.name if isinstance(task, Task) else task}
    jobs = await listed(client, read_filter(chosen))
    store = await client.store()
    return [run for job in jobs for run in runs(job, await store.inspect.attempts(job.id))]
