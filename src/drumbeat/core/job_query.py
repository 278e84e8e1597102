"""Searching and counting jobs: the filter, the page, the counts."""

from datetime import datetime

import msgspec

from drumbeat.core.job import Job, JobState, PendingView
from drumbeat.ids import InstanceId, JobId


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs somebody wants to see; None means any. What is set must all be so."""

    state: JobState | None = None
    view: PendingView | None = None
    """Pending jobs that people are shown by this word at this moment."""
    task: str | None = None
    queue: str | None = None
    key: str | None = None
    error: str | None = None
    """A part of the error's type or message."""
    schedule: str | None = None
    """Fires of this schedule."""
    instance: InstanceId | None = None
    """Where it runs, or ran last before it ended."""
    since: int | None = None
    """Made at this moment or later, in microseconds: by its id, so by the clock of whoever made it, to the millisecond."""
    until: int | None = None
    """Made before this moment."""
    id: str | None = None
    """The id, or its beginning."""
    id_end: str | None = None
    """How the id ends, in lower case: what lists that have little room show of it."""
    dead_letters: bool = False
    """Only dead letters: not the dead that somebody has discarded."""
    before: JobId | None = None
    """Keyset paging: only ids smaller than this one, newest first."""
    limit: int = 50
    preview: int | None = None
    """Of arguments, progress and result only the first so many characters are read; None: all of them."""


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """A part of what a filter means, newest first."""

    items: list[Job]
    next: JobId | None
    """Go on with `before=` this: there may be more, also where this page is not full, or empty. None: that was all."""


class JobCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs there are, by the word that people see."""

    ready: int = 0
    scheduled: int = 0
    retrying: int = 0
    waiting: int = 0
    running: int = 0
    succeeded: int = 0
    dead: int = 0
    """Dead letters, and those that somebody has discarded and that are not pruned yet."""
    cancelled: int = 0
    capped: bool = False
    """There may be more than these numbers say: the count ended before the jobs did."""

    @property
    def total(self) -> int:
        """All that were counted."""
        known = self.ready + self.scheduled + self.retrying + self.waiting + self.running
        return known + self.succeeded + self.dead + self.cancelled


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    ready: int
    scheduled: int
    running: int
    waiting: int
    oldest_due: datetime | None
    """run_at of the job that has been ready for longest."""
    paused: bool = False
    paused_by: str | None = None
    paused_reason: str | None = None
    paused_at: datetime | None = None


class TaskStats(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    pending: int
    running: int
    succeeded: int
    dead: int
    cancelled: int
