"""Inside a child process: the program is loaded, its resources are opened, and jobs are run, one at a time.

Three threads have a part in it:

    main        the event loop, with the program's lifespans and async handlers; and, with the loop standing still so that sync
                calls work in them, `def` handlers with pool="process": as in any process of their own, they may use signals
    link        reads what the worker says. If the worker is gone it ends the process at once, whatever runs
    notes       tells the worker of progress, the last value each tenth of a second, so that a handler never waits for that

The store is not touched here, unless a handler does, by `complete()` for instance; the worker reports what this process
answers.
"""

import asyncio
import faulthandler
import functools
import logging
import signal
import socket
import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from types import FrameType
from typing import Any

import msgspec

from drumbeat import appref, logs, tracing
from drumbeat.context import CURRENT_BATCH, CURRENT_JOB, RunningJob
from drumbeat.core.claim import ClaimedJob, Outcome
from drumbeat.errors import DrumbeatError
from drumbeat.ids import InstanceId
from drumbeat.processes.exit_codes import EXIT_CANNOT_SERVE
from drumbeat.processes.exit_watcher import exit_with_group
from drumbeat.processes.frames import receive, send
from drumbeat.protocols import WorkerApp
from drumbeat.settings import Settings
from drumbeat.store.urls import transactional_for
from drumbeat.worker import child_protocol, lifespans
from drumbeat.worker.batch_call import build_calls, split_results
from drumbeat.worker.event_loop import cancel_leftovers, run_until_done, task_factory
from drumbeat.worker.fork_detector import FORKS
from drumbeat.worker.job_completer import JobCompleter
from drumbeat.worker.process_guard import ProcessGuard
from drumbeat.worker.reporter import encode_progress
from drumbeat.worker.result import HandlerResult, describe_failure, from_exception, from_value
from drumbeat.worker.stuck_handlers import StuckHandlers
from drumbeat.worker.task_spec import Arguments, TaskSpec, build_task_specs
from drumbeat.worker.thread_pool import ThreadPool

log = logging.getLogger(__name__)

PROGRESS_INTERVAL = 0.1


def main(link: socket.socket, *, prepare: Callable[[], None], ref: str, flags: dict[str, Any]) -> int:
    """Serve the worker at the other end until it says Stop. Returns the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # Only the worker ends this process. Not SIG_IGN: programs that a handler starts would inherit that.
        signal.signal(number, _ignore_signal)
    if not faulthandler.is_enabled():
        faulthandler.enable()
    worker = WorkerLink(link)
    logs.protect_loggers()
    try:
        app = appref.load(ref, prepare=prepare)
        server = ChildServer(app._internals, app.configure(flags), worker)
    except BaseException as error:  # the program's own, sys.exit() while it is imported included
        worker.send(_to_refused(error))
        return EXIT_CANNOT_SERVE
    return server.serve()


def _ignore_signal(number: int, frame: FrameType | None) -> None:
    pass


def _to_refused(error: BaseException) -> child_protocol.ChildRefused:
    known = describe_failure(error)
    text = known.message if isinstance(error, DrumbeatError) else f"{known.type}: {known.message}"
    return child_protocol.ChildRefused(" ".join(text.split()), known.traceback)


class WorkerLink:
    """The child's end of the conversation. `inbox` is filled by a thread, from the start: also while the program loads."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._send_lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop = asyncio.new_event_loop()
        self.inbox: asyncio.Queue[tuple[child_protocol.RunJob, RunningJob] | None] = asyncio.Queue()
        self.progress = ProgressSender(self)
        self.completer: JobCompleter | None = None
        """Set once the program is loaded, before the worker hears that we are ready."""
        self.instance = InstanceId("")
        threading.Thread(target=self._listen, name="drumbeat-link", daemon=True).start()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def send(self, message: child_protocol.MessageToWorker) -> None:
        try:
            with self._send_lock:
                send(self._link, child_protocol.encode(message))
        except OSError:
            exit_with_group()

    def _listen(self) -> None:
        running: RunningJob | None = None
        while (frame := receive(self._link)) is not None:
            match child_protocol.child_decoder.decode(frame):
                case child_protocol.RunJob() as asked:
                    assert self.completer is not None
                    self.instance = asked.instance
                    # Made here, so that an abort which follows at once cannot miss it.
                    running = RunningJob(asked.job, self.progress.put, self.completer, asked.started_us)
                    self._loop.call_soon_threadsafe(self.inbox.put_nowait, (asked, running))
                case child_protocol.AbortJob(reason=reason):
                    if running is not None:
                        running.aborted.set(reason)
                case child_protocol.StopChild():
                    self._loop.call_soon_threadsafe(self.inbox.put_nowait, None)
        # The worker is gone, and others get its jobs: what runs here must not go on.
        exit_with_group()


class ProgressSender:
    """Progress on its way to the worker: the last value wins."""

    def __init__(self, link: WorkerLink) -> None:
        self._link = link
        self._lock = threading.Lock()  # around the value: held for a few instructions only
        self._send_lock = threading.Lock()  # from taking the value to having told it, so that no older one comes later
        self._wake = threading.Event()
        self._job: ClaimedJob | None = None
        self._progress: str | None = None
        self._is_started = False

    def put(self, job: ClaimedJob, value: Any) -> None:
        """Called by handlers, in any thread; never waits for the worker."""
        text = encode_progress(value)
        with self._lock:
            if self._job is not job:
                return  # from a thread that outlived its job
            self._progress = text
            if not self._is_started:
                self._is_started = True
                threading.Thread(target=self._run, name="drumbeat-notes", daemon=True).start()
        self._wake.set()

    def begin(self, job: ClaimedJob) -> None:
        with self._lock:
            self._job = job

    def end(self) -> None:
        """Tell the last value, before the job's ending is told."""
        self._send_latest()
        with self._lock:
            self._job = self._progress = None

    def _run(self) -> None:
        pause = threading.Event()
        while self._wake.wait():
            self._wake.clear()
            self._send_latest()
            pause.wait(PROGRESS_INTERVAL)

    def _send_latest(self) -> None:
        with self._send_lock:
            with self._lock:
                progress, self._progress = self._progress, None
            if progress is not None:
                self._link.send(child_protocol.ProgressReported(progress))


class ChildServer:
    """Runs what comes in, one job after another."""

    def __init__(self, program: WorkerApp, settings: Settings, link: WorkerLink) -> None:
        self._plans = build_task_specs(program.registered_tasks)
        self._lifespans = program.lifespans
        self._settings = settings
        self._link = link
        inside = transactional_for(settings.url, namespace=settings.namespace, clock=program.clock)
        link.completer = JobCompleter(inside, lambda: link.instance, payload_limit=settings.payload_limit)
        self._clock = program.clock
        self._handler_task: asyncio.Task[tuple[Any, BaseException | None]] | None = None
        self._leaving = asyncio.Event()

    def serve(self) -> int:
        """Until told to stop, or a lifespan ends by itself. Returns the exit code."""
        with asyncio.Runner(loop_factory=lambda: self._link.loop) as runner:
            self._loop = runner.get_loop()
            self._loop.set_task_factory(task_factory(lambda task: task is self._handler_task))
            opened = self._loop.create_future()
            # One task enters and leaves all lifespans, as their own task groups and time-outs demand.
            life = self._loop.create_task(self._hold_lifespans(opened), name="lifespans")
            life.add_done_callback(lambda _: self._link.inbox.put_nowait(None))
            run_until_done(self._loop, _wait_first(opened, life))
            if life.done():
                return self._lifespan_exit_code(life)
            guard = ProcessGuard(self._loop, None, is_own_process=True)
            guard.arm()
            self._link.send(child_protocol.ChildReady())
            while (asked := run_until_done(self._loop, self._link.inbox.get())) is not None:
                answer = self._run_job(*asked)
                guard.restore_all()
                self._link.send(answer)
            self._leaving.set()
            run_until_done(self._loop, _wait_first(life))
            code = self._lifespan_exit_code(life)
            if not cancel_leftovers(self._loop):
                exit_with_group()
            return code

    async def _hold_lifespans(self, opened: "asyncio.Future[None]") -> None:
        self._threads = ThreadPool(StuckHandlers(limit=1))
        async with lifespans.open_lifespans(self._lifespans):
            opened.set_result(None)
            await self._leaving.wait()

    def _lifespan_exit_code(self, life: "asyncio.Task[None]") -> int:
        error = asyncio.CancelledError() if life.cancelled() else life.exception()
        if error is None:
            return 0
        log.error("a lifespan of the program failed in a child process", exc_info=error)
        self._link.send(_to_refused(error))
        return EXIT_CANNOT_SERVE

    def _run_job(
        self, asked: child_protocol.RunJob, running: RunningJob
    ) -> child_protocol.JobResult | child_protocol.ChildRefused:
        job = asked.job
        plan = self._plans.get(job.task)
        if plan is None:
            return child_protocol.ChildRefused(
                f"the program that it loaded has no task {job.task!r}: was it changed on disk?"
            )
        arguments = plan.decode_arguments(job)
        if isinstance(arguments, Outcome):
            return child_protocol.ChildRefused(
                f"the program that it loaded has another {job.task!r}: was it changed on disk?"
            )
        if isinstance(arguments, HandlerResult):
            return child_protocol.JobResult(arguments)
        self._link.progress.begin(job)
        self._link.send(child_protocol.HandlerStarted())
        forks, began_at = FORKS.count, self._clock.monotonic()
        ending = self._run_handler(asked, running, plan, arguments)
        if FORKS.count != forks:
            FORKS.exit_forked_copy()
        if plan.timeout_for([job]) is not None:
            self._link.send(child_protocol.HandlerEnded(self._clock.monotonic() - began_at))
        self._link.progress.end()
        return child_protocol.JobResult(msgspec.structs.replace(ending, completion=running.completion))

    def _run_handler(
        self, asked: child_protocol.RunJob, running: RunningJob, plan: TaskSpec, arguments: Arguments
    ) -> HandlerResult:
        context = copy_context()
        context.run(tracing.attach_traceparent, asked.trace)
        if plan.batch:
            # Its calls say which jobs they are.
            context.run(CURRENT_BATCH.set, [asked.job])
            call = functools.partial(plan.function, build_calls([asked.job], [arguments]))
        else:
            context.run(CURRENT_JOB.set, running)
            call = functools.partial(plan.function, *arguments[0], **arguments[1])
        try:
            value = self._call(plan, call, context)
            if plan.batch:
                return split_results(plan.name, 1, value, self._settings.payload_limit)[0]
            return from_value(value, self._settings.payload_limit)
        except BaseException as error:  # the handler's own, SystemExit included
            return from_exception(error, running.aborted.reason)

    def _call(self, plan: TaskSpec, call: Callable[[], Any], context: Context) -> Any:
        if plan.pool == "process":
            return context.run(call)
        value, error = run_until_done(self._loop, self._call_on_loop(plan, call, context))
        if error is not None:
            raise error
        return value

    async def _call_on_loop(
        self, plan: TaskSpec, call: Callable[[], Any], context: Context
    ) -> tuple[Any, BaseException | None]:
        """On the loop: an exception is returned, because SystemExit would end the loop itself."""
        # A task of its own: it may be cancelled, and what it has left behind of a cancellation goes with it.
        self._handler_task = self._loop.create_task(self._await_handler(plan, call), name="handler", context=context)
        await asyncio.wait([self._handler_task])
        return (None, asyncio.CancelledError()) if self._handler_task.cancelled() else self._handler_task.result()

    async def _await_handler(self, plan: TaskSpec, call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
        try:
            return await (call() if plan.is_async else self._threads.run(call)), None
        except BaseException as error:
            return None, error


async def _wait_first(*ends: "asyncio.Future[None]") -> None:
    """Wait for the first, whatever comes of it."""
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
