"""What a test asks of the jobs in its store: which are enqueued, and what an assertion that fails says."""

from __future__ import annotations

import asyncio
import threading
from datetime import datetime
from typing import Any, TypedDict, Unpack

import msgspec

from drumbeat.core.job import Job, JobState
from drumbeat.core.job_query import JobFilter
from drumbeat.durations import to_us
from drumbeat.errors import InvalidArguments
from drumbeat.store.protocol import Store
from drumbeat.store.urls import open_store
from drumbeat.tasks import Task

MAX_READ = 1_000
MAX_SHOWN = 10
AT_TOLERANCE_US = 1_000_000
"""A due time counts as the given one if it is within this: tests say "in an hour", and the enqueue took a moment."""


class JobMatch(TypedDict, total=False):
    """Which jobs are meant; what is left out may be anything."""

    args: tuple[Any, ...]
    """All arguments by position, as `enqueue` takes them; with `kwargs` those by name."""
    kwargs: dict[str, Any]
    key: str | None
    queue: str
    at: datetime | str
    """When it is due, to the second; text is ISO 8601 with a time zone."""


class EnqueuedJobs:
    """The part of a kit that looks at jobs. Not async, so that assertions are plain statements."""

    url: str
    _store: Store

    def enqueued(self, task: Task[..., Any] | None = None, **match: Unpack[JobMatch]) -> list[Job]:
        """Jobs that wait or run, oldest first."""
        wanted = _Wanted(task, match)
        return [job for job in reversed(self._read()) if job.state in _LIVE and wanted.matches(job)]

    def assert_enqueued(
        self, task: Task[..., Any] | None = None, *, count: int | None = None, **match: Unpack[JobMatch]
    ) -> None:
        """At least one such job waits or runs; with `count` exactly so many."""
        found = len(self.enqueued(task, **match))
        if found == count or (count is None and found):
            return
        wanted = "a job" if count is None else f"{count} jobs"
        others = [describe(job) for job in self.enqueued()]
        seen = ", ".join(others[:MAX_SHOWN]) + (
            f" and {len(others) - MAX_SHOWN} more" if len(others) > MAX_SHOWN else ""
        )
        raise AssertionError(
            f"{wanted} of {_Wanted(task, match)} should be enqueued, but {found} {'is' if found == 1 else 'are'};"
            f" enqueued are: {seen or 'none'}"
        )

    def refute_enqueued(self, task: Task[..., Any] | None = None, **match: Unpack[JobMatch]) -> None:
        """No such job waits or runs."""
        if found := self.enqueued(task, **match):
            raise AssertionError(f"no job of {_Wanted(task, match)} should be enqueued, but {describe(found[0])} is")

    def _read(self) -> list[Job]:
        """On a thread with a loop of its own: the caller may be on a loop, and does not await."""
        found: list[Job] = []
        errors: list[BaseException] = []

        def work() -> None:
            try:
                found.extend(asyncio.run(_read_jobs(self.url)))
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=work, name="drumbeat-kit-reader")
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return found

    async def _find(
        self, *, task: str | None = None, state: JobState | None = None, limit: int = MAX_READ
    ) -> list[Job]:
        return await _find_jobs(self._store, JobFilter(task=task, state=state, limit=limit))


_LIVE = (JobState.PENDING, JobState.RUNNING)


class _Wanted:
    def __init__(self, task: Task[..., Any] | None, match: JobMatch) -> None:
        self._task = task
        self._match = match
        if ("args" in match or "kwargs" in match) and task is None:
            raise InvalidArguments("args= and kwargs= need a task: they are compared as it encodes them", "args")
        self._encoded = None
        if task is not None and ("args" in match or "kwargs" in match):
            self._encoded = msgspec.json.decode(task.signature.encode(match.get("args", ()), match.get("kwargs", {})))
        self._at = None if "at" not in match else parse_time(match["at"])

    def matches(self, job: Job) -> bool:
        return (
            (self._task is None or job.task == self._task.name)
            and (self._encoded is None or msgspec.json.decode(job.args) == self._encoded)
            and ("key" not in self._match or job.key == self._match["key"])
            and ("queue" not in self._match or job.queue == self._match["queue"])
            and (self._at is None or abs(to_us(job.run_at) - self._at) < AT_TOLERANCE_US)
        )

    def __str__(self) -> str:
        facts = ", ".join(f"{name}={value!r}" for name, value in self._match.items())
        name = "any task" if self._task is None else self._task.name
        return f"{name} ({facts})" if facts else name


def parse_time(at: datetime | str) -> int:
    """Microseconds since 1970."""
    if isinstance(at, str):
        try:
            at = datetime.fromisoformat(at)
        except ValueError:
            raise InvalidArguments(f"at must be ISO 8601, such as 2026-03-01T08:00Z, not {at!r}", "at") from None
    return to_us(at, name="at")


def describe(job: Job) -> str:
    key = "" if job.key is None else f" key={job.key!r}"
    return f"{job.task}({job.args}){key} due {job.run_at.isoformat()} ({job.state})"


async def _read_jobs(url: str) -> list[Job]:
    async with await open_store(url) as store:
        return await _find_jobs(store, JobFilter(limit=MAX_READ))


async def _find_jobs(store: Store, filter: JobFilter) -> list[Job]:
    """The newest first."""
    found: list[Job] = []
    while len(found) < filter.limit:
        page = await store.inspect.find_page(filter)
        found += page.items
        if page.next is None:
            break
        filter = msgspec.structs.replace(filter, before=page.next)
    return found[: filter.limit]
