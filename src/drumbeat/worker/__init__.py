"""A worker: it claims jobs, runs them and reports how they ended. This module shows only who lives how long.

    subscribers > store > listening > registered > lifespans > pruning, recording > start-up, then exchange > slots

What stands outside lives longer. A store that is away is waited for, at the start as later. Beside the heart lives the
controller, which this package does not know: the program brings it. To stop, in this order: no claim any more, and no leading;
buffered jobs go back; running ones hear that the worker drains and have their time; then they are ended and released without
charge; the last outcomes are told; whoever led waits a moment for its successor; the program's own resources are closed; the
instance says goodbye. Each step is bounded (departure.py): a store that is away keeps nobody from leaving, and what it could
not be told is found by others.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from functools import partial
from typing import Any

from drumbeat import logs
from drumbeat.context import AbortReason
from drumbeat.core.claim import ClaimedJob, ClaimRef
from drumbeat.errors import ConfigError, DrumbeatError, StartFailed, StoreError, StoreUnavailable
from drumbeat.event_logging import log_events
from drumbeat.events import LoopBlocked
from drumbeat.heartbeat import Heartbeat
from drumbeat.ids import InstanceId
from drumbeat.outage import FullStoreReporter, UnreachableRule
from drumbeat.processes.exit_codes import EXIT_NO_STORE, EXIT_OK, EXIT_REPLACE
from drumbeat.protocols import WorkerApp
from drumbeat.service import OutageBackoff, Wakeup, open_with_retries, run_in_background
from drumbeat.settings import Settings
from drumbeat.store.protocol import Store
from drumbeat.worker.active_runs import ActiveRuns
from drumbeat.worker.buffer import JobBuffer
from drumbeat.worker.child_pool import ChildPool
from drumbeat.worker.child_runner import ChildRunner
from drumbeat.worker.commit_check import CompletionVerifier
from drumbeat.worker.crash_journal import CrashJournal, NullCrashJournal
from drumbeat.worker.crash_suspects import CrashSuspectLimiter
from drumbeat.worker.event_loop import guest_context
from drumbeat.worker.fetcher import Fetcher
from drumbeat.worker.fork_detector import FORKS
from drumbeat.worker.heartbeat_listener import HeartbeatListener
from drumbeat.worker.job_completer import JobCompleter
from drumbeat.worker.lifespans import open_lifespans
from drumbeat.worker.prefetch import Prefetch
from drumbeat.worker.process_guard import ProcessGuard
from drumbeat.worker.queue_weights import QueueWeights
from drumbeat.worker.reporter import OutcomeReporter
from drumbeat.worker.room_consumer import RoomConsumer
from drumbeat.worker.runner import JobRunner
from drumbeat.worker.shutdown import Shutdown
from drumbeat.worker.slots import Slots
from drumbeat.worker.stats_recorder import StatsRecorder, StatsWriter
from drumbeat.worker.store_loop import StoreLoop
from drumbeat.worker.task_spec import build_task_specs, find_resting_queues
from drumbeat.worker.thread_pool import ThreadPool
from drumbeat.worker.watch import LoopWatch

log = logging.getLogger(__name__)

SUCCESSOR_TIMEOUT = 1.5
"""So long a leader that leaves waits until another leads: a heartbeat, and a little more."""
SUCCESSOR_POLL_INTERVAL = 0.1


class Worker:
    """Made on the loop that it runs on."""

    def __init__(
        self,
        app: WorkerApp,
        settings: Settings,
        *,
        ref: str | None = None,
        journal: CrashJournal | NullCrashJournal | None = None,
        may_exit: bool = False,
        on_stuck: Callable[[int], None] = lambda code: None,
        install_signals: Callable[[], None] | None = None,
    ) -> None:
        self._app = app
        self._settings = settings
        self._clock = app.clock
        self._events = app.events
        self._may_exit = may_exit
        self._on_stuck = on_stuck
        self._install_signals = install_signals
        logs.protect_loggers()
        FORKS.watch(asyncio.get_running_loop())
        self._journal = journal or NullCrashJournal()
        self._task_specs = build_task_specs(app.registered_tasks)
        self._tasks = {name: plan.signature for name, plan in self._task_specs.items()}
        self.exit_code = EXIT_OK
        """What a process that ran this worker should end with."""
        self._shutdown = Shutdown(app.clock, settings.drain, self._on_stop)
        self._has_given_up = False
        self._heartbeat: Heartbeat | None = None
        self._controller = app.controller(settings)
        self._ref = ref
        self._assemble()

    def _assemble(self) -> None:
        settings, clock = self._settings, self._clock
        self._wakeup = Wakeup(clock)
        self._runs = ActiveRuns()
        self._buffer = JobBuffer(self._wakeup.set)
        self._prefetch = Prefetch(settings.concurrency, max_jobs=4 * settings.batch)
        self._recorder = StatsRecorder(lambda: self._store_loop.store_now())
        self._reporter = OutcomeReporter(clock, self._events, self._recorder, self._wakeup.set)
        named = {task.queue for task in self._app.registered_tasks}
        weights = settings.queue_weights(named) or {"default": 3}
        self._queue_weights = QueueWeights(
            weights, strict=settings.strict, rests=find_resting_queues(self._app.registered_tasks)
        )
        self._fetcher = Fetcher(
            clock,
            self._buffer,
            self._queue_weights,
            self._prefetch,
            batch_sizes={name: plan.batch for name, plan in self._task_specs.items() if plan.batch},
            max_claim=settings.batch,
            poll=settings.poll,
            wake=self._wakeup.set,
        )
        self._listener = HeartbeatListener(
            settings,
            self._events,
            self._buffer,
            self._fetcher,
            self._reporter,
            self._runs,
            self._journal,
            queues=self._queue_weights.queues,
            tasks=self._tasks,
            rooms=lambda: self._rooms.signatures,
            on_unreachable=self._on_unreachable,
        )
        self._threads = ThreadPool(self._on_abandoned, clock)
        self._slots: Slots | None = None
        self._guard: ProcessGuard | None = None
        self._rooms = RoomConsumer(
            self._app.registered_rooms, clock, self._events, self._threads, self._identity, self._restore_loop
        )
        self._outage_reporter = self._controller.outage_reporter
        self._backoff = OutageBackoff(clock, self._outage_reporter)
        self._child_pool = self._create_child_pool()

    def _create_child_runner(self) -> ChildRunner | None:
        if self._child_pool is None:
            return None
        suspects = CrashSuspectLimiter(self._settings.concurrency, self._clock)
        return ChildRunner(self._child_pool, suspects, self._clock, self._reporter, self._identity)

    def _create_child_pool(self) -> ChildPool | None:
        apart = sorted(name for name, plan in self._task_specs.items() if plan.pool == "process")
        if self._ref is not None:
            return ChildPool(self._ref, self._settings, limit=self._settings.concurrency)
        if apart:
            raise ConfigError(
                f'task {apart[0]!r} has pool="process", but child processes cannot find this app: '
                "make it a module-level variable and start it with `drumbeat run module:app`"
            )
        return None

    def request_stop(self) -> None:
        """Drain; called again: do not wait for what runs, nor long for the store."""
        self._shutdown.request()

    def _on_stop(self) -> None:
        self._controller.resign()
        if self._heartbeat is not None:
            self._heartbeat.beat_now()

    @property
    def is_stopping(self) -> bool:
        return self._shutdown.stop.is_set()

    async def run(self) -> int:
        """Work until asked to stop, and drain. Returns the exit code."""
        problem: DrumbeatError | None = None
        async with self._run_subscribers():
            try:
                store = await self._open()
            except DrumbeatError as error:
                problem = error  # raised as it is, not in the group of the subscribers
            else:
                if store is not None:
                    await self._run_registered(store)
        if problem is not None:
            raise problem
        return self.exit_code

    async def _open(self) -> Store | None:
        """The program's store; None: asked to stop, or given up, before it answered."""
        rule = UnreachableRule(self._settings, self._clock)

        def failed(error: StoreUnavailable) -> None:
            self._backoff.record_failure(error)
            if rule.record_failure():
                self._on_unreachable(str(error))

        stop, pause = self._shutdown.stop, self._settings.heartbeat
        store = await open_with_retries(self._app.store, on_failure=failed, stop=stop, retry_delay=pause)
        if store is None:
            return None
        self._backoff.reset()
        if any(task.options.transactional for task in self._app.registered_tasks):
            store.transactional.check()
        return store

    async def _run_registered(self, store: Store) -> None:
        self._store_loop = self._listener.store_loop = StoreLoop(
            store.jobs,
            self._clock,
            self._buffer,
            self._fetcher,
            self._reporter,
            self._outage_reporter,
            self._wakeup,
            batch=self._settings.batch,
            identity=self._identity,
        )
        store_now = self._store_loop.store_now
        recording = StatsWriter(
            self._recorder,
            store.stats,
            self._clock,
            now=store_now,
            identity=self._identity,
            backoff=OutageBackoff(self._clock, FullStoreReporter(self._outage_reporter)),
        )
        watch = LoopWatch(
            self._clock,
            self._rooms.functions | {name: plan.function for name, plan in self._task_specs.items()},
            lambda: len(self._runs) > 0 or self._rooms.running > 0,
            self._on_blocked,
        )
        self._heartbeat = Heartbeat(
            self._app.open_store,
            self._listener,
            self._settings,
            self._clock,
            companion=self._controller,
            run_locks=self._app.keeper.attach,
            run_watch=watch.run,
        )
        async with self._listen(store) as self._listener.wake_address, self._heartbeat.register() as begun:
            if await self._shutdown.wait_unless_stopped(begun):
                lifespans = open_lifespans(self._app.lifespans, companions=self._app.companions)
                async with lifespans, run_in_background(self._controller.create_pruner(store), recording):
                    await self._run_startup(store)
                    await (self._shutdown.stop.wait() if self._settings.role == "controller" else self._work(store))
                    if not self._has_given_up:
                        await recording.finish()
                        await self._await_successor(self._heartbeat)

    def _listen(self, store: Store) -> AbstractAsyncContextManager[str | None]:
        """Who runs no jobs has nothing to be woken for."""
        if self._settings.role == "controller":
            return nullcontext()
        return store.wake.listen(self._fetcher.on_notification, self._store_loop.on_parked_answer)

    async def _run_startup(self, store: Store) -> None:
        """Before the first claim. When asked to stop meanwhile, the call that is under way is told; one in a thread has the
        time that jobs have to drain."""
        async with asyncio.TaskGroup() as group:
            calls = group.create_task(
                self._controller.run_startup(store, in_thread=self._threads.run, identity=self._identity),
                name="start-up",
            )
            stop = group.create_task(self._shutdown.stop.wait(), name="stop")
            hurry = group.create_task(self._shutdown.hurry.wait(), name="hurry")
            await asyncio.wait([calls, stop], return_when=asyncio.FIRST_COMPLETED)
            if not calls.done():
                self._controller.stop_startup()
                await asyncio.wait([calls, hurry], timeout=self._settings.drain, return_when=asyncio.FIRST_COMPLETED)
            if calls.cancelled():
                raise StartFailed("on_start", "its code cancelled the task that it ran in")
            for task in (calls, stop, hurry):
                task.cancel()
            if not await self._shutdown.wait_for_handlers(calls):
                await self._exit_stuck(store)

    async def _await_successor(self, presence: Heartbeat) -> None:
        """A leader that leaves goes on firing until another leads, so that a deploy makes no fire late."""
        give_up_at = self._clock.monotonic() + SUCCESSOR_TIMEOUT
        while (
            self._listener.awaits_successor
            and not self._shutdown.urgent.is_set()
            and self._clock.monotonic() < give_up_at
        ):
            presence.beat_now()
            await self._clock.sleep(SUCCESSOR_POLL_INTERVAL)

    async def _work(self, store: Store) -> None:
        doubts = CompletionVerifier(store.inspect, self._reporter, self._backoff, self._identity)
        limit = self._settings.payload_limit
        runner = JobRunner(
            self._task_specs,
            self._clock,
            self._events,
            self._reporter,
            self._runs,
            self._prefetch,
            self._journal,
            self._threads,
            self._create_child_runner(),
            doubts,
            JobCompleter(store.transactional, self._identity, payload_limit=limit, is_committed=doubts.is_committed),
            payload_limit=limit,
            store_now=self._store_loop.store_now,
            identity=self._identity,
        )
        is_own_process = self._install_signals is not None
        guard = self._guard = ProcessGuard(
            asyncio.get_running_loop(), is_own_process=is_own_process, signals=self._install_signals
        )
        slots = self._slots = Slots(
            self._settings.concurrency,
            self._buffer,
            runner,
            self._runs,
            self._clock,
            grace=self._settings.drain,
            on_abandoned=self._on_abandoned,
            guard=guard,
        )
        guard.start()
        try:
            async with asyncio.TaskGroup() as group:
                telling = group.create_task(self._store_loop.run(), name="exchange")
                settling = group.create_task(doubts.run(), name="doubts")
                async with asyncio.TaskGroup() as inner:
                    working = inner.create_task(self._run_handlers(store, slots), name="handlers")
                    await self._shutdown.stop.wait()
                    await self._drain(store, working)
                doubts.close()
                last = group.create_task(self._flush_outcomes(settling, telling), name="last outcomes")
                is_away = self._has_given_up or self._outage_reporter.is_away
                if not await self._shutdown.wait_for_outcomes(last, left=len(self._reporter.held), is_away=is_away):
                    self._give_up()
                    for task in (settling, telling, last):
                        task.cancel()
        except BaseExceptionGroup:
            await self._report_crash(store, runner.abandoned_jobs)
            raise
        finally:
            guard.stop()
            self._threads.close()
            if self._child_pool is not None:
                await self._child_pool.close()

    async def _run_handlers(self, store: Store, slots: Slots) -> None:
        """Call handlers, of jobs and of rooms, until both have stopped."""
        async with asyncio.TaskGroup() as group:
            group.create_task(slots.run(), name="slots")
            group.create_task(self._rooms.run(store), name="rooms")

    async def _drain(self, store: Store, working: "asyncio.Task[None]") -> None:
        patience = "forever" if self._settings.drain is None else f"{self._settings.drain:g} s"
        log.info("draining", extra={"running": len(self._runs), "waits": patience})
        self._fetcher.stop()
        self._rooms.stop()
        self._reporter.release(self._buffer.close())
        self._runs.abort_all(AbortReason.DRAINING)
        # What a program does under a lock besides its jobs may go on as long as they may.
        home = asyncio.get_running_loop()
        quiet = partial(home.call_soon_threadsafe, self._shutdown.hurry.set)
        working.add_done_callback(lambda _: self._app.keeper.table.call_when_free(quiet))
        if self._settings.drain is not None:
            self._clock.call_later(self._settings.drain, self._shutdown.hurry.set)
        await self._shutdown.hurry.wait()
        self._runs.interrupt_all(AbortReason.DRAINING)
        self._rooms.interrupt()
        if not await self._shutdown.wait_for_handlers(working):
            await self._exit_stuck(store)

    async def _flush_outcomes(self, settling: "asyncio.Task[None]", telling: "asyncio.Task[None]") -> None:
        await asyncio.wait([settling])
        self._store_loop.close()
        await asyncio.wait([telling])

    def _give_up(self) -> None:
        """The store is away, and we have waited for long enough."""
        self._has_given_up = True
        self.exit_code = EXIT_NO_STORE
        if self._heartbeat is not None:
            self._heartbeat.shorten_leave()
        if self._reporter.held:
            facts = {"jobs": len(self._reporter.held), "exit_code": self.exit_code}
            log.error("this worker leaves and could not tell the store how jobs ended: they run again", extra=facts)

    async def _report_crash(self, store: Store, jobs: list[ClaimedJob]) -> None:
        """The worker falls over a mistake: what ran may be to blame, and must not come again as if nothing had been."""
        holds = [ClaimRef(job.id, job.token) for job in jobs]
        if not holds:
            return
        with suppress(StoreError, TimeoutError):  # then others find us dead, and suspect all
            async with asyncio.timeout(self._shutdown.leave_timeout):
                await store.instances.declare_dead(
                    self._identity(), beat=None, started=holds, reason="the worker failed"
                )

    async def _exit_stuck(self, store: Store) -> None:
        """A handler swallows its cancellation: others get its job, and this process must not go on with it."""
        try:
            async with asyncio.timeout(self._shutdown.leave_timeout):
                await store.instances.deregister(self._identity(), "a handler did not end")
        except (StoreUnavailable, TimeoutError):
            self._give_up()  # found dead by others
        self._on_stuck(self.exit_code)

    def _identity(self) -> InstanceId:
        return self._listener.identity

    @property
    def runs(self) -> ActiveRuns:
        return self._runs

    @property
    def has_stuck_handlers(self) -> bool:
        """Handlers still work on jobs that were given up: only the end of the process stops them."""
        return self._stuck > 0

    @property
    def _stuck(self) -> int:
        return self._threads.abandoned + (0 if self._slots is None else self._slots.abandoned)

    @asynccontextmanager
    async def _run_subscribers(self) -> AsyncIterator[None]:
        """Where async subscribers of events run."""
        home = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:

            def spawn(coroutine: Coroutine[Any, Any, object]) -> None:
                start = partial(group.create_task, coroutine, name="event subscriber", context=guest_context())
                home.call_soon_threadsafe(start)

            with self._events.spawn_with(spawn, self._restore_loop), log_events(self._events):
                yield

    def _restore_loop(self) -> None:
        """Code of the program has run that is no job."""
        if self._guard is not None:
            self._guard.restore_loop()

    def _on_unreachable(self, reason: str) -> None:
        if self._may_exit and not self.is_stopping:
            self._give_up()
            facts = {"reason": reason, "exit_code": self.exit_code}
            log.error("the store has been away for too long and nothing runs: this worker leaves", extra=facts)
            self._shutdown.start()
            self._shutdown.hurry.set()

    def _on_abandoned(self, count: int) -> None:
        if self._may_exit and self._stuck >= self._settings.concurrency and not self.is_stopping:
            self.exit_code = EXIT_REPLACE
            self._shutdown.start()

    def _on_blocked(self, seconds: float, tasks: tuple[str, ...], where: str) -> None:
        self._events.emit(LoopBlocked(instance=self._identity(), seconds=seconds, tasks=tasks, where=where))
