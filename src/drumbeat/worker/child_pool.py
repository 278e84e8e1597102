"""Child processes that run one job at a time: handlers with `pool="process"`, and suspects, which run alone.

A child is started when it is needed, kept while there is work, and closed after a minute without. Cancelling a run kills its
child; nothing else can end code that does not listen. A child that dies under a job is that job's crash; one that cannot even
start is not. What is said over the socket is in child_protocol.py, what happens at its other end in child.py.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Any

import msgspec

from drumbeat import appref
from drumbeat.clock import SYSTEM, Clock
from drumbeat.context import AbortSignal
from drumbeat.core.claim import ClaimedJob
from drumbeat.core.job import Failure
from drumbeat.errors import DrumbeatError
from drumbeat.ids import InstanceId
from drumbeat.settings import Settings
from drumbeat.spawn import ExitWatcher, FramePipe, describe_exit, spawn
from drumbeat.worker import child_protocol
from drumbeat.worker.result import HandlerResult, ResultKind

log = logging.getLogger(__name__)

NO_INSTANCE = InstanceId("")
IDLE_TIMEOUT = 60.0
START_TIMEOUT = 300.0
"""How long a child may take to load the program and to open its resources."""
LEAVE_TIMEOUT = 5.0
"""How long a child may take to close the program's resources."""
EXIT_GRACE = 0.5
"""How long what a dead child has said may still be on its way; and how long one may live that hung up."""


class ChildFailed(DrumbeatError):
    """A child process could not serve: it did not start, or does not have the program that its worker has. No job's fault."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"a child process cannot run jobs: {problem}")
        self.reason = problem


class ChildPool:
    """All children of one worker. Belongs to the loop that it is used on."""

    def __init__(
        self, ref: str, settings: Settings, *, limit: int, clock: Clock = SYSTEM, idle: float = IDLE_TIMEOUT
    ) -> None:
        self._ref = ref
        self._settings = settings
        self._clock = clock
        self._idle_for = idle
        self._capacity = asyncio.Semaphore(limit)
        self._cwd = os.getcwd()  # now: a handler may go elsewhere
        self._children: set[ChildProcess] = set()
        self._idle: list[ChildProcess] = []

    @property
    def pids(self) -> list[int]:
        """The children that live now."""
        return sorted(child.pid for child in self._children if child.is_alive)

    async def run(
        self,
        job: ClaimedJob,
        *,
        abort: AbortSignal,
        note: Callable[[ClaimedJob, Any], None],
        on_started: Callable[[], None] = lambda: None,
        on_ended: Callable[[float], None] = lambda took: None,
        instance: InstanceId = NO_INSTANCE,
        started_us: int = 0,
        trace: str | None = None,
    ) -> HandlerResult:
        """Run a job in a child of its own; `begun` is called when its handler starts, and `ended`, if its time is limited, with
        the seconds that it took. If cancelled, the child is killed.

        Raises:
            ChildFailed: the job has not been started.
        """
        async with self._capacity:
            while True:
                child, is_fresh = await self._acquire()
                try:
                    answer = await child.run(
                        child_protocol.RunJob(job, instance, started_us, trace), abort, note, on_started, on_ended
                    )
                except BaseException:
                    await child.kill_and_wait()
                    raise
                if isinstance(answer, HandlerResult):
                    self._release(child)
                    return answer
                await child.kill_and_wait()
                # One that died while it was idle says nothing about the next.
                if is_fresh or answer.reason:
                    raise self._child_failed(answer)

    async def close(self) -> None:
        """End all children; idle ones may close the program's resources first. None is left when this returns."""
        leaving, self._idle = self._idle, []
        for child in leaving:
            child.stop()
        for child in self._children.difference(leaving):
            child.kill()
        for child in list(self._children):
            await child.wait_for_exit()
            child.close()

    async def _acquire(self) -> "tuple[ChildProcess, bool]":
        while self._idle:
            # The one that was used last: the others come of age, and are closed.
            child = self._idle.pop()
            if child.is_alive:
                return child, False
        try:
            child = ChildProcess(self._ref, self._settings, self._clock, self._cwd)
        except OSError as error:  # no memory, no more processes or files: no job's fault
            raise self._child_failed(child_protocol.ChildRefused(f"it cannot be started: {error}")) from error
        self._children.add(child)
        child.watch.exited.add_done_callback(lambda _: self._on_exit(child))
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
        problem = answer.reason or "it died before the job could start"
        log.error("a child process cannot run jobs", extra={"problem": problem})
        if answer.traceback:
            log.debug("why a child process cannot run jobs", extra={"traceback": answer.traceback})
        return ChildFailed(problem)

    def _release(self, child: "ChildProcess") -> None:
        if not child.is_alive:
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
    """One child process, from its start to its end."""

    def __init__(self, ref: str, settings: Settings, clock: Clock, folder: str) -> None:
        arguments = {"ref": ref, "flags": appref.to_flags(settings)}
        self._process, self._link, self._lifeline = spawn(
            "drumbeat.worker.child:main",
            arguments,
            label=f"drumbeat-child {ref}",
            with_main=appref.needs_main(ref),
            dies_with_parent=True,
            cwd=folder,
        )
        self._clock = clock
        self._pipe: FramePipe | None = None
        self.watch = ExitWatcher(self._process)
        self.uses = 0
        self.is_busy = True
        """Somebody waits for what it has to say."""
        # A process that its handler has started may hold the socket open, so that its end would never be seen.
        self.watch.exited.add_done_callback(lambda _: clock.call_later(EXIT_GRACE, self.close))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self.watch.is_alive

    async def start(self) -> child_protocol.ChildRefused | None:
        """Wait until it is ready; else why it is not."""
        self._pipe = await FramePipe.connect(self._link)
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

    async def run(
        self,
        what: child_protocol.RunJob,
        abort: AbortSignal,
        note: Callable[[ClaimedJob, Any], None],
        begun: Callable[[], None],
        ended: Callable[[float], None],
    ) -> HandlerResult | child_protocol.ChildRefused:
        """How the job ended; Refused if it was not started, without a problem if the process was found dead."""
        self.uses += 1
        self.is_busy = True
        self._send(what)
        async with asyncio.TaskGroup() as group:
            teller = group.create_task(self._send_abort(abort), name=f"abort of {what.job.id}")
            try:
                return await self._serve(what.job, note, begun, ended)
            finally:
                teller.cancel()
                self.is_busy = False

    def stop(self) -> None:
        """Ask it to leave; it is killed if it does not."""
        self._send(child_protocol.StopChild())
        timer = self._clock.call_later(LEAVE_TIMEOUT, self.kill)
        self.watch.exited.add_done_callback(lambda _: timer.cancel())

    def kill(self) -> None:
        self.watch.kill()

    async def kill_and_wait(self) -> None:
        """Kill it, and return when it is dead and reaped."""
        self.kill()
        await self.wait_for_exit()
        self.close()

    async def wait_for_exit(self) -> int:
        """Wait for its death; the exit code."""
        # Shielded: a cancelled waiter must not cancel what others wait for.
        return await asyncio.shield(self.watch.exited)

    def close(self) -> None:
        """Once it is dead."""
        self._lifeline.close()
        if self._pipe is not None:
            self._pipe.abort()
        else:
            self._link.close()

    async def _send_abort(self, abort: AbortSignal) -> None:
        self._send(child_protocol.AbortJob(await abort))

    async def _serve(
        self,
        job: ClaimedJob,
        note: Callable[[ClaimedJob, Any], None],
        begun: Callable[[], None],
        ended: Callable[[float], None],
    ) -> HandlerResult | child_protocol.ChildRefused:
        has_begun = False
        while (heard := await self._receive()) is not None:
            match heard:
                case child_protocol.HandlerStarted():
                    has_begun = True
                    begun()
                case child_protocol.ProgressReported(progress=progress):
                    note(job, msgspec.json.decode(progress))
                case child_protocol.HandlerEnded(took=took):
                    ended(took)
                case child_protocol.JobResult(result=ending):
                    return ending
                case child_protocol.ChildRefused():
                    return heard
                case child_protocol.ChildReady():
                    pass
        exit_code = await self._exit_code_after_eof()
        if not has_begun:
            return child_protocol.ChildRefused("")
        died = f"the process running this job died: {describe_exit(exit_code)}"
        return HandlerResult(kind=ResultKind.CRASHED, error=Failure("ProcessDied", died))

    async def _exit_code_after_eof(self) -> int:
        """It hung up, so it is dead or dying; one that closed its socket and lives on is of no use."""
        timer = self._clock.call_later(EXIT_GRACE, self.kill)
        try:
            return await self.wait_for_exit()
        finally:
            timer.cancel()

    def _send(self, message: child_protocol.MessageToChild) -> None:
        if self._pipe is not None and self.is_alive:
            self._pipe.send(child_protocol.encode(message))

    async def _receive(self) -> child_protocol.MessageToWorker | None:
        assert self._pipe is not None
        frame = await self._pipe.receive()
        return None if frame is None else child_protocol.worker_decoder.decode(frame)
