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
from drumbeat.errors import ConfigError, DrumbeatError, StartFailed, StoreError, StoreUnavailable
from drumbeat.events import LoopBlocked
from drumbeat.ids import InstanceId
from drumbeat.model.job import Claimed, Hold
from drumbeat.outage import OnlyFull
from drumbeat.presence import ExitRule, Presence
from drumbeat.service import Patience, Wakeup, background, open_patiently
from drumbeat.settings import Settings
from drumbeat.store.protocol import Store
from drumbeat.telling import told
from drumbeat.worker.apart import Apart
from drumbeat.worker.buffer import Buffer
from drumbeat.worker.completing import Completing
from drumbeat.worker.departure import Departure
from drumbeat.worker.doubts import Doubts
from drumbeat.worker.exchange import Exchange
from drumbeat.worker.fetcher import Fetcher
from drumbeat.worker.forks import FORKS
from drumbeat.worker.guard import Guard
from drumbeat.worker.household import Household
from drumbeat.worker.lifespans import opened
from drumbeat.worker.loops import guest_context
from drumbeat.worker.marks import Marks, NoMarks
from drumbeat.worker.pace import Pace
from drumbeat.worker.plans import plans, resting
from drumbeat.worker.processes import Processes
from drumbeat.worker.program import Program
from drumbeat.worker.recording import Recorder, Recording
from drumbeat.worker.reporter import Reporter
from drumbeat.worker.rooms import Rooms
from drumbeat.worker.runner import Runner
from drumbeat.worker.runs import Runs
from drumbeat.worker.slots import Slots
from drumbeat.worker.suspects import Suspects
from drumbeat.worker.threads import Threads
from drumbeat.worker.turns import Turns
from drumbeat.worker.watch import LoopWatch

log = logging.getLogger(__name__)

EXIT_OK = 0
EXIT_REPLACE = 70
"""Too many threads are stuck in handlers: start me again."""
EXIT_NO_STORE = 75
"""The store has been away for long and nothing runs: start me again later (EX_TEMPFAIL)."""
SUCCESSOR_WITHIN = 1.5
"""So long a leader that leaves waits until another leads: a heartbeat, and a little more."""
LOOK_FOR_SUCCESSOR = 0.1


class Worker:
    """Made on the loop that it runs on."""

    def __init__(
        self,
        program: Program,
        settings: Settings,
        *,
        ref: str | None = None,
        marks: Marks | NoMarks | None = None,
        may_leave: bool = False,
        on_stuck: Callable[[int], None] = lambda code: None,
        take_signals: Callable[[], None] | None = None,
    ) -> None:
        self._program = program
        self._settings = settings
        self._clock = program.clock
        self._events = program.events
        self._may_leave = may_leave
        self._on_stuck = on_stuck
        self._take_signals = take_signals
        logs.protect()
        FORKS.watch(asyncio.get_running_loop())
        self._marks = marks or NoMarks()
        self._plans = plans(program.registered_tasks)
        self._tasks = {name: plan.signature for name, plan in self._plans.items()}
        self.exit_code = EXIT_OK
        """What a process that ran this worker should end with."""
        self._departure = Departure(program.clock, settings.drain, self._on_stop)
        self._has_given_up = False
        self._presence: Presence | None = None
        self._controller = program.controller(settings)
        self._ref = ref
        self._assemble()

    def _assemble(self) -> None:
        settings, clock = self._settings, self._clock
        self._wakeup = Wakeup(clock)
        self._runs = Runs()
        self._buffer = Buffer(self._wakeup.set)
        self._pace = Pace(settings.concurrency, most=4 * settings.batch)
        self._recorder = Recorder(lambda: self._exchange.store_now())
        self._reporter = Reporter(clock, self._events, self._recorder, self._wakeup.set)
        named = {task.queue for task in self._program.registered_tasks}
        weights = settings.weights(named) or {"default": 3}
        self._turns = Turns(weights, strict=settings.strict, rests=resting(self._program.registered_tasks))
        self._fetcher = Fetcher(
            clock,
            self._buffer,
            self._turns,
            self._pace,
            batches={name: plan.batch for name, plan in self._plans.items() if plan.batch},
            batch=settings.batch,
            poll=settings.poll,
            wake=self._wakeup.set,
        )
        self._household = Household(
            settings,
            self._events,
            self._buffer,
            self._fetcher,
            self._reporter,
            self._runs,
            self._marks,
            queues=self._turns.queues,
            tasks=self._tasks,
            rooms=lambda: self._rooms.signatures,
            leave=self._on_hopeless,
        )
        self._threads = Threads(self._on_abandoned, clock)
        self._slots: Slots | None = None
        self._guard: Guard | None = None
        self._rooms = Rooms(
            self._program.registered_rooms, clock, self._events, self._threads, self._identity, self._mend
        )
        self._outage = self._controller.outage
        self._patience = Patience(clock, self._outage)
        self._processes = self._pool()

    def _apart(self) -> Apart | None:
        if self._processes is None:
            return None
        suspects = Suspects(self._settings.concurrency, self._clock)
        return Apart(self._processes, suspects, self._clock, self._reporter, self._identity)

    def _pool(self) -> Processes | None:
        apart = sorted(name for name, plan in self._plans.items() if plan.pool == "process")
        if self._ref is not None:
            return Processes(self._ref, self._settings, limit=self._settings.concurrency)
        if apart:
            raise ConfigError(
                f'task {apart[0]!r} has pool="process", but child processes cannot find this app: '
                "make it a module-level variable and start it with `drumbeat run module:app`"
            )
        return None

    def request_stop(self) -> None:
        """Drain; called again: do not wait for what runs, nor long for the store."""
        self._departure.request()

    def _on_stop(self) -> None:
        self._controller.resign()
        if self._presence is not None:
            self._presence.hurry()

    @property
    def is_stopping(self) -> bool:
        return self._departure.stop.is_set()

    async def run(self) -> int:
        """Work until asked to stop, and drain. Returns the exit code."""
        problem: DrumbeatError | None = None
        async with self._subscribers():
            try:
                store = await self._open()
            except DrumbeatError as error:
                problem = error  # raised as it is, not in the group of the subscribers
            else:
                if store is not None:
                    await self._live(store)
        if problem is not None:
            raise problem
        return self.exit_code

    async def _open(self) -> Store | None:
        """The program's store; None: asked to stop, or given up, before it answered."""
        rule = ExitRule(self._settings, self._clock)

        def failed(error: StoreUnavailable) -> None:
            self._patience.failed(error)
            if rule.failed():
                self._on_hopeless(str(error))

        stop, pause = self._departure.stop, self._settings.heartbeat
        store = await open_patiently(self._program.store, failed=failed, stop=stop, pause=pause)
        if store is None:
            return None
        self._patience.over()
        if any(task.options.transactional for task in self._program.registered_tasks):
            store.inside.check()
        return store

    async def _live(self, store: Store) -> None:
        self._exchange = self._household.exchange = Exchange(
            store.jobs,
            self._clock,
            self._buffer,
            self._fetcher,
            self._reporter,
            self._outage,
            self._wakeup,
            batch=self._settings.batch,
            identity=self._identity,
        )
        store_now = self._exchange.store_now
        recording = Recording(
            self._recorder,
            store.stats,
            self._clock,
            now=store_now,
            identity=self._identity,
            patience=Patience(self._clock, OnlyFull(self._outage)),
        )
        watch = LoopWatch(
            self._clock,
            self._rooms.functions | {name: plan.function for name, plan in self._plans.items()},
            lambda: len(self._runs) > 0 or self._rooms.running > 0,
            self._on_blocked,
        )
        self._presence = Presence(
            self._program.open_store,
            self._household,
            self._settings,
            self._clock,
            beside=self._controller,
            locks=self._program.keeper.lodge,
            watch=watch.run,
        )
        async with self._listening(store) as self._household.address, self._presence.registered() as begun:
            if await self._departure.comes_first(begun):
                lifespans = opened(self._program.lifespans, companions=self._program.companions)
                async with lifespans, background(self._controller.pruner(store), recording):
                    await self._start_up(store)
                    await (self._departure.stop.wait() if self._settings.role == "controller" else self._work(store))
                    if not self._has_given_up:
                        await recording.finish()
                        await self._await_successor(self._presence)

    def _listening(self, store: Store) -> AbstractAsyncContextManager[str | None]:
        """Who runs no jobs has nothing to be woken for."""
        if self._settings.role == "controller":
            return nullcontext()
        return store.wake.listen(self._fetcher.hear, self._exchange.receive)

    async def _start_up(self, store: Store) -> None:
        """Before the first claim. When asked to stop meanwhile, the call that is under way is told; one in a thread has the
        time that jobs have to drain."""
        async with asyncio.TaskGroup() as group:
            calls = group.create_task(
                self._controller.start_up(store, in_thread=self._threads.run, identity=self._identity),
                name="start-up",
            )
            stop = group.create_task(self._departure.stop.wait(), name="stop")
            hurry = group.create_task(self._departure.hurry.wait(), name="hurry")
            await asyncio.wait([calls, stop], return_when=asyncio.FIRST_COMPLETED)
            if not calls.done():
                self._controller.stop_starting()
                await asyncio.wait([calls, hurry], timeout=self._settings.drain, return_when=asyncio.FIRST_COMPLETED)
            if calls.cancelled():
                raise StartFailed("on_start", "its code cancelled the task that it ran in")
            for task in (calls, stop, hurry):
                task.cancel()
            if not await self._departure.interrupted(calls):
                await self._leave_stuck(store)

    async def _await_successor(self, presence: Presence) -> None:
        """A leader that leaves goes on firing until another leads, so that a deploy makes no fire late."""
        give_up_at = self._clock.monotonic() + SUCCESSOR_WITHIN
        while (
            self._household.awaits_successor
            and not self._departure.urgent.is_set()
            and self._clock.monotonic() < give_up_at
        ):
            presence.hurry()
            await self._clock.sleep(LOOK_FOR_SUCCESSOR)

    async def _work(self, store: Store) -> None:
        doubts = Doubts(store.inspect, self._reporter, self._patience, self._identity)
        limit = self._settings.payload_limit
        runner = Runner(
            self._plans,
            self._clock,
            self._events,
            self._reporter,
            self._runs,
            self._pace,
            self._marks,
            self._threads,
            self._apart(),
            doubts,
            Completing(store.inside, self._identity, payload_limit=limit, is_committed=doubts.is_committed),
            payload_limit=limit,
            store_now=self._exchange.store_now,
            identity=self._identity,
        )
        is_own_process = self._take_signals is not None
        guard = self._guard = Guard(
            asyncio.get_running_loop(), is_own_process=is_own_process, signals=self._take_signals
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
                telling = group.create_task(self._exchange.run(), name="exchange")
                settling = group.create_task(doubts.run(), name="doubts")
                async with asyncio.TaskGroup() as inner:
                    working = inner.create_task(self._handle(store, slots), name="handlers")
                    await self._departure.stop.wait()
                    await self._drain(store, working)
                doubts.close()
                last = group.create_task(self._tell_the_last(settling, telling), name="last outcomes")
                is_away = self._has_given_up or self._outage.is_away
                if not await self._departure.told(last, left=len(self._reporter.held), is_away=is_away):
                    self._give_up()
                    for task in (settling, telling, last):
                        task.cancel()
        except BaseExceptionGroup:
            await self._blame(store, runner.given_up)
            raise
        finally:
            guard.stop()
            self._threads.close()
            if self._processes is not None:
                await self._processes.close()

    async def _handle(self, store: Store, slots: Slots) -> None:
        """Call handlers, of jobs and of rooms, until both have stopped."""
        async with asyncio.TaskGroup() as group:
            group.create_task(slots.run(), name="slots")
            group.create_task(self._rooms.run(store), name="rooms")

    async def _drain(self, store: Store, working: "asyncio.Task[None]") -> None:
        patience = "forever" if self._settings.drain is None else f"{self._settings.drain:g} s"
        log.info("draining", extra={"running": len(self._runs), "waits": patience})
        self._fetcher.stop()
        self._rooms.stop()
        self._reporter.give_back(self._buffer.close())
        self._runs.abort_all(AbortReason.DRAINING)
        # What a program does under a lock besides its jobs may go on as long as they may.
        home = asyncio.get_running_loop()
        quiet = partial(home.call_soon_threadsafe, self._departure.hurry.set)
        working.add_done_callback(lambda _: self._program.keeper.when_free(quiet))
        if self._settings.drain is not None:
            self._clock.later(self._settings.drain, self._departure.hurry.set)
        await self._departure.hurry.wait()
        self._runs.interrupt_all(AbortReason.DRAINING)
        self._rooms.interrupt()
        if not await self._departure.interrupted(working):
            await self._leave_stuck(store)

    async def _tell_the_last(self, settling: "asyncio.Task[None]", telling: "asyncio.Task[None]") -> None:
        await asyncio.wait([settling])
        self._exchange.close()
        await asyncio.wait([telling])

    def _give_up(self) -> None:
        """The store is away, and we have waited for long enough."""
        self._has_given_up = True
        self.exit_code = EXIT_NO_STORE
        if self._presence is not None:
            self._presence.expect_no_answer()
        if self._reporter.held:
            facts = {"jobs": len(self._reporter.held), "exit_code": self.exit_code}
            log.error("this worker leaves and could not tell the store how jobs ended: they run again", extra=facts)

    async def _blame(self, store: Store, jobs: list[Claimed]) -> None:
        """The worker falls over a mistake: what ran may be to blame, and must not come again as if nothing had been."""
        holds = [Hold(job.id, job.token) for job in jobs]
        if not holds:
            return
        with suppress(StoreError, TimeoutError):  # then others find us dead, and suspect all
            async with asyncio.timeout(self._departure.goodbye_within):
                await store.instances.bury(self._identity(), beat=None, started=holds, why="the worker failed")

    async def _leave_stuck(self, store: Store) -> None:
        """A handler swallows its cancellation: others get its job, and this process must not go on with it."""
        try:
            async with asyncio.timeout(self._departure.goodbye_within):
                await store.instances.leave(self._identity(), "a handler did not end")
        except (StoreUnavailable, TimeoutError):
            self._give_up()  # found dead by others
        self._on_stuck(self.exit_code)

    def _identity(self) -> InstanceId:
        return self._household.identity

    @property
    def runs(self) -> Runs:
        return self._runs

    @property
    def has_stuck_handlers(self) -> bool:
        """Handlers still work on jobs that were given up: only the end of the process stops them."""
        return self._stuck > 0

    @property
    def _stuck(self) -> int:
        return self._threads.abandoned + (0 if self._slots is None else self._slots.abandoned)

    @asynccontextmanager
    async def _subscribers(self) -> AsyncIterator[None]:
        """Where async subscribers of events run."""
        home = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:

            def spawn(coroutine: Coroutine[Any, Any, object]) -> None:
                start = partial(group.create_task, coroutine, name="event subscriber", context=guest_context())
                home.call_soon_threadsafe(start)

            with self._events.spawning(spawn, self._mend), told(self._events):
                yield

    def _mend(self) -> None:
        """Code of the program has run that is no job."""
        if self._guard is not None:
            self._guard.mend()

    def _on_hopeless(self, reason: str) -> None:
        if self._may_leave and not self.is_stopping:
            self._give_up()
            facts = {"reason": reason, "exit_code": self.exit_code}
            log.error("the store has been away for too long and nothing runs: this worker leaves", extra=facts)
            self._departure.begin()
            self._departure.hurry.set()

    def _on_abandoned(self, count: int) -> None:
        if self._may_leave and self._stuck >= self._settings.concurrency and not self.is_stopping:
            self.exit_code = EXIT_REPLACE
            self._departure.begin()

    def _on_blocked(self, seconds: float, tasks: tuple[str, ...], where: str) -> None:
        self._events.emit(LoopBlocked(instance=self._identity(), seconds=seconds, tasks=tasks, where=where))
