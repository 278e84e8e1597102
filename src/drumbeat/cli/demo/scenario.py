"""The steps of the demo, and whether all jobs ended as expected. Displays nothing itself: it reports to a `ProgressView`.

two workers start > enqueue every kind of job > kill a worker in the middle of the long job > wait > check
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Protocol

import msgspec

from drumbeat.cli.demo import app as shop
from drumbeat.cli.demo.workers import DemoWorkers
from drumbeat.clock import SYSTEM
from drumbeat.core.instance import InstanceState
from drumbeat.core.job import Job, JobState, NewJob
from drumbeat.core.job_query import JobCounts
from drumbeat.durations import MICROSECOND

POLL_INTERVAL = 0.1
"""Seconds between two queries of the store."""
PAGES = 120
SCENARIO_KEY = "play"
"""Key of all jobs of the scenario; others, of the dashboard's buttons, do not count."""
SCENARIO_TIMEOUT = 35.0
"""Seconds after which the demo gives up."""
ENDED = frozenset({JobState.SUCCEEDED, JobState.DEAD, JobState.CANCELLED})


class JobKind(msgspec.Struct, frozen=True, kw_only=True):
    """One way for jobs to end: its name, its task, the number of jobs, and how each must end."""

    name: str
    task: str
    jobs: int
    ends: JobState = JobState.SUCCEEDED
    attempts: int = 1
    """Expected number if no worker dies."""


KINDS = (
    JobKind(name="success", task="greet", jobs=20),
    JobKind(name="many small", task="resize", jobs=500),
    JobKind(name="delayed", task="remind", jobs=6),
    JobKind(name="transient fail", task="charge", jobs=8, attempts=3),
    JobKind(name="permanent fail", task="deliver", jobs=3, ends=JobState.DEAD, attempts=3),
    JobKind(name="gives up at once", task="refund", jobs=1, ends=JobState.DEAD),
    JobKind(name="worker killed", task="report", jobs=1),
)


class KindProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of the jobs of a kind."""

    kind: JobKind
    succeeded: int = 0
    dead: int = 0
    running: int = 0
    pending: int = 0
    detail: str = ""

    @property
    def ended(self) -> int:
        return self.succeeded + self.dead


class KindResult(msgspec.Struct, frozen=True, kw_only=True):
    """How the jobs of a kind ended."""

    kind: JobKind
    succeeded: int
    dead: int
    retried: int
    attempts: int
    seconds: float
    as_expected: bool


class Recovery(msgspec.Struct, kw_only=True):
    """How the job of the killed worker was recovered, as far as observed."""

    victim: str = ""
    pid: int = 0
    page: int = 0
    killed_at: float = 0.0
    found_dead_after: float | None = None
    """Seconds after the kill."""
    successor: str | None = None
    taken_over_after: float | None = None

    @property
    def is_complete(self) -> bool:
        return self.successor is not None and self.taken_over_after is not None


class DemoResult(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was observed."""

    rows: list[KindResult]
    dead_letters: list[Job]
    recovery: Recovery
    earliest: float
    """Minimum lateness of the delayed jobs in seconds; negative: one started too early."""
    latest: float
    seconds: float
    log: str

    @property
    def problems(self) -> list[str]:
        found = [f"{row.kind.name}: not as expected" for row in self.rows if not row.as_expected]
        if not self.recovery.is_complete:
            found.append("the job of the killed worker was not taken over")
        if self.earliest < 0:
            found.append("a delayed job ran before it was due")
        return found


class ProgressView(Protocol):
    """Displays the scenario."""

    def note(self, text: str) -> None:
        """Show one line."""

    def show(self, counts: list[KindProgress]) -> None:
        """Show the progress; called often."""


class Scenario:
    """One run of the demo's scenario."""

    def __init__(self, workers: DemoWorkers, screen: ProgressView) -> None:
        self._workers = workers
        self._screen = screen
        self._app = shop.app
        self._recovery = Recovery()
        self._report_id = ""
        self._began_at = SYSTEM.monotonic()

    async def run(self) -> DemoResult:
        await self._wait_for_workers()
        await self._enqueue()
        while not await self._poll():
            if SYSTEM.monotonic() - self._began_at > SCENARIO_TIMEOUT:
                self._screen.note(f"giving up after {SCENARIO_TIMEOUT:g} s")
                break
            await SYSTEM.sleep(POLL_INTERVAL)
        return await self._collect_result()

    async def _wait_for_workers(self) -> None:
        while len(await self._app.instances.list()) < self._workers.size:
            self._workers.check()
            if SYSTEM.monotonic() - self._began_at > SCENARIO_TIMEOUT:
                break
            await SYSTEM.sleep(POLL_INTERVAL)
        self._screen.note(f"{self._workers.size} worker processes started, under a supervisor")

    async def _enqueue(self) -> None:
        handles = await self._app.enqueue_many(_build_jobs())
        self._report_id = handles[0].id
        self._screen.note(f"{len(handles)} jobs enqueued in one transaction")

    async def _poll(self) -> bool:
        """Show the progress, do the next step, and return whether all jobs have ended."""
        job = await self._app.jobs.show(self._report_id)
        counts = [
            _kind_progress(kind, await self._app.jobs.counts(task=kind.task, key=SCENARIO_KEY), job) for kind in KINDS
        ]
        self._screen.show(counts)
        if not self._recovery.victim:
            small = next(count for count in counts if count.kind.task == "resize")
            await self._kill_in_the_middle(job, small.ended == small.kind.jobs)
        elif not self._recovery.is_complete:
            await self._watch_recovery(job)
        return all(count.ended >= count.kind.jobs for count in counts)

    async def _kill_in_the_middle(self, job: Job, small_done: bool) -> None:
        """Kill the worker of the report; if possible after the small jobs, so that only the report is affected."""
        page = _read_page(job)
        if job.state is not JobState.RUNNING or job.instance is None or page < PAGES * (0.4 if small_done else 0.75):
            return
        owner = await self._app.instances.show(job.instance)
        if owner.state is not InstanceState.ALIVE:
            return
        self._workers.kill(owner.pid)
        self._recovery = Recovery(victim=owner.id, pid=owner.pid, page=page, killed_at=SYSTEM.monotonic())
        self._screen.note(f"kill -9 {owner.pid}: worker {owner.id} dies at page {page} of the report")

    async def _watch_recovery(self, job: Job) -> None:
        seen, since = self._recovery, SYSTEM.monotonic() - self._recovery.killed_at
        if seen.found_dead_after is None:
            victim = await self._app.instances.show(seen.victim)
            if victim.state is InstanceState.DEAD:
                seen.found_dead_after = since
                self._screen.note(
                    f"its supervisor noticed: after {since:.1f} s its jobs are free, and another worker is started"
                )
        if job.instance not in (None, seen.victim) and (job.state is JobState.RUNNING or job.state in ENDED):
            seen.successor, seen.taken_over_after = job.instance, since
            self._screen.note(f"worker {job.instance} has the report now, {since:.1f} s after the kill")

    async def _collect_result(self) -> DemoResult:
        jobs = {kind: await self._app.jobs.list(task=kind.task, key=SCENARIO_KEY, limit=1_000) for kind in KINDS}
        delayed = next(found for kind, found in jobs.items() if kind.task == "remind")
        return DemoResult(
            rows=[_kind_result(kind, found) for kind, found in jobs.items()],
            dead_letters=await self._app.dead.list(key=SCENARIO_KEY, limit=100),
            recovery=self._recovery,
            earliest=min(map(_lateness, delayed), default=0.0),
            latest=max(map(_lateness, delayed), default=0.0),
            seconds=SYSTEM.monotonic() - self._began_at,
            log=self._workers.log(),
        )


def _kind_progress(kind: JobKind, seen: JobCounts, report: Job) -> KindProgress:
    is_running = kind.task == report.task and report.state is JobState.RUNNING
    return KindProgress(
        kind=kind,
        succeeded=seen.succeeded,
        dead=seen.dead,
        running=seen.running,
        pending=seen.ready + seen.scheduled + seen.retrying + seen.waiting,
        detail=f"page {_read_page(report)} of {PAGES}" if is_running else "",
    )


def _build_jobs() -> Iterator[NewJob]:
    """The report comes first: its worker is the one to be killed."""
    yield shop.report.using(key=SCENARIO_KEY).bind(PAGES)
    for number in range(_count_jobs_of("greet")):
        yield shop.greet.using(key=SCENARIO_KEY).bind(f"customer {number + 1}")
    for number in range(_count_jobs_of("remind")):
        yield shop.remind.using(key=SCENARIO_KEY, delay=1 + number / 4).bind(number + 1)
    for number in range(_count_jobs_of("charge")):
        yield shop.charge.using(key=SCENARIO_KEY).bind(order=100 + number, cents=990)
    for number in range(_count_jobs_of("deliver")):
        task = shop.deliver.using(key=SCENARIO_KEY)
        yield task.bind(order=200 + number, address=f"{number + 1} Nowhere Lane", api_key="sk-demo-1234")
    yield shop.refund.using(key=SCENARIO_KEY).bind(order=300, reason="changed my mind")
    for number in range(_count_jobs_of("resize")):
        yield shop.resize.using(key=SCENARIO_KEY).bind(number + 1)


def _count_jobs_of(task: str) -> int:
    return next(kind.jobs for kind in KINDS if kind.task == task)


def _read_page(job: Job) -> int:
    progress: Any = None if job.progress is None else msgspec.json.decode(job.progress)
    return progress["page"] if isinstance(progress, dict) else 0


def _lateness(job: Job) -> float:
    """Seconds from due to started; 0 for crashed jobs, whose start is not the first."""
    if job.started_at is None or job.crashes:
        return 0.0
    return (job.started_at - job.due_at) / (1_000_000 * MICROSECOND)


def _kind_result(kind: JobKind, jobs: list[Job]) -> KindResult:
    ends = [job.state for job in jobs]
    runs = [job.failures + job.crashes + (job.state is JobState.SUCCEEDED) for job in jobs]
    crashed = [job for job in jobs if job.crashes]
    # Other jobs of the killed worker have one more run.
    charged = all(run == kind.attempts + job.crashes for job, run in zip(jobs, runs, strict=True))
    return KindResult(
        kind=kind,
        succeeded=ends.count(JobState.SUCCEEDED),
        dead=ends.count(JobState.DEAD),
        retried=sum(run > 1 for run in runs),
        attempts=sum(runs),
        seconds=_elapsed_seconds([job.created_at for job in jobs], [job.finished_at for job in jobs]),
        as_expected=ends == [kind.ends] * kind.jobs and charged and (kind.task != "report" or bool(crashed)),
    )


def _elapsed_seconds(starts: list[datetime], ends: list[datetime | None]) -> float:
    known = [end for end in ends if end is not None]
    return (max(known) - min(starts)).total_seconds() if known and starts else 0.0
