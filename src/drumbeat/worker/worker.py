"""The lifetimes of a worker's parts, and the order in which it stops.

    subscribers > store > notifications > registered > lifespans > pruner, stats writer > start-up, then store loop > slots

What is further left lives longer. An unreachable store is retried, at the start as later. The controller shares the heartbeat's
thread; the app provides it.

To stop: no more claims, and the controller resigns; buffered jobs are released; running jobs see that the worker drains and
have the drain timeout; then they are interrupted and released uncharged; the last outcomes are reported; a resigned leader
waits for its successor; the program's own resources are closed; the instance deregisters. Each step has a timeout
(shutdown.py): an unreachable store does not delay it for long, and other instances free the jobs that it could not report.
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
from drumbeat.errors import DrumbeatError, StartFailed, StoreError, StoreUnavailable
from drumbeat.event_logging import log_events
from drumbeat.outage import UnreachableRule
from drumbeat.protocols import WorkerApp
from drumbeat.service import OutageBackoff, open_with_retries, run_in_background
from drumbeat.settings import Settings
from drumbeat.store.protocol import Store
from drumbeat.store.protocol.wake import Subscriber
from drumbeat.worker.burst import BurstWatch
from drumbeat.worker.core import WorkerCore
from drumbeat.worker.crash_journal import CrashJournal, NullCrashJournal
from drumbeat.worker.event_loop import guest_context
from drumbeat.worker.fork_detector import FORKS
from drumbeat.worker.lifespans import open_lifespans
from drumbeat.worker.parts import WorkerParts, check_process_tasks
from drumbeat.worker.protocols import DeclarationService

log = logging.getLogger(__name__)

SUCCESSOR_TIMEOUT = 1.5
"""How long a resigning leader waits for its successor: one heartbeat plus slack."""
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
        in_process: bool = False,
        on_stuck: Callable[[int], None] = lambda code: None,
        install_signals: Callable[[], None] | None = None,
    ) -> None:
        """`on_stuck` is called with the exit code when a handler does not end. For the rest see core.py and parts.py.

        Raises:
            ConfigError: a task needs child processes, and there is no `ref`.
        """
        logs.protect_loggers()
        FORKS.watch(asyncio.get_running_loop())
        journal = journal or NullCrashJournal()
        self.core = core = WorkerCore(
            app, settings, journal, may_exit=may_exit, in_process=in_process, install_signals=install_signals
        )
        check_process_tasks(core, ref)
        self._app = app
        self._settings = settings
        self._clock = core.clock
        self.shutdown = core.shutdown
        self._identity = core.identity
        self._ref = ref
        self._on_stuck = on_stuck
        self.is_started = False
        """Its start-up is done: it takes jobs, or leads."""

    @property
    def parts(self) -> WorkerParts | None:
        """None until its store is open."""
        return getattr(self, "_parts", None)

    def request_stop(self) -> None:
        """Drain; called again: do not wait for running jobs, nor long for the store."""
        self.shutdown.request()

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
        return self.shutdown.exit_code

    async def _open(self) -> Store | None:
        """The app's store; None: asked to stop, or given up, before it answered."""
        rule = UnreachableRule(self._settings, self._clock)
        backoff = OutageBackoff(self._clock, self.core.outage_reporter)

        def on_failure(error: StoreUnavailable) -> None:
            backoff.record_failure(error)
            if rule.record_failure():
                self.shutdown.leave_store(str(error))

        stop, delay = self.shutdown.stop, self._settings.heartbeat
        store = await open_with_retries(self._app.store, on_failure=on_failure, stop=stop, retry_delay=delay)
        if store is None:
            return None
        backoff.reset()
        if any(task.options.transactional for task in self._app.registry):
            store.transactional.transaction()  # raises NotTransactional where there are none
        return store

    async def _run_registered(self, store: Store) -> None:
        self._parts = parts = WorkerParts(self.core, store, self._ref)
        self.shutdown.on_stop.append(parts.heartbeat.beat_now)
        self.shutdown.on_give_up += [parts.heartbeat.shorten_leave, self._log_unreported]
        async with self._listen(store) as wake_address, parts.heartbeat.register(wake_address) as registered:
            if await self.shutdown.wait_unless_stopped(registered):
                lifespans = open_lifespans(self._app.lifespans, companions=self._app.companions)
                pruner = self.core.controller.create_pruner(store)
                sweeper = self.core.controller.create_release_sweeper(store)
                lanes = self.core.controller.create_lane_sweeper(store, self.core.lines)
                declarations = self._declare_limits(store)
                async with lifespans, run_in_background(pruner, sweeper, lanes, declarations, parts.stats_writer):
                    await self._run_startup(store, declarations)
                    self.is_started = True
                    await (self.shutdown.stop.wait() if self._settings.role == "controller" else self._work(store))
                    if not self.shutdown.has_given_up:
                        await parts.stats_writer.finish()
                        await self._await_successor()

    def _declare_limits(self, store: Store) -> DeclarationService:
        tasks = {task.name: task.options.queue for task in self._app.registry if task.options.policy is None}
        declarations = self.core.controller.create_limit_declarations(store, self.core.lines, tasks)
        self._parts.listener.on_emptied = declarations.wake
        return declarations

    def _listen(self, store: Store) -> AbstractAsyncContextManager[str | None]:
        """Without jobs to run, nothing needs a notification."""
        if self._settings.role == "controller":
            return nullcontext()
        parts = self._parts
        return store.wake.listen(
            Subscriber(on_job=parts.fetcher.on_notification, on_handoff=parts.store_loop.on_parked_answer)
        )

    async def _run_startup(self, store: Store, declarations: DeclarationService) -> None:
        """Before the first claim. On a stop request the running call is signalled; one in a thread has the drain timeout."""
        controller = self.core.controller
        async with asyncio.TaskGroup() as group:
            calls = group.create_task(
                controller.run_startup(
                    store, in_thread=self._parts.threads.run, identity=self._identity, prepare=declarations.declare_all
                ),
                name="start-up",
            )
            stop = group.create_task(self.shutdown.stop.wait(), name="stop")
            hurry = group.create_task(self.shutdown.hurry.wait(), name="hurry")
            await asyncio.wait([calls, stop], return_when=asyncio.FIRST_COMPLETED)
            if not calls.done():
                controller.stop_startup()
                await asyncio.wait([calls, hurry], timeout=self._settings.drain, return_when=asyncio.FIRST_COMPLETED)
            if calls.cancelled():
                raise StartFailed("on_start", "its code cancelled the task that it ran in")
            for task in (calls, stop, hurry):
                task.cancel()
            if not await self.shutdown.wait_for_handlers(calls):
                await self._exit_stuck(store)

    async def _await_successor(self) -> None:
        """A resigning leader goes on firing until there is another one, so that a deploy makes no fire late."""
        parts, give_up_at = self._parts, self._clock.monotonic() + SUCCESSOR_TIMEOUT
        while (
            parts.listener.awaits_successor
            and not self.shutdown.urgent.is_set()
            and self._clock.monotonic() < give_up_at
        ):
            parts.heartbeat.beat_now()
            await self._clock.sleep(SUCCESSOR_POLL_INTERVAL)

    async def _work(self, store: Store) -> None:
        parts, guard = self._parts, self.core.guard
        guard.start()
        try:
            async with asyncio.TaskGroup() as group:
                reporting = group.create_task(parts.store_loop.run(), name=parts.store_loop.name)
                verifying = group.create_task(parts.verifier.run(), name=parts.verifier.name)
                recording = group.create_task(parts.step_recorder.run(), name=parts.step_recorder.name)
                loading = group.create_task(parts.parent_results.run(), name=parts.parent_results.name)
                following = group.create_task(parts.release_follower.run(), name=parts.release_follower.name)
                async with asyncio.TaskGroup() as inner:
                    handlers = inner.create_task(self._run_handlers(store), name="handlers")
                    if self._settings.max_memory is not None:
                        inner.create_task(parts.recycler.watch_memory(self._settings.max_memory), name="recycler")
                    if self._settings.burst:
                        watch = BurstWatch(self.core, store, parts.fetcher, parts.reporter)
                        inner.create_task(watch.run(), name="burst watch")
                    await self.shutdown.stop.wait()
                    await self._drain(store, handlers)
                parts.step_recorder.close()
                parts.parent_results.close()
                parts.verifier.close()
                flushing = group.create_task(self._flush_outcomes(verifying, reporting), name="last outcomes")
                is_away = self.shutdown.has_given_up or self.core.outage_reporter.is_away
                left = len(parts.reporter.held)
                if not await self.shutdown.wait_for_outcomes(flushing, left=left, is_away=is_away):
                    self.shutdown.give_up()
                    for task in (recording, loading, verifying, reporting, flushing):
                        task.cancel()
                following.cancel()  # the children that it was to follow are followed by others
        except BaseExceptionGroup:
            await self._report_crash(store, parts.runner.abandoned_jobs)
            raise
        finally:
            guard.stop()
            parts.threads.close()
            if parts.child_pool is not None:
                await parts.child_pool.close()

    async def _run_handlers(self, store: Store) -> None:
        """Call handlers, of jobs and of rooms, until both have stopped."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._parts.slots.run(), name="slots")
            group.create_task(self._parts.rooms.run(store), name="rooms")

    async def _drain(self, store: Store, handlers: "asyncio.Task[None]") -> None:
        parts, runs, drain, hurry = self._parts, self.core.runs, self._settings.drain, self.shutdown.hurry
        facts = {"running": len(runs), "drain": "forever" if drain is None else f"{drain:g} s"}
        log.info("draining", extra=facts)
        parts.fetcher.stop()
        parts.rooms.stop()
        parts.reporter.release(parts.buffer.close())
        runs.abort_all(AbortReason.DRAINING)
        # Locks that the program holds outside of jobs may be held for the drain timeout, too.
        on_free = partial(asyncio.get_running_loop().call_soon_threadsafe, hurry.set)
        handlers.add_done_callback(lambda _: self._app.keeper.table.call_when_free(on_free))
        if drain is not None:
            self._clock.call_later(drain, hurry.set)
        await hurry.wait()
        runs.interrupt_all(AbortReason.DRAINING)
        parts.rooms.interrupt()
        if not await self.shutdown.wait_for_handlers(handlers):
            await self._exit_stuck(store)

    async def _flush_outcomes(self, verifying: "asyncio.Task[None]", reporting: "asyncio.Task[None]") -> None:
        await asyncio.wait([verifying])
        self._parts.store_loop.close()
        await asyncio.wait([reporting])

    def _log_unreported(self) -> None:
        if held := self._parts.reporter.held:
            facts = {"jobs": len(held), "exit_code": self.shutdown.exit_code}
            log.error("this worker exits with unreported outcomes: these jobs run again", extra=facts)

    async def _report_crash(self, store: Store, jobs: list[ClaimedJob]) -> None:
        """The worker fails because of a bug: what ran may be to blame, and counts as crash suspect."""
        claims = [ClaimRef(job.id, job.token) for job in jobs]
        if not claims:
            return
        with suppress(StoreError, TimeoutError):  # then other instances declare us dead, and suspect all our jobs
            async with asyncio.timeout(self.shutdown.leave_timeout):
                await store.instances.declare_dead(
                    self._identity(), beat=None, started=claims, reason="the worker failed"
                )

    async def _exit_stuck(self, store: Store) -> None:
        """A handler swallows its cancellation: its job is freed for others, so this process must not go on with it."""
        try:
            async with asyncio.timeout(self.shutdown.leave_timeout):
                await store.instances.deregister(self._identity(), "a handler did not end")
        except (StoreUnavailable, TimeoutError):
            self.shutdown.give_up()  # other instances declare us dead
        self._on_stuck(self.shutdown.exit_code)

    @asynccontextmanager
    async def _run_subscribers(self) -> AsyncIterator[None]:
        """Run async subscribers of events while the body runs."""
        loop, events = asyncio.get_running_loop(), self.core.events
        async with asyncio.TaskGroup() as group:

            def spawn(coroutine: Coroutine[Any, Any, object]) -> None:
                start = partial(group.create_task, coroutine, name="event subscriber", context=guest_context())
                loop.call_soon_threadsafe(start)

            with events.spawn_with(spawn, self.core.guard.restore_loop), log_events(events):
                yield
