"""The steps of the demo, and whether all jobs ended as expected. Displays nothing itself: `screen.py` does.

two workers start > enqueue every kind of job > kill a worker in the middle of the long job > wait > check
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from drumbeat.cli.demo import app as shop
from drumbeat.cli.demo.workers import DemoWorkers
from drumbeat.clock import SYSTEM
from drumbeat.core.instance import Instance, InstanceState
from drumbeat.core.job import Job, JobState, NewJob
from drumbeat.core.job_query import JobCounts

if TYPE_CHECKING:
    from drumbeat.cli.demo.screen import DemoScreen

POLL_INTERVAL = 0.1
"""Seconds between two queries of the store."""
PAGES = 120
SCENARIO_KEY = "play"
"""Key of all jobs of the scenario; others, of the dashboard's buttons, do not count."""
SCENARIO_TIMEOUT = 35.0
"""Seconds after which the demo gives up."""
ENDED = frozenset({JobState.SUCCEEDED, JobState.DEAD, JobState.CANCELLED, JobState.EXPIRED})


class JobKind(msgspec.Struct, frozen=True):
    """One way for jobs to end: its name, its task, the number of jobs, how to make one, and how each must end."""

    name: str
    task: str
    jobs: int
    build: Callable[[int], NewJob]
    """Of the number of the job, from 1."""
    ends: JobState = JobState.SUCCEEDED
    attempts: int = 1
    """Expected number if no worker dies."""


def _build_delivery(number: int) -> NewJob:
    return shop.deliver.bind(order=199 + number, address=f"{number} Nowhere Lane", api_key="sk-demo-1234")


KINDS = (
    JobKind("success", "greet", 20, lambda number: shop.greet.bind(f"customer {number}")),
    JobKind("many small", "resize", 500, lambda number: shop.resize.bind(number)),
    JobKind("delayed", "remind", 6, lambda number: shop.remind.using(delay=(3 + number) / 4).bind(number)),
    JobKind("transient fail", "charge", 8, lambda number: shop.charge.bind(order=99 + number, cents=990), attempts=3),
    JobKind("permanent fail", "deliver", 3, _build_delivery, ends=JobState.DEAD, attempts=3),
    JobKind(
        "gives up at once", "refund", 1, lambda _: shop.refund.bind(300, reason="changed my mind"), ends=JobState.DEAD
    ),
    JobKind("worker killed", "report", 1, lambda _: shop.report.bind(PAGES)),
)


class KindProgress(msgspec.Struct, frozen=True):
    """The progress of the jobs of a kind."""

    kind: JobKind
    counts: JobCounts = JobCounts()
    detail: str = ""

    @property
    def ended(self) -> int:
        return self.counts.succeeded + self.counts.dead


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

    victim: Instance
    page: int
    killed_at: float
    found_dead_after: float | None = None
    """Seconds after the kill."""
    taken_over: tuple[str, float] | None = None
    """By which worker, and the seconds."""


class DemoResult(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was observed."""

    rows: list[KindResult]
    dead_letters: list[Job]
    recovery: Recovery | None
    earliest: float
    """Minimum lateness of the delayed jobs in seconds; negative: one started too early."""
    latest: float
    seconds: float
    log: str

    @property
    def problems(self) -> list[str]:
        found = [f"{row.kind.name}: not as expected" for row in self.rows if not row.as_expected]
        if self.recovery is None or self.recovery.taken_over is None:
            found.append("the job of the killed worker was not taken over")
        if self.earliest < 0:
            found.append("a delayed job ran before it was due")
        return found


class Scenario:
    """One run of the demo's scenario."""

    def __init__(self, workers: DemoWorkers, screen: DemoScreen) -> None:
        self._workers = workers
        self._screen = screen
        self._app = shop.app
        self._recovery: Recovery | None = None
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
        # The report comes first: its worker is the one to be killed. The many small jobs come last.
        kinds = sorted(KINDS, key=lambda kind: {"report": 0, "resize": 2}.get(kind.task, 1))
        jobs = [kind.build(number) for kind in kinds for number in range(1, kind.jobs + 1)]
        handles = await self._app.enqueue_many(msgspec.structs.replace(job, key=SCENARIO_KEY) for job in jobs)
        self._report_id = handles[0].id
        self._screen.note(f"{len(handles)} jobs enqueued in one transaction")

    async def _poll(self) -> bool:
        """Show the progress, do the next step, and return whether all jobs have ended."""
        job = await self._app.jobs.show(self._report_id)
        page = f"page {_read_page(job)} of {PAGES}" if job.state is JobState.RUNNING else ""
        progress = [
            KindProgress(
                kind,
                await self._app.jobs.counts(task=kind.task, key=SCENARIO_KEY),
                page if kind.task == job.task else "",
            )
            for kind in KINDS
        ]
        self._screen.show(progress)
        if self._recovery is None:
            small = next(each for each in progress if each.kind.task == "resize")
            await self._kill_in_the_middle(job, small.ended == small.kind.jobs)
        elif self._recovery.taken_over is None:
            await self._watch_recovery(job, self._recovery)
        return all(each.ended >= each.kind.jobs for each in progress)

    async def _kill_in_the_middle(self, job: Job, small_done: bool) -> None:
        """Kill the worker of the report; if possible after the small jobs, so that only the report is affected."""
        page = _read_page(job)
        if job.state is not JobState.RUNNING or job.instance is None or page < PAGES * (0.4 if small_done else 0.75):
            return
        owner = await self._app.instances.show(job.instance)
        if owner.state is not InstanceState.ALIVE:
            return
        self._workers.kill(owner.pid)
        self._recovery = Recovery(victim=owner, page=page, killed_at=SYSTEM.monotonic())
        self._screen.note(f"kill -9 {owner.pid}: worker {owner.id} dies at page {page} of the report")

    async def _watch_recovery(self, job: Job, seen: Recovery) -> None:
        since = SYSTEM.monotonic() - seen.killed_at
        if seen.found_dead_after is None:
            victim = await self._app.instances.show(seen.victim.id)
            if victim.state is InstanceState.DEAD:
                seen.found_dead_after = since
                self._screen.note(
                    f"its supervisor noticed: after {since:.1f} s its jobs are free, and another worker is started"
                )
        has_run = job.state is JobState.RUNNING or job.state in ENDED
        if job.instance is not None and job.instance != seen.victim.id and has_run:
            seen.taken_over = job.instance, since
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


def _read_page(job: Job) -> int:
    progress: Any = None if job.progress is None else msgspec.json.decode(job.progress)
    return progress["page"] if isinstance(progress, dict) else 0


def _lateness(job: Job) -> float:
    """Seconds from due to started; 0 for crashed jobs, whose start is not the first."""
    if job.started_at is None or job.crashes:
        return 0.0
    return (job.started_at - job.due_at).total_seconds()


def _kind_result(kind: JobKind, jobs: list[Job]) -> KindResult:
    ends = [job.state for job in jobs]
    runs = [job.failures + job.crashes + (job.state is JobState.SUCCEEDED) for job in jobs]
    ended_at = [job.finished_at for job in jobs if job.finished_at is not None]
    # Other jobs of the killed worker have one more run.
    charged = all(run == kind.attempts + job.crashes for job, run in zip(jobs, runs, strict=True))
    return KindResult(
        kind=kind,
        succeeded=ends.count(JobState.SUCCEEDED),
        dead=ends.count(JobState.DEAD),
        retried=sum(run > 1 for run in runs),
        attempts=sum(runs),
        seconds=(max(ended_at) - min(job.created_at for job in jobs)).total_seconds() if ended_at else 0.0,
        as_expected=ends == [kind.ends] * kind.jobs and charged and (kind.task != "report" or jobs[0].crashes > 0),
    )
