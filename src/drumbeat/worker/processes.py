"""Child processes that run one job at a time: handlers with `pool="process"`, and suspects, which run alone.

A child is started when it is needed, kept while there is work, and closed after a minute without. Cancelling a run kills its
child; nothing else can end code that does not listen. A child that dies under a job is that job's crash; one that cannot even
start is not. What is said over the socket is in frames.py, what happens at its other end in child.py.
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
from drumbeat.errors import DrumbeatError
from drumbeat.ids import InstanceId
from drumbeat.model.job import Claimed, Failure
from drumbeat.settings import Settings
from drumbeat.spawn import Pipe, Watch, how_it_ended, spawn
from drumbeat.worker import frames
from drumbeat.worker.ending import Ending, How

log = logging.getLogger(__name__)

NOBODY = InstanceId("")
IDLE = 60.0
START_WITHIN = 300.0
"""How long a child may take to load the program and to open its resources."""
GOODBYE = 5.0
"""How long a child may take to close the program's resources."""
LINGER = 0.5
"""How long what a dead child has said may still be on its way; and how long one may live that hung up."""


class ChildFailed(DrumbeatError):
    """A child process could not serve: it did not start, or does not have the program that its worker has. No job's fault."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"a child process cannot run jobs: {problem}")
        self.problem = problem


class Processes:
    """All children of one worker. Belongs to the loop that it is used on."""

    def __init__(self, ref: str, settings: Settings, *, limit: int, clock: Clock = SYSTEM, idle: float = IDLE) -> None:
        self._ref = ref
        self._settings = settings
        self._clock = clock
        self._idle_for = idle
        self._room = asyncio.Semaphore(limit)
        self._folder = os.getcwd()  # now: a handler may go elsewhere
        self._children: set[Child] = set()
        self._idle: list[Child] = []

    @property
    def pids(self) -> list[int]:
        """The children that live now."""
        return sorted(child.pid for child in self._children if child.is_alive)

    async def run(
        self,
        job: Claimed,
        *,
        abort: AbortSignal,
        note: Callable[[Claimed, Any], None],
        begun: Callable[[], None] = lambda: None,
        ended: Callable[[float], None] = lambda took: None,
        instance: InstanceId = NOBODY,
        started_us: int = 0,
        trace: str | None = None,
    ) -> Ending:
        """Run a job in a child of its own; `begun` is called when its handler starts, and `ended`, if its time is limited, with
        the seconds that it took. If cancelled, the child is killed.

        Raises:
            ChildFailed: the job has not been started.
        """
        async with self._room:
            while True:
                child, is_fresh = await self._take()
                try:
                    answer = await child.run(frames.Run(job, instance, started_us, trace), abort, note, begun, ended)
                except BaseException:
                    await child.end()
                    raise
                if isinstance(answer, Ending):
                    self._keep(child)
                    return answer
                await child.end()
                # One that died while it was idle says nothing about the next.
                if is_fresh or answer.problem:
                    raise self._failed(answer)

    async def close(self) -> None:
        """End all children; idle ones may close the program's resources first. None is left when this returns."""
        leaving, self._idle = self._idle, []
        for child in leaving:
            child.stop()
        for child in self._children.difference(leaving):
            child.kill()
        for child in list(self._children):
            await child.gone()
            child.hang_up()

    async def _take(self) -> "tuple[Child, bool]":
        while self._idle:
            # The one that was used last: the others come of age, and are closed.
            child = self._idle.pop()
            if child.is_alive:
                return child, False
        try:
            child = Child(self._ref, self._settings, self._clock, self._folder)
        except OSError as error:  # no memory, no more processes or files: no job's fault
            raise self._failed(frames.Refused(f"it cannot be started: {error}")) from error
        self._children.add(child)
        child.watch.exited.add_done_callback(lambda _: self._forget(child))
        try:
            async with asyncio.timeout(START_WITHIN):
                answer = await child.start()
        except TimeoutError:
            answer = frames.Refused(f"it was not ready after {START_WITHIN:g} s")
        except BaseException:
            await child.end()
            raise
        if answer is not None:
            await child.end()
            raise self._failed(answer)
        return child, True

    def _failed(self, answer: frames.Refused) -> ChildFailed:
        problem = answer.problem or "it died before the job could start"
        log.error("a child process cannot run jobs", extra={"problem": problem})
        if answer.traceback:
            log.debug("why a child process cannot run jobs", extra={"traceback": answer.traceback})
        return ChildFailed(problem)

    def _keep(self, child: "Child") -> None:
        if not child.is_alive:
            child.hang_up()
            return
        self._idle.append(child)
        uses = child.uses
        self._clock.later(self._idle_for, lambda: self._retire(child, uses))

    def _retire(self, child: "Child", uses: int) -> None:
        if child in self._idle and child.uses == uses:
            self._idle.remove(child)
            child.stop()

    def _forget(self, child: "Child") -> None:
        self._children.discard(child)
        if child in self._idle:
            self._idle.remove(child)
        if not child.is_busy:
            child.hang_up()


class Child:
    """One child process, from its start to its end."""

    def __init__(self, ref: str, settings: Settings, clock: Clock, folder: str) -> None:
        arguments = {"ref": ref, "flags": appref.flags_of(settings)}
        self._process, self._link, self._lifeline = spawn(
            "drumbeat.worker.child:main",
            arguments,
            label=f"drumbeat-child {ref}",
            with_main=appref.needs_main(ref),
            dies_with_us=True,
            folder=folder,
        )
        self._clock = clock
        self._pipe: Pipe | None = None
        self.watch = Watch(self._process)
        self.uses = 0
        self.is_busy = True
        """Somebody waits for what it has to say."""
        # A process that its handler has started may hold the socket open, so that its end would never be seen.
        self.watch.exited.add_done_callback(lambda _: clock.later(LINGER, self.hang_up))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self.watch.is_alive

    async def start(self) -> frames.Refused | None:
        """Wait until it is ready; else why it is not."""
        self._pipe = await Pipe.on(self._link)
        match await self._hear():
            case frames.Ready():
                self.is_busy = False
                return None
            case frames.Refused() as refused:
                return refused
            case _:
                return frames.Refused(f"it died when it started: {how_it_ended(await self._ended())}")

    async def run(
        self,
        what: frames.Run,
        abort: AbortSignal,
        note: Callable[[Claimed, Any], None],
        begun: Callable[[], None],
        ended: Callable[[float], None],
    ) -> Ending | frames.Refused:
        """How the job ended; Refused if it was not started, without a problem if the process was found dead."""
        self.uses += 1
        self.is_busy = True
        self._say(what)
        async with asyncio.TaskGroup() as group:
            teller = group.create_task(self._tell(abort), name=f"abort of {what.job.id}")
            try:
                return await self._converse(what.job, note, begun, ended)
            finally:
                teller.cancel()
                self.is_busy = False

    def stop(self) -> None:
        """Ask it to leave; it is killed if it does not."""
        self._say(frames.Stop())
        timer = self._clock.later(GOODBYE, self.kill)
        self.watch.exited.add_done_callback(lambda _: timer.cancel())

    def kill(self) -> None:
        self.watch.kill()

    async def end(self) -> None:
        """Kill it, and return when it is dead and reaped."""
        self.kill()
        await self.gone()
        self.hang_up()

    async def gone(self) -> int:
        """Wait for its death; the exit code."""
        # Shielded: a cancelled waiter must not cancel what others wait for.
        return await asyncio.shield(self.watch.exited)

    def hang_up(self) -> None:
        """Once it is dead."""
        self._lifeline.close()
        if self._pipe is not None:
            self._pipe.abort()
        else:
            self._link.close()

    async def _tell(self, abort: AbortSignal) -> None:
        self._say(frames.Abort(await abort))

    async def _converse(
        self,
        job: Claimed,
        note: Callable[[Claimed, Any], None],
        begun: Callable[[], None],
        ended: Callable[[float], None],
    ) -> Ending | frames.Refused:
        has_begun = False
        while (heard := await self._hear()) is not None:
            match heard:
                case frames.Began():
                    has_begun = True
                    begun()
                case frames.Noted(progress=progress):
                    note(job, msgspec.json.decode(progress))
                case frames.Ended(took=took):
                    ended(took)
                case frames.Done(ending=ending):
                    return ending
                case frames.Refused():
                    return heard
                case frames.Ready():
                    pass
        exit_code = await self._ended()
        if not has_begun:
            return frames.Refused("")
        died = f"the process running this job died: {how_it_ended(exit_code)}"
        return Ending(how=How.CRASHED, error=Failure("ProcessDied", died))

    async def _ended(self) -> int:
        """It hung up, so it is dead or dying; one that closed its socket and lives on is of no use."""
        timer = self._clock.later(LINGER, self.kill)
        try:
            return await self.gone()
        finally:
            timer.cancel()

    def _say(self, message: frames.ToChild) -> None:
        if self._pipe is not None and self.is_alive:
            self._pipe.send(frames.encode(message))

    async def _hear(self) -> frames.ToWorker | None:
        assert self._pipe is not None
        frame = await self._pipe.receive()
        return None if frame is None else frames.to_worker.decode(frame)
