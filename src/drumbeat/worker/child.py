"""The child process: it loads the program, opens its resources and runs jobs, one at a time.

Three threads:

    main        the event loop with the program's lifespans and async handlers. `def` handlers with pool="process" run here
                while the loop stands still, so that sync calls and signals work in them
    link        reads the worker's messages. If the worker is gone, it ends the process at once, whatever runs
    progress    sends progress to the worker, the last value each tenth of a second, so that a handler never waits for that

Nothing here uses the store, unless a handler does, for instance by `complete()`; the worker reports the results.
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
from drumbeat.clock import SYSTEM
from drumbeat.codec import encode_result
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
from drumbeat.worker.child_steps import ChildSteps
from drumbeat.worker.event_loop import cancel_leftovers, run_until_done, task_factory
from drumbeat.worker.fork_detector import FORKS
from drumbeat.worker.job_completer import JobCompleter
from drumbeat.worker.parent_results import attach_results
from drumbeat.worker.process_guard import ProcessGuard
from drumbeat.worker.reporter import encode_progress
from drumbeat.worker.result import HandlerResult, describe_failure, from_exception, from_value, settle_steps
from drumbeat.worker.stuck_handlers import StuckHandlers
from drumbeat.worker.task_spec import Arguments, TaskSpec, build_task_specs, on_success_tasks
from drumbeat.worker.thread_pool import ThreadPool

log = logging.getLogger(__name__)

PROGRESS_INTERVAL = 0.1


def main(link: socket.socket, *, prepare: Callable[[], None], ref: str, flags: dict[str, Any]) -> int:
    """Run jobs for the worker until it sends StopChild. Returns the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # Only the worker ends this process. Not SIG_IGN: processes that a handler starts would inherit it.
        signal.signal(number, _ignore_signal)
    if not faulthandler.is_enabled():
        faulthandler.enable()
    worker = WorkerLink(link)
    logs.protect_loggers()
    try:
        app = appref.load(ref, prepare=prepare)
        server = ChildServer(app._internals, app.configure(flags), worker)
    except BaseException as error:  # the program's own, including sys.exit() during its import
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
    """The child's end of the socket. A thread fills `inbox` from the start, also while the program loads."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._send_lock = threading.Lock()
        self.loop = asyncio.new_event_loop()
        self.inbox: asyncio.Queue[tuple[child_protocol.RunJob, RunningJob] | None] = asyncio.Queue()
        self.progress = ProgressSender(self)
        self.steps = ChildSteps(self.send)
        self.completer: JobCompleter | None = None
        """Set once the program is loaded, before ChildReady is sent."""
        self.instance = InstanceId("")
        threading.Thread(target=self._listen, name="drumbeat-link", daemon=True).start()

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
                case child_protocol.RunJob() as request:
                    assert self.completer is not None
                    self.instance = request.instance
                    # Made here, so that an abort that follows at once cannot miss it.
                    running = RunningJob(
                        request.job, self.progress.put, self.completer, SYSTEM.now_us, request.started_us
                    )
                    self.loop.call_soon_threadsafe(self.inbox.put_nowait, (request, running))
                case child_protocol.AbortJob(reason=reason):
                    if running is not None:
                        running.aborted.set(reason)
                case child_protocol.StepsAnswered() as answer:
                    self.steps.on_answer(answer)
                case child_protocol.StopChild():
                    self.loop.call_soon_threadsafe(self.inbox.put_nowait, None)
        # The worker is gone, and other workers get its jobs: what runs here must not go on.
        exit_with_group()


class ProgressSender:
    """Sends progress to the worker; only the last value counts."""

    def __init__(self, link: WorkerLink) -> None:
        self._link = link
        self._lock = threading.Lock()  # guards the value; held for a few instructions only
        self._send_lock = threading.Lock()  # from taking the value until it is sent, so that values stay in order
        self._wake = threading.Event()
        self._job: ClaimedJob | None = None
        self._progress: str | None = None
        self._is_started = False

    def put(self, job: ClaimedJob, value: Any) -> None:
        """Called by handlers, on any thread; never waits for the worker."""
        text = encode_progress(value)
        with self._lock:
            if self._job is not job:
                return  # from a thread that outlived its job
            self._progress = text
            if not self._is_started:
                self._is_started = True
                threading.Thread(target=self._run, name="drumbeat-progress", daemon=True).start()
        self._wake.set()

    def begin(self, job: ClaimedJob) -> None:
        with self._lock:
            self._job = job

    def end(self) -> None:
        """Send the last value, before the job's result."""
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
    """Runs jobs from the inbox, one after another."""

    def __init__(self, app: WorkerApp, settings: Settings, link: WorkerLink) -> None:
        self._task_specs = build_task_specs(app.registry, settings)
        self._lifespans = app.lifespans
        self._link = link
        transactional = transactional_for(settings.url, namespace=settings.namespace, clock=app.clock)
        self._encode_result = functools.partial(encode_result, limit=settings.payload_limit, codec=app.registry.codec)
        link.completer = JobCompleter(
            transactional,
            lambda: link.instance,
            encode_result=self._encode_result,
            now=app.clock.now_us,
            on_success=on_success_tasks(self._task_specs),
            steps=link.steps,
            codec=app.registry.codec,
            enqueuer=app.client,
        )
        self._clock = app.clock
        self._handler_task: asyncio.Task[tuple[Any, BaseException | None]] | None = None
        self._stopping = asyncio.Event()

    def serve(self) -> int:
        """Run until StopChild, or until a lifespan ends by itself. Returns the exit code."""
        with asyncio.Runner(loop_factory=lambda: self._link.loop) as runner:
            self._loop = runner.get_loop()
            self._loop.set_task_factory(task_factory(lambda task: task is self._handler_task))
            opened = self._loop.create_future()
            # One task enters and leaves all lifespans, as their own task groups and timeouts require.
            lifespan_task = self._loop.create_task(self._hold_lifespans(opened), name="lifespans")
            lifespan_task.add_done_callback(lambda _: self._link.inbox.put_nowait(None))
            run_until_done(self._loop, _wait_first(opened, lifespan_task))
            if lifespan_task.done():
                return self._lifespan_exit_code(lifespan_task)
            guard = ProcessGuard(self._loop, None, is_own_process=True)
            guard.arm()
            self._link.send(child_protocol.ChildReady())
            while (received := run_until_done(self._loop, self._link.inbox.get())) is not None:
                answer = self._run_job(*received)
                guard.restore_all()
                self._link.send(answer)
            self._stopping.set()
            run_until_done(self._loop, _wait_first(lifespan_task))
            code = self._lifespan_exit_code(lifespan_task)
            if not cancel_leftovers(self._loop):
                exit_with_group()
            return code

    async def _hold_lifespans(self, opened: "asyncio.Future[None]") -> None:
        self._threads = ThreadPool(StuckHandlers(limit=1))
        self._link.steps.threads = self._threads
        async with lifespans.open_lifespans(self._lifespans):
            opened.set_result(None)
            await self._stopping.wait()

    def _lifespan_exit_code(self, task: "asyncio.Task[None]") -> int:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            return 0
        log.error("a lifespan of the program failed in a child process", exc_info=error)
        self._link.send(_to_refused(error))
        return EXIT_CANNOT_SERVE

    def _run_job(
        self, request: child_protocol.RunJob, running: RunningJob
    ) -> child_protocol.JobResult | child_protocol.ChildRefused:
        job = request.job
        spec = self._task_specs.get(job.task)
        if spec is None:
            return child_protocol.ChildRefused(
                f"the program that it loaded has no task {job.task!r}: was it changed on disk?"
            )
        arguments = spec.decode_arguments(job, request.bound_args)
        if isinstance(arguments, Outcome):
            return child_protocol.ChildRefused(
                f"the program that it loaded has another {job.task!r}: was it changed on disk?"
            )
        if isinstance(arguments, HandlerResult):
            return child_protocol.JobResult(arguments)
        if request.bound_args is not None:
            attach_results(arguments, spec, job.id, self._link.steps)
        self._link.progress.begin(job)
        self._link.send(child_protocol.HandlerStarted())
        forks, began_at = FORKS.count, self._clock.monotonic()
        result = self._run_handler(request, running, spec, arguments)
        if running.steps is not None:
            result = settle_steps(result, running.steps)
        if FORKS.count != forks:
            FORKS.exit_forked_copy()
        if spec.timeout_for([job]) is not None:
            self._link.send(child_protocol.HandlerEnded(self._clock.monotonic() - began_at))
        self._link.progress.end()
        return child_protocol.JobResult(msgspec.structs.replace(result, completion=running.completion))

    def _run_handler(
        self, request: child_protocol.RunJob, running: RunningJob, spec: TaskSpec, arguments: Arguments
    ) -> HandlerResult:
        context = copy_context()
        context.run(tracing.attach_traceparent, request.trace)
        if spec.batch:
            # There is no current job: its calls name their jobs.
            context.run(CURRENT_BATCH.set, [request.job])
            call = functools.partial(spec.function, build_calls([request.job], [arguments]))
        else:
            context.run(CURRENT_JOB.set, running)
            call = functools.partial(spec.function, *arguments[0], **arguments[1])
        try:
            value = self._call(spec, call, context)
            if spec.batch:
                return split_results(spec.name, 1, value, self._encode_result, spec.retry_filter)[0]
            return from_value(value, self._encode_result)
        except BaseException as error:  # the handler's own, including SystemExit
            return from_exception(error, running.aborted.reason, spec.retry_filter)

    def _call(self, spec: TaskSpec, call: Callable[[], Any], context: Context) -> Any:
        if spec.pool == "process":
            return context.run(call)
        value, error = run_until_done(self._loop, self._call_on_loop(spec, call, context))
        if error is not None:
            raise error
        return value

    async def _call_on_loop(
        self, spec: TaskSpec, call: Callable[[], Any], context: Context
    ) -> tuple[Any, BaseException | None]:
        """On the loop. An exception is returned: a raised SystemExit would end the loop itself."""
        # A task of its own: it may be cancelled, and a cancellation that it leaves behind ends with it.
        self._handler_task = self._loop.create_task(self._await_handler(spec, call), name="handler", context=context)
        await asyncio.wait([self._handler_task])
        return (None, asyncio.CancelledError()) if self._handler_task.cancelled() else self._handler_task.result()

    async def _await_handler(self, spec: TaskSpec, call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
        try:
            return await (call() if spec.is_async else self._threads.run(call)), None
        except BaseException as error:
            return None, error


async def _wait_first(*ends: "asyncio.Future[None]") -> None:
    """Wait for the first to end, with whatever result."""
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
