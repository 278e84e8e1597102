"""Searching and counting jobs: the filter, the page, the counts."""

from datetime import datetime
from typing import Annotated

import msgspec

from drumbeat.core.field_doc import doc
from drumbeat.core.job import Job, JobState, PendingView
from drumbeat.ids import InstanceId, JobId


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs to find: all criteria that are set must hold; None means any."""

    state: JobState | None = None
    view: PendingView | None = None
    """Pending jobs that are displayed so now."""
    task: str | None = None
    queue: str | None = None
    key: str | None = None
    error: str | None = None
    """A part of the error's type or message."""
    schedule: str | None = None
    """Fires of this schedule."""
    instance: InstanceId | None = None
    """Where it runs, or ran last before it ended."""
    parent: JobId | None = None
    """Jobs that this one enqueued. Every engine has an index for it; Redis keeps the newest 10,000 of each parent."""
    workflow: str | None = None
    """Jobs of this workflow. Every engine has an index for it."""
    since: int | None = None
    """Created at this time (microseconds) or later: by the id, so by the client's clock, to the millisecond."""
    until: int | None = None
    """Created before this time."""
    id: str | None = None
    """The id or its prefix."""
    id_end: str | None = None
    """The suffix of the id, in lower case: what narrow lists show of it."""
    live: bool = False
    """Only pending and running jobs, in one look: between a search for either and one for the other, a job may have changed."""
    dead_letters: bool = False
    """Only dead letters, without discarded ones."""
    before: JobId | None = None
    """Keyset paging: only ids smaller than this one, newest first."""
    limit: int = 50
    preview: int | None = None
    """Read only this many characters of arguments, progress and result; None: all."""


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of the jobs that match a filter, newest first."""

    items: list[Job]
    next: JobId | None
    """Pass as `before=` for the next page: there may be more, even where this page is not full, or empty. None: the end."""


class JobCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of jobs by how they are displayed."""

    ready: int = 0
    scheduled: int = 0
    retrying: int = 0
    waiting: int = 0
    running: int = 0
    succeeded: int = 0
    dead: Annotated[int, doc("Dead letters, and discarded ones that are not pruned yet.")] = 0
    cancelled: int = 0
    expired: Annotated[int, doc("They did not start in time.")] = 0
    capped: Annotated[bool, doc("The count stopped early: there may be more.")] = False

    @property
    def total(self) -> int:
        known = self.ready + self.scheduled + self.retrying + self.waiting + self.running
        return known + self.succeeded + self.dead + self.cancelled + self.expired


class WaitCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of jobs that hold no slot because something must happen first."""

    parents: int = 0
    signal: int = 0
    sleep: int = 0
    capped: bool = False
    """The last two were counted among the first jobs only."""


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    ready: int
    scheduled: int
    running: int
    waiting: int
    oldest_due: Annotated[datetime | None, doc("run_at of the job that has been ready for longest.")]
    paused: bool = False
    paused_by: str | None = None
    paused_reason: str | None = None
    paused_at: datetime | None = None


class QueueInfo(QueueStats, frozen=True, kw_only=True):
    """A queue and its lag."""

    lag: Annotated[float, doc("Seconds for which its oldest ready job has been due; 0: none is ready.")] = 0.0


class TaskStats(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    pending: int = 0
    running: int = 0
    succeeded: Annotated[int, doc("In history; older jobs are pruned.")] = 0
    dead: int = 0
    cancelled: int = 0
    expired: int = 0
