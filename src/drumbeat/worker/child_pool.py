"""Child processes that run one job at a time: handlers with `pool="process"`, and crash suspects.

A child is started when needed, reused, and stopped after a minute without work. Cancelling a run kills its child: nothing else
ends code that does not listen. If a child dies while it runs a job, that counts as the job's crash; if it cannot start, it does
not. The messages are in child_protocol.py, the other end in child.py.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from drumbeat import appref
from drumbeat.clock import SYSTEM, Clock
from drumbeat.context import AbortSignal
from drumbeat.core.claim import ClaimedJob
from drumbeat.core.job import Failure
from drumbeat.errors import DrumbeatError, StoreError
from drumbeat.processes.exit_codes import describe_exit
from drumbeat.processes.frames import FramePipe
from drumbeat.processes.managed import ManagedProcess
from drumbeat.settings import Settings
from drumbeat.worker import child_protocol
from drumbeat.worker.job_steps import StepPort
from drumbeat.worker.result import HandlerResult, ResultKind

log = logging.getLogger(__name__)

IDLE_TIMEOUT = 60.0
START_TIMEOUT = 300.0
"""How long a child may take to load the program and to open its resources."""
LEAVE_TIMEOUT = 5.0
"""How long a child may take to close the program's resources."""
EXIT_GRACE = 0.5
"""How long to wait for the last messages of a dead child, and for the exit of one that closed its socket."""


class ChildFailed(DrumbeatError):
    """A child process did not start, or has another program than its worker. Not the job's fault."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"a child process cannot run jobs: {reason}")
        self.reason = reason


@dataclass(slots=True, kw_only=True)
class ChildRun:
    """A run of a job in a child process, and who is told about it."""

    request: child_protocol.RunJob
    abort: AbortSignal
    note: Callable[[ClaimedJob, Any], None]
    """Takes progress."""
    steps: StepPort | None = None
    """Records and loads steps for it."""
    on_started: Callable[[], None] = lambda: None
    """Called when the handler starts."""
    on_ended: Callable[[float], None] = lambda took: None
    """Called, if the job has a timeout, with the seconds that the handler took."""


class ChildPool:
    """All children of one worker. Use it on one loop only."""

    def __init__(
        self, ref: str, settings: Settings, *, limit: int, clock: Clock = SYSTEM, idle: float = IDLE_TIMEOUT
    ) -> None:
        self._ref = ref
        self._settings = settings
        self._clock = clock
        self._idle_for = idle
        self._capacity = asyncio.Semaphore(limit)
        self._cwd = os.getcwd()  # now: a handler may change it
        self._children: set[ChildProcess] = set()
        self._idle: list[ChildProcess] = []

    @property
    def pids(self) -> list[int]:
        """The children that live now."""
        return sorted(child.process.pid for child in self._children if child.process.is_alive)

    async def run(self, run: ChildRun) -> HandlerResult:
        """Run a job in a child of its own. Cancellation kills the child.

        Raises:
            ChildFailed: the job has not been started.
        """
        async with self._capacity:
            while True:
                child, is_fresh = await self._acquire()
                try:
                    answer = await child.run(run)
                except BaseException:
                    await child.kill_and_wait()
                    raise
                if isinstance(answer, HandlerResult):
                    self._release(child)
                    return answer
                await child.kill_and_wait()
                # A child that died while idle says nothing about the next one.
                if is_fresh or answer.reason:
                    raise self._child_failed(answer)

    async def close(self) -> None:
        """End all children and wait for their exit; idle ones may close the program's resources first."""
        leaving, self._idle = self._idle, []
        for child in leaving:
            child.stop()
        for child in self._children.difference(leaving):
            child.process.kill()
        for child in list(self._children):
            await child.process.wait_for_exit()
            child.close()

    async def _acquire(self) -> "tuple[ChildProcess, bool]":
        while self._idle:
            # The most recently used one, so that the others reach their idle timeout.
            child = self._idle.pop()
            if child.process.is_alive:
                return child, False
        try:
            child = ChildProcess(self._ref, self._settings, self._clock, self._cwd)
        except OSError as error:  # no memory, no more processes or files: not the job's fault
            raise self._child_failed(child_protocol.ChildRefused(f"it cannot be started: {error}")) from error
        self._children.add(child)
        child.process.exited.add_done_callback(lambda _: self._on_exit(child))
        try:
            async with asyncio.timeout(START_TIMEOUT):
                answer = await child.start()
        except TimeoutError:
            answer = child_protocol.ChildRefused(f"it was not ready after {START_TIMEOUT:g} s")
        except BaseException:
            await child.kill_and_wait()
            raise
        if answer is not None:
            await child.kill_and_wait()
            raise self._child_failed(answer)
        return child, True

    def _child_failed(self, answer: child_protocol.ChildRefused) -> ChildFailed:
        reason = answer.reason or "it died before the job could start"
        log.error("a child process cannot run jobs", extra={"reason": reason})
        if answer.traceback:
            log.debug("traceback of a child process that cannot run jobs", extra={"traceback": answer.traceback})
        return ChildFailed(reason)

    def _release(self, child: "ChildProcess") -> None:
        if not child.process.is_alive:
            child.close()
            return
        self._idle.append(child)
        uses = child.uses
        self._clock.call_later(self._idle_for, lambda: self._retire(child, uses))

    def _retire(self, child: "ChildProcess", uses: int) -> None:
        if child in self._idle and child.uses == uses:
            self._idle.remove(child)
            child.stop()

    def _on_exit(self, child: "ChildProcess") -> None:
        self._children.discard(child)
        if child in self._idle:
            self._idle.remove(child)
        if not child.is_busy:
            child.close()


class ChildProcess:
    """One child process and the conversation with it."""

    def __init__(self, ref: str, settings: Settings, clock: Clock, cwd: str) -> None:
        self.process = ManagedProcess(
            "drumbeat.worker.child:main",
            {"ref": ref, "flags": appref.to_flags(settings)},
            label=f"drumbeat-child {ref}",
            with_main=appref.needs_main(ref),
            dies_with_parent=True,
            cwd=cwd,
        )
        self._clock = clock
        self._pipe: FramePipe | None = None
        self.uses = 0
        self.is_busy = True
        """Its answer is being waited for."""
        # A process that its handler has started may hold the socket open, so end of file would never be read.
        self.process.exited.add_done_callback(lambda _: clock.call_later(EXIT_GRACE, self.close))

    async def start(self) -> child_protocol.ChildRefused | None:
        """Wait until it is ready. Returns its refusal, or None."""
        self._pipe = await FramePipe.connect(self.process.link)
        match await self._receive():
            case child_protocol.ChildReady():
                self.is_busy = False
                return None
            case child_protocol.ChildRefused() as refused:
                return refused
            case _:
                return child_protocol.ChildRefused(
                    f"it died when it started: {describe_exit(await self._exit_code_after_eof())}"
                )

    async def run(self, run: ChildRun) -> HandlerResult | child_protocol.ChildRefused:
        """The result; ChildRefused if the job was not started, with an empty reason if the process was found dead."""
        self.uses += 1
        self.is_busy = True
        self._send(run.request)
        async with asyncio.TaskGroup() as group:
            aborting = group.create_task(self._send_abort(run.abort), name=f"abort of {run.request.job.id}")
            asked: set[asyncio.Task[None]] = set()
            try:
                return await self._receive_result(run, group, asked)
            finally:
                for task in (aborting, *asked):
                    task.cancel()
                self.is_busy = False

    def stop(self) -> None:
        """Ask it to exit; kill it if it does not."""
        self._send(child_protocol.StopChild())
        timer = self._clock.call_later(LEAVE_TIMEOUT, self.process.kill)
        self.process.exited.add_done_callback(lambda _: timer.cancel())

    async def kill_and_wait(self) -> None:
        self.process.kill()
        await self.process.wait_for_exit()
        self.close()

    def close(self) -> None:
        """Once it is dead."""
        if self._pipe is not None:
            self._pipe.abort()
        self.process.close()

    async def _send_abort(self, abort: AbortSignal) -> None:
        self._send(child_protocol.AbortJob(await abort))

    async def _answer_steps(self, run: ChildRun, asked: child_protocol.StepsAsked) -> None:
        assert run.steps is not None
        answer = child_protocol.StepsAnswered(asked.number)
        try:
            if asked.record is not None:
                answer = msgspec.structs.replace(answer, is_recorded=await run.steps.record(asked.record))
            elif asked.take is not None:
                answer = msgspec.structs.replace(answer, taken=await run.steps.take_signal(asked.take))
            elif (page := asked.page) is not None:
                results = await run.steps.page_results(page.job, page.argument, page.after, page.limit)
                answer = msgspec.structs.replace(answer, page=results)
            elif asked.graph is not None:
                answer = msgspec.structs.replace(answer, added=await run.steps.add_graph(asked.graph))
            else:
                answer = msgspec.structs.replace(answer, steps=await run.steps.load(run.request.job.id))
        except StoreError as error:
            answer = msgspec.structs.replace(answer, error=error.reason)
        except DrumbeatError as error:
            answer = msgspec.structs.replace(answer, refusal=child_protocol.Refusal.of(error))
        self._send(answer)

    async def _receive_result(
        self, run: ChildRun, group: asyncio.TaskGroup, asked: "set[asyncio.Task[None]]"
    ) -> HandlerResult | child_protocol.ChildRefused:
        has_started = False
        while (message := await self._receive()) is not None:
            match message:
                case child_protocol.HandlerStarted():
                    has_started = True
                    run.on_started()
                case child_protocol.ProgressReported(progress=progress):
                    run.note(run.request.job, msgspec.json.decode(progress))
                case child_protocol.StepsAsked():
                    asked.add(group.create_task(self._answer_steps(run, message), name="steps of a child"))
                case child_protocol.HandlerEnded(took=took):
                    run.on_ended(took)
                case child_protocol.JobResult(result=result):
                    return result
                case child_protocol.ChildRefused():
                    return message
                case child_protocol.ChildReady():
                    pass
        exit_code = await self._exit_code_after_eof()
        if not has_started:
            return child_protocol.ChildRefused("")
        died = f"the process running this job died: {describe_exit(exit_code)}"
        return HandlerResult(kind=ResultKind.CRASHED, error=Failure("ProcessDied", died))

    async def _exit_code_after_eof(self) -> int:
        """It closed its socket, so it is dead or dying; one that lives on is of no use."""
        timer = self._clock.call_later(EXIT_GRACE, self.process.kill)
        try:
            return await self.process.wait_for_exit()
        finally:
            timer.cancel()

    def _send(self, message: child_protocol.MessageToChild) -> None:
        if self._pipe is not None and self.process.is_alive:
            self._pipe.send(child_protocol.encode(message))

    async def _receive(self) -> child_protocol.MessageToWorker | None:
        assert self._pipe is not None
        frame = await self._pipe.receive()
        return None if frame is None else child_protocol.worker_decoder.decode(frame)
