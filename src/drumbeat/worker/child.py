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
from drumbeat.codec import Unstorable, encode_result
from drumbeat.context import BATCH, CURRENT, RunningJob
from drumbeat.errors import DrumbeatError, InvalidArguments
from drumbeat.ids import InstanceId
from drumbeat.model.job import Claimed, Outcome
from drumbeat.settings import Settings
from drumbeat.spawn import exit_with_group, receive, send
from drumbeat.store.urls import inside_of
from drumbeat.worker import frames, lifespans
from drumbeat.worker.bulk import calls_of, endings_of
from drumbeat.worker.completing import Completing
from drumbeat.worker.ending import Ending, How, failure, from_exception
from drumbeat.worker.forks import FORKS
from drumbeat.worker.guard import Guard
from drumbeat.worker.loops import end_leftovers, run_to_end, task_factory
from drumbeat.worker.plans import Arguments, Plan, plans
from drumbeat.worker.program import Program
from drumbeat.worker.reporter import PROGRESS_LIMIT
from drumbeat.worker.threads import Threads

log = logging.getLogger(__name__)

CANNOT_SERVE = 3
NOTES_EVERY = 0.1


def main(link: socket.socket, *, prepare: Callable[[], None], ref: str, flags: dict[str, Any]) -> int:
    """Serve the worker at the other end until it says Stop. Returns the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # Only the worker ends this process. Not SIG_IGN: programs that a handler starts would inherit that.
        signal.signal(number, _unmoved)
    if not faulthandler.is_enabled():
        faulthandler.enable()
    worker = Link(link)
    logs.protect()
    try:
        app = appref.load(ref, prepare=prepare)
        server = Server(app, app.configure(flags), worker)
    except BaseException as error:  # the program's own, sys.exit() while it is imported included
        worker.say(_refusal(error))
        return CANNOT_SERVE
    return server.serve()


def _unmoved(number: int, frame: FrameType | None) -> None:
    pass


def _refusal(error: BaseException) -> frames.Refused:
    known = failure(error)
    text = known.message if isinstance(error, DrumbeatError) else f"{known.type}: {known.message}"
    return frames.Refused(" ".join(text.split()), known.traceback)


class Link:
    """The child's end of the conversation. `inbox` is filled by a thread, from the start: also while the program loads."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._sending = threading.Lock()
        self._loop: asyncio.AbstractEventLoop = asyncio.new_event_loop()
        self.inbox: asyncio.Queue[tuple[frames.Run, RunningJob] | None] = asyncio.Queue()
        self.notes = Notes(self)
        self.completing: Completing | None = None
        """Set once the program is loaded, before the worker hears that we are ready."""
        self.instance = InstanceId("")
        threading.Thread(target=self._listen, name="drumbeat-link", daemon=True).start()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def say(self, message: frames.ToWorker) -> None:
        try:
            with self._sending:
                send(self._link, frames.encode(message))
        except OSError:
            exit_with_group()

    def _listen(self) -> None:
        running: RunningJob | None = None
        while (frame := receive(self._link)) is not None:
            match frames.to_child.decode(frame):
                case frames.Run() as asked:
                    assert self.completing is not None
                    self.instance = asked.instance
                    # Made here, so that an abort which follows at once cannot miss it.
                    running = RunningJob(asked.job, self.notes.put, self.completing, asked.started_us)
                    self._loop.call_soon_threadsafe(self.inbox.put_nowait, (asked, running))
                case frames.Abort(reason=reason):
                    if running is not None:
                        running.aborted.set(reason)
                case frames.Stop():
                    self._loop.call_soon_threadsafe(self.inbox.put_nowait, None)
        # The worker is gone, and others get its jobs: what runs here must not go on.
        exit_with_group()


class Notes:
    """Progress on its way to the worker: the last value wins."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._lock = threading.Lock()  # around the value: held for a few instructions only
        self._telling = threading.Lock()  # from taking the value to having told it, so that no older one comes later
        self._wake = threading.Event()
        self._job: Claimed | None = None
        self._progress: str | None = None
        self._is_started = False

    def put(self, job: Claimed, value: Any) -> None:
        """Called by handlers, in any thread; never waits for the worker."""
        try:
            text = encode_result(value, limit=PROGRESS_LIMIT)
        except Unstorable as error:
            raise InvalidArguments(f"progress cannot be kept: {error.reason}", "progress") from None
        with self._lock:
            if self._job is not job:
                return  # from a thread that outlived its job
            self._progress = text
            if not self._is_started:
                self._is_started = True
                threading.Thread(target=self._send, name="drumbeat-notes", daemon=True).start()
        self._wake.set()

    def begin(self, job: Claimed) -> None:
        with self._lock:
            self._job = job

    def end(self) -> None:
        """Tell the last value, before the job's ending is told."""
        self._tell()
        with self._lock:
            self._job = self._progress = None

    def _send(self) -> None:
        pause = threading.Event()
        while self._wake.wait():
            self._wake.clear()
            self._tell()
            pause.wait(NOTES_EVERY)

    def _tell(self) -> None:
        with self._telling:
            with self._lock:
                progress, self._progress = self._progress, None
            if progress is not None:
                self._link.say(frames.Noted(progress))


class Server:
    """Runs what comes in, one job after another."""

    def __init__(self, program: Program, settings: Settings, link: Link) -> None:
        self._plans = plans(program.registered_tasks)
        self._lifespans = program.lifespans
        self._settings = settings
        self._link = link
        inside = inside_of(settings.url, namespace=settings.namespace, clock=program.clock)
        link.completing = Completing(inside, lambda: link.instance, payload_limit=settings.payload_limit)
        self._clock = program.clock
        self._handling: asyncio.Task[tuple[Any, BaseException | None]] | None = None
        self._leaving = asyncio.Event()

    def serve(self) -> int:
        """Until told to stop, or a lifespan ends by itself. Returns the exit code."""
        with asyncio.Runner(loop_factory=lambda: self._link.loop) as runner:
            self._loop = runner.get_loop()
            self._loop.set_task_factory(task_factory(lambda task: task is self._handling))
            opened = self._loop.create_future()
            # One task enters and leaves all lifespans, as their own task groups and time-outs demand.
            life = self._loop.create_task(self._live(opened), name="lifespans")
            life.add_done_callback(lambda _: self._link.inbox.put_nowait(None))
            run_to_end(self._loop, _either(opened, life))
            if life.done():
                return self._has_failed(life)
            guard = Guard(self._loop, is_own_process=True)
            self._link.say(frames.Ready())
            while (asked := run_to_end(self._loop, self._link.inbox.get())) is not None:
                answer = self._answer(*asked)
                guard.look()
                self._link.say(answer)
            self._leaving.set()
            run_to_end(self._loop, _either(life))
            code = self._has_failed(life)
            if not end_leftovers(self._loop):
                exit_with_group()
            return code

    async def _live(self, opened: "asyncio.Future[None]") -> None:
        self._threads = Threads(lambda count: None)
        async with lifespans.opened(self._lifespans):
            opened.set_result(None)
            await self._leaving.wait()

    def _has_failed(self, life: "asyncio.Task[None]") -> int:
        error = asyncio.CancelledError() if life.cancelled() else life.exception()
        if error is None:
            return 0
        log.error("a lifespan of the program failed in a child process", exc_info=error)
        self._link.say(_refusal(error))
        return CANNOT_SERVE

    def _answer(self, asked: frames.Run, running: RunningJob) -> frames.Done | frames.Refused:
        job = asked.job
        plan = self._plans.get(job.task)
        if plan is None:
            return frames.Refused(f"the program that it loaded has no task {job.task!r}: was it changed on disk?")
        arguments = plan.arguments(job)
        if isinstance(arguments, Outcome):
            return frames.Refused(f"the program that it loaded has another {job.task!r}: was it changed on disk?")
        if isinstance(arguments, Ending):
            return frames.Done(arguments)
        self._link.notes.begin(job)
        self._link.say(frames.Began())
        forks, began_at = FORKS.count, self._clock.monotonic()
        ending = self._run(asked, running, plan, arguments)
        if FORKS.count != forks:
            FORKS.leave_copy()
        if plan.limit([job]) is not None:
            self._link.say(frames.Ended(self._clock.monotonic() - began_at))
        self._link.notes.end()
        return frames.Done(msgspec.structs.replace(ending, completion=running.completion))

    def _run(self, asked: frames.Run, running: RunningJob, plan: Plan, arguments: Arguments) -> Ending:
        context = copy_context()
        context.run(tracing.enter, asked.trace)
        if plan.batch:
            # Its calls say which jobs they are.
            context.run(BATCH.set, [asked.job])
            call = functools.partial(plan.function, calls_of([asked.job], [arguments]))
        else:
            context.run(CURRENT.set, running)
            call = functools.partial(plan.function, *arguments[0], **arguments[1])
        try:
            value = self._call(plan, call, context)
            if plan.batch:
                return endings_of(plan.name, 1, value, self._returned)[0]
            return Ending(how=How.RETURNED) if value is None else self._returned(value)
        except BaseException as error:  # the handler's own, SystemExit included
            return from_exception(error, running.aborted.reason)

    def _call(self, plan: Plan, call: Callable[[], Any], context: Context) -> Any:
        if plan.pool == "process":
            return context.run(call)
        value, error = run_to_end(self._loop, self._caught(plan, call, context))
        if error is not None:
            raise error
        return value

    async def _caught(self, plan: Plan, call: Callable[[], Any], context: Context) -> tuple[Any, BaseException | None]:
        """On the loop: an exception is returned, because SystemExit would end the loop itself."""
        # A task of its own: it may be cancelled, and what it has left behind of a cancellation goes with it.
        self._handling = self._loop.create_task(self._handled(plan, call), name="handler", context=context)
        await asyncio.wait([self._handling])
        return (None, asyncio.CancelledError()) if self._handling.cancelled() else self._handling.result()

    async def _handled(self, plan: Plan, call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
        try:
            return await (call() if plan.is_async else self._threads.run(call)), None
        except BaseException as error:
            return None, error

    def _returned(self, value: Any) -> Ending:
        try:
            return Ending(how=How.RETURNED, result=encode_result(value, limit=self._settings.payload_limit))
        except Unstorable as error:
            return Ending(how=How.RETURNED, result_error=error.reason)


async def _either(*ends: "asyncio.Future[None]") -> None:
    """Wait for the first, whatever comes of it."""
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
