"""`WorkerParts`: every part of a worker that needs the store, built top to bottom. Each part gets only parts made before it.

buffer, reporter --> fetcher --> store loop     claims jobs, reports outcomes
threads, children --> runner --> slots          run them
step recorder, parent results                   what they record of their steps, what they get of other jobs
release follower                                children of parents that have ended
rooms                                           messages of rooms
listener, description --> heartbeat             membership in the cluster
"""

from drumbeat.errors import ConfigError
from drumbeat.events import LoopBlocked
from drumbeat.heartbeat import Heartbeat
from drumbeat.outage import FullStoreReporter
from drumbeat.service import OutageBackoff, Wakeup
from drumbeat.store.protocol import Store
from drumbeat.worker.buffer import JobBuffer
from drumbeat.worker.child_pool import ChildPool
from drumbeat.worker.child_runner import ChildRunner
from drumbeat.worker.commit_check import CompletionVerifier
from drumbeat.worker.core import WorkerCore
from drumbeat.worker.fetcher import FetchCapacity, Fetcher, FetchTimer
from drumbeat.worker.heartbeat_listener import HeartbeatListener, WorkerDescription
from drumbeat.worker.job_completer import JobCompleter
from drumbeat.worker.parent_results import ParentResults
from drumbeat.worker.prefetch import Prefetch
from drumbeat.worker.queue_weights import QueueWeights
from drumbeat.worker.recycler import Recycler
from drumbeat.worker.release_follower import ReleaseFollower
from drumbeat.worker.reporter import OutcomeReporter
from drumbeat.worker.room_consumer import RoomConsumer
from drumbeat.worker.runner import JobRunner
from drumbeat.worker.slots import Slots
from drumbeat.worker.stats_recorder import StatsRecorder, StatsWriter
from drumbeat.worker.step_recorder import StepRecorder
from drumbeat.worker.store_loop import StoreLoop
from drumbeat.worker.task_spec import find_resting_queues, on_success_tasks, served_queues
from drumbeat.worker.thread_pool import ThreadPool
from drumbeat.worker.watch import LoopWatch


class WorkerParts:
    def __init__(self, core: WorkerCore, store: Store, ref: str | None) -> None:
        """`ref`: how child processes find the app; None: they cannot."""
        app, settings, clock = core.app, core.settings, core.clock
        wakeup = Wakeup(clock)
        self.buffer = JobBuffer(wakeup.set, core.may_start_jobs)
        recorder = StatsRecorder(core.store_now)
        self.reporter = OutcomeReporter(clock, core.events, recorder, wakeup.set)
        prefetch = Prefetch(settings.concurrency, max_jobs=4 * settings.batch)
        weights = _queue_weights(core)
        batch_sizes = {name: spec.batch for name, spec in core.task_specs.items() if spec.batch}
        capacity = FetchCapacity(self.buffer, prefetch, batch_sizes=batch_sizes, max_claim=settings.batch)
        self.fetcher = Fetcher(FetchTimer(clock, settings.poll), capacity, weights, wakeup.set)
        self.release_follower = ReleaseFollower(core, store.dependencies)
        on_releasing = self.release_follower.wake
        self.threads = ThreadPool(core.stuck, clock)
        self.step_recorder = StepRecorder(core, store, self.threads)
        self.parent_results = ParentResults(core, store.dependencies, self.step_recorder)
        self.store_loop = StoreLoop(
            core,
            store.jobs,
            self.buffer,
            self.fetcher,
            self.reporter,
            wakeup,
            on_releasing,
            self.parent_results.load_ahead,
        )
        self.stats_writer = StatsWriter(
            recorder,
            store.stats,
            clock,
            identity=core.identity,
            backoff=OutageBackoff(clock, FullStoreReporter(core.outage_reporter)),
        )
        self.rooms = RoomConsumer(core, self.threads)
        self.verifier = CompletionVerifier(core, store.inspect, on_releasing)
        completer = JobCompleter(
            store.transactional,
            core.identity,
            encode_result=core.encode_result,
            now=core.store_now,
            on_success=on_success_tasks(core.task_specs),
            steps=self.step_recorder,
            app=app,
            is_committed=self.verifier.is_committed,
        )
        self.child_pool = None if ref is None else ChildPool(ref, settings, limit=settings.concurrency)
        child_runner = (
            None if self.child_pool is None else ChildRunner(core, self.child_pool, self.reporter, self.step_recorder)
        )
        self.runner = JobRunner(
            core,
            prefetch,
            self.reporter,
            self.threads,
            child_runner,
            self.verifier,
            completer,
            self.parent_results,
        )
        self.slots = Slots(core, self.buffer, self.runner)
        self.recycler = Recycler(core, lambda: () if self.child_pool is None else self.child_pool.pids)
        self.listener = HeartbeatListener(core, self.buffer, self.fetcher, self.reporter, self.store_loop)
        self.heartbeat = Heartbeat(
            app.open_store,
            self.listener,
            WorkerDescription(core, weights.queues, self.rooms),
            settings,
            clock,
            companion=core.controller,
            run_locks=app.keeper.attach,
            run_watch=_loop_watch(core, self.rooms).run,
        )


def check_process_tasks(core: WorkerCore, ref: str | None) -> None:
    """
    Raises:
        ConfigError: a task needs child processes, and they cannot find the app.
    """
    tasks = sorted(name for name, spec in core.task_specs.items() if spec.pool == "process")
    if tasks and ref is None:
        raise ConfigError(
            f'task {tasks[0]!r} has pool="process", but child processes cannot find this app: '
            "make it a module-level variable and start it with `drumbeat run module:app`"
        )


def _queue_weights(core: WorkerCore) -> QueueWeights:
    tasks = core.app.registry
    return QueueWeights(
        served_queues(tasks, core.settings), strict=core.settings.strict, rests=find_resting_queues(tasks)
    )


def _loop_watch(core: WorkerCore, rooms: RoomConsumer) -> LoopWatch:
    def on_blocked(seconds: float, tasks: tuple[str, ...], where: str) -> None:
        core.events.emit(LoopBlocked(instance=core.identity(), seconds=seconds, tasks=tasks, where=where))

    handlers = rooms.functions | {task.name: task.function for task in core.app.registry}
    return LoopWatch(core.clock, handlers, lambda: len(core.runs) > 0 or rooms.running > 0, on_blocked)
