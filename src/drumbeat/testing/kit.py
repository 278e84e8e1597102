"""`Kit`: an app under test, on a temporary store, with a clock that the test moves.

    test --advance, run_until_idle--> Kit --moves--> VirtualClock
                                       |                 |
                                    a real worker, controller and client, on the loop of the test, through the real SQLite

Nothing is mocked but time: jobs are encoded, stored, claimed, run, retried and fired as in production.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from drumbeat.clock import SYSTEM
from drumbeat.core.job import Job, JobState, NewJob
from drumbeat.durations import Duration, from_us, microseconds, to_us
from drumbeat.errors import InvalidArguments
from drumbeat.events import AttemptFailed, JobStarted
from drumbeat.handle import JobHandle, SyncJobHandle
from drumbeat.ids import JobId, simulated_ids
from drumbeat.store.urls import open_store
from drumbeat.tasks import Task
from drumbeat.testing.enqueued import EnqueuedJobs, parse_time
from drumbeat.testing.gate import StoreGate
from drumbeat.testing.kit_worker import REAL_WAIT, KitWorker
from drumbeat.testing.loop_turns import is_quiet, run_ready
from drumbeat.testing.perform import perform
from drumbeat.testing.virtual_clock import VirtualClock
from drumbeat.worker.store_clock import MARGIN_SECONDS

if TYPE_CHECKING:
    from drumbeat.app import Drumbeat
    from drumbeat.testing.sync_kit import SyncKit

POLL_LATENESS_US = round(MARGIN_SECONDS * 1e6)
"""By which a worker looks for a job after it is due."""
MAX_LATENESS_US = 10_000
"""What falls due so much after an `advance` still counts as within: it was put off by what ran before it."""
CLAIM_STEP_US = 1_000
"""A worker claims up to so late, by the clock: time passes as far for work that is due."""
MAX_STEPS_TO_CLAIM = 200
DEFAULT_PATIENCE = 5.0
MAX_JOBS = 10_000
SHARED_MEMORY = Path("/dev/shm")


class Kit(EnqueuedJobs):
    """An app under test: `async with Kit(app) as kit`, or `with Kit(app) as kit` in a test without a loop."""

    def __init__(
        self,
        app: Drumbeat,
        *,
        at: datetime | str | None = None,
        worker: bool = True,
        patience: float = DEFAULT_PATIENCE,
        raise_failures: bool = False,
    ) -> None:
        """`at`: what the clock shows at first; by default the time of the machine, to the second. `worker=False`: jobs are
        stored and not run. `patience`: how many real seconds a handler may wait for something real. `raise_failures`: a failed
        attempt fails the test, after `run_until_idle` and `advance`.
        """
        self.app = app
        self.clock = VirtualClock(SYSTEM.now_us() // 1_000_000 * 1_000_000 if at is None else parse_time(at))
        self._internals = app._internals
        self._has_worker = worker
        self._patience = patience
        self._raise_failures = raise_failures
        self._gate = StoreGate()
        self._runs: Counter[str] = Counter()
        self._failures: list[AttemptFailed] = []
        self._hanging: set[JobId] = set()
        """Jobs whose handlers wait for something that does not come: they end when time has passed to their time-outs."""
        self._exit = ExitStack()
        self._sync: SyncKit | None = None

    async def __aenter__(self) -> Self:
        folder = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
        with ExitStack() as stack:
            name = stack.enter_context(tempfile.TemporaryDirectory(prefix="drumbeat-kit-", dir=folder))
            self.url = f"sqlite:///{name}/jobs.db"
            stack.enter_context(self.app.override(self.url, clock=self.clock))
            stack.enter_context(simulated_ids(lambda: self.clock.now_us() * 1_000, os.urandom))
            stack.enter_context(self._gated())
            stack.enter_context(self._subscribed())
            self._store = await open_store(self.url, clock=self.clock)
            self._worker = KitWorker(self._internals, self._gate, self.clock, self._store)
            self._exit = stack.pop_all()
        try:
            if self._has_worker:
                self._worker.start()
                await self._settle()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self._worker.stop()
        finally:
            await self._close()

    async def _close(self) -> None:
        await self._worker.close()
        await self._store.close()
        await self._internals.close_with_sync()
        self._exit.close()

    def __enter__(self) -> SyncKit:
        from drumbeat.testing.sync_kit import SyncKit

        self._sync = SyncKit(self)
        return self._sync.enter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._sync is not None
        self._sync.leave(kind, error, trace)

    @contextmanager
    def _gated(self) -> Iterator[None]:
        client = self._internals.client
        before, client.wrap_store = client.wrap_store, self._gate.wrap
        try:
            yield
        finally:
            client.wrap_store = before

    @contextmanager
    def _subscribed(self) -> Iterator[None]:
        events = self._internals.events
        events.subscribe(JobStarted, self._on_started)
        events.subscribe(AttemptFailed, self._failures.append)
        try:
            yield
        finally:
            events.unsubscribe(JobStarted, self._on_started)
            events.unsubscribe(AttemptFailed, self._failures.append)

    def _on_started(self, event: JobStarted) -> None:
        self._runs[event.job.task] += 1

    def crash(self) -> None:
        """End the worker as kill -9 would, but for `finally` blocks of handlers: the store hears nothing of it any more.

        Another worker starts at once. Its jobs are claimed again when `dead_after` has passed.
        """
        self._worker.crash()

    @contextmanager
    def outage(self) -> Iterator[None]:
        """The store answers nobody while the block runs: `with kit.outage(): await kit.advance("20s")`."""
        self._gate.outages += 1
        try:
            yield
        finally:
            self._gate.outages -= 1

    # Time.

    def now(self) -> datetime:
        return from_us(self.clock.now_us())

    def jump(self, by: float) -> None:
        """Step the wall clock by these seconds, also back; nothing else moves."""
        self.clock.jump(by)

    async def run_until_idle(self, *, retries: bool = False, max_jobs: int = MAX_JOBS) -> None:
        """Run every job that is due by now, and those that they enqueue. Time does not move, but for some milliseconds.

        With `retries` time moves to the retries of failed jobs, until none is left. It never moves to a delayed job or a fire.

        Raises:
            AssertionError: more than `max_jobs` jobs have run, or a handler waits for something that does not come.
        """
        while True:
            await self._settle(max_jobs)
            retry_at = await self._next_retry() if retries else None
            if retry_at is None:
                break
            self.clock.move_to(self.clock.passed_us + max(0, retry_at - self.clock.now_us()))
        self._check_failures()

    async def advance(self, by: Duration) -> None:
        """Let time pass: whatever falls due within it runs at its time, retries, delays, fires, leases and time-outs.

        What runs takes a fraction of a millisecond, and what waits from then on (a sleep, a retry) falls due so much later:
        that still counts as within.

        Raises:
            InvalidArguments: `by` is negative, or no duration.
            AssertionError: a handler waits for something that does not come, and does not time out within this time.
        """
        end = self.clock.passed_us + microseconds(by, name="advance", error=InvalidArguments)
        lateness = POLL_LATENESS_US + await self._settle_timed(until=end)
        while True:
            due = await self._next_event()
            if due is None or due > end + min(lateness, MAX_LATENESS_US):
                break
            self.clock.move_to(due)
            lateness += POLL_LATENESS_US + await self._settle_timed(until=end)
        self.clock.move_to(end)  # the worker's own upkeep is done now, once
        await self._settle(until=end)
        self._check_failures()

    async def _settle_timed(self, until: int) -> int:
        """Returns how much time it took, in microseconds."""
        began = self.clock.passed_us
        await self._settle(until=until)
        return self.clock.passed_us - began

    async def _next_event(self) -> int | None:
        """The next time at which something may happen, as `passed_us`."""
        if self._held_locks or not self._gate.is_open or self._worker.running_jobs() - self._hanging:
            return self.clock.next_timer(upkeep=True)
        candidates = [self.clock.next_timer(upkeep=False), await self._next_fire(), self._worker.next_due()]
        candidates += self._worker.timeouts(self._hanging)
        known = [max(each, self.clock.passed_us + 1) for each in candidates if each is not None]
        return min(known, default=None)

    async def _next_fire(self) -> int | None:
        if not self._worker.is_started:
            return None
        due = await self._store.schedules.get_due(1)
        times = [each.next_at for each in due.schedules if each.next_at is not None]
        times += [] if due.next_at is None else [due.next_at]
        return self.clock.passed_us + min(times) - self.clock.now_us() if times else None

    async def _next_retry(self) -> int | None:
        jobs = await self._find(state=JobState.PENDING)
        return min((to_us(job.run_at) for job in jobs if job.failures), default=None)

    @property
    def _held_locks(self) -> bool:
        return not self._internals.keeper.table.is_empty

    # Settling: everything that is due by now has been done.

    async def _settle(self, max_jobs: int = MAX_JOBS, until: int = 0) -> None:
        """`until`: how far time is about to move, as `passed_us`; handlers that hang may be timed out by then."""
        allowed = self._runs.total() + max_jobs
        steps = runs = 0
        was_hinted = False
        while True:
            await self._wait_for_handlers(allowed, max_jobs, until)
            self._worker.check()
            if not self._gate.is_open or not await self._worker.has_work():
                return
            if self._runs.total() != runs:
                steps, runs, was_hinted = 0, self._runs.total(), False
            # A claim may wait for a fraction of a millisecond, which must pass for it.
            steps += 1
            due = self.clock.next_timer(upkeep=True)
            if due is not None and due - self.clock.passed_us <= CLAIM_STEP_US * steps:
                if steps > MAX_STEPS_TO_CLAIM:
                    raise AssertionError(
                        "jobs are due, and the worker neither claims them nor waits: please report this"
                    )
                self.clock.move_to(due)
            elif was_hinted:
                return  # nobody claims it now, as in a queue that rests
            else:
                # The hint of another loop's store, as that of `enqueue_sync`, may wait for time that does not pass.
                self._worker.hint()
                was_hinted = True

    async def _wait_for_handlers(self, allowed_runs: int, max_jobs: int, until: int) -> None:
        """Until nothing is ready on the loop, and no handler waits for anything but virtual time."""
        deadline = SYSTEM.monotonic() + self._patience
        while True:
            await run_ready()
            if self._runs.total() > allowed_runs:
                raise AssertionError(f"more than {max_jobs} jobs have run: do they enqueue each other for ever?")
            running = self._worker.running_jobs()
            self._hanging &= running
            busy = running - self.clock.sleeping_jobs() - self._hanging
            if not busy and is_quiet():
                return
            near = self.clock.next_timer(upkeep=True)
            if near is not None and near - self.clock.passed_us <= CLAIM_STEP_US:
                self.clock.move_to(near)
                continue
            if busy and SYSTEM.monotonic() > deadline:
                if all(due is not None and due <= until for due in self._worker.timeouts(busy)):
                    self._hanging |= busy
                    continue
                raise AssertionError(
                    f"a handler has waited for {self._patience:g} real seconds and has not ended:"
                    f" {self._worker.describe(busy)}"
                )
            await SYSTEM.sleep(REAL_WAIT)

    def _check_failures(self) -> None:
        failures, self._failures[:] = list(self._failures), []
        if self._raise_failures and failures:
            texts = [
                f"{each.job.task} (attempt {each.attempt}): {each.error.type}: {each.error.message}"
                for each in failures
            ]
            raise AssertionError("attempts have failed: " + "; ".join(texts))

    # What has happened.

    def ran(self, task: Task[..., Any] | str) -> int:
        """How often a job of this task was started."""
        return self._runs[task if isinstance(task, str) else task.name]

    async def perform(self, job: NewJob) -> Any:
        """Call the handler of `task.bind(...)` at once, with its arguments and its result encoded as in production, and
        without a job in the store. What it raises is raised here."""
        return await perform(self._internals, job)

    async def job(self, job: Task[..., Any] | JobHandle[Any] | SyncJobHandle[Any] | JobId | str) -> Job:
        """The newest job of this task, or the job with this id or handle."""
        if not isinstance(job, Task):
            return await self.app.jobs.show(job.id if isinstance(job, JobHandle | SyncJobHandle) else JobId(str(job)))
        found = await self._find(task=job.name, limit=1)
        if not found:
            raise AssertionError(f"there is no job of task {job.name!r}")
        return found[0]

    async def result(self, job: Task[..., Any] | JobHandle[Any] | SyncJobHandle[Any] | JobId | str) -> Any:
        """The result of that job; it must have ended."""
        record = await self.job(job)
        return await self.app.jobs.handle(record.id).result(timeout=0)
