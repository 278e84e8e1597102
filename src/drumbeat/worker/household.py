"""What a worker does about the news its heart brings: cancellations, lost leases, dead neighbours, a store that stays away.

Called on the worker's own loop (see presence.py); decides nothing about how long things live.
"""

import os
import socket
from collections.abc import Callable

from drumbeat.context import AbortReason
from drumbeat.events import Events, InstanceBuried, LeaseLost, StoreEmptied
from drumbeat.ids import InstanceId, JobId
from drumbeat.model.instance import Buried, NewInstance, Peer, Pulse, Role
from drumbeat.model.job import Outcome, OutcomeKind, can_take
from drumbeat.redaction import mask_url
from drumbeat.settings import Settings
from drumbeat.worker.buffer import Buffer
from drumbeat.worker.exchange import Exchange
from drumbeat.worker.fetcher import Fetcher
from drumbeat.worker.marks import Marks, NoMarks
from drumbeat.worker.reporter import Reporter
from drumbeat.worker.runs import Runs

ROLES = {
    "both": (Role.WORKER, Role.CONTROLLER),
    "worker": (Role.WORKER,),
    "controller": (Role.CONTROLLER,),
}


class Household:
    def __init__(
        self,
        settings: Settings,
        events: Events,
        buffer: Buffer,
        fetcher: Fetcher,
        reporter: Reporter,
        runs: Runs,
        marks: Marks | NoMarks,
        *,
        queues: tuple[str, ...],
        tasks: dict[str, str],
        rooms: Callable[[], dict[str, str]],
        leave: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._events = events
        self._buffer = buffer
        self._fetcher = fetcher
        self._reporter = reporter
        self._runs = runs
        self._marks = marks
        self._queues = queues
        self._tasks = tasks
        self._rooms = rooms
        self._takes = can_take(tasks)
        self._leave = leave
        self._has_led = False
        self.identity = InstanceId("")
        """Who we are to the store. It changes when others have declared us dead."""
        self.address: str | None = None
        self.exchange: Exchange | None = None
        self.awaits_successor = False
        """This instance has led, nobody else does yet, and there are others who might."""

    def describe(self, id: InstanceId) -> NewInstance:
        works = self._settings.role != "controller"
        return NewInstance(
            id=id,
            app=self._settings.name,
            version=self._settings.version,
            host=socket.gethostname(),
            pid=os.getpid(),
            roles=ROLES[self._settings.role],
            queues=self._queues if works else (),
            tasks=self._tasks if works else {},
            concurrency=self._settings.concurrency if works else 0,
            rooms=self._rooms() if works else {},
            wake=self.address if works else None,
        )

    def running(self) -> int:
        return self._runs.jobs

    def on_identity(self, id: InstanceId) -> None:
        self.identity = id
        self._marks.identify(id)

    def on_pulse(self, pulse: Pulse) -> None:
        if self.exchange is not None:
            self.exchange.hear(pulse)
        if pulse.leader is not None:
            self._has_led = pulse.leader.instance == self.identity
        self.awaits_successor = self._has_led and bool(pulse.peers)
        self._fetcher.wanting(tuple(sorted(self._takes.intersection(pulse.waiting))))
        if pulse.cancels:
            self._cancel({hold.id: hold.token for hold in pulse.cancels})

    def _cancel(self, asked: dict[JobId, int]) -> None:
        for job in self._buffer.remove(asked.keys()):
            self._reporter.put(Outcome(id=job.id, token=job.token, kind=OutcomeKind.CANCELLED))
        for run in self._runs:
            # One job of a batch cannot be cancelled alone: it ends as the batch ends.
            job = run.jobs[0]
            if len(run.jobs) == 1 and asked.get(job.id) == job.token and not run.interrupted:
                run.abort(AbortReason.CANCELLED)

    def on_lost(self) -> None:
        self._events.emit(LeaseLost(instance=self.identity, running=len(self._runs)))
        for job in self._buffer.empty():
            self._reporter.drop(job)
        self._runs.abort_all(AbortReason.LEASE_LOST)

    def on_emptied(self) -> None:
        self._events.emit(StoreEmptied(instance=self.identity, url=mask_url(self._settings.url)))

    def on_buried(self, peer: Peer, buried: Buried) -> None:
        self._events.emit(InstanceBuried(instance=self.identity, dead=peer.id, jobs=buried))

    def on_hopeless(self, failures: int, reason: str) -> None:
        # With anything at hand, an outcome that is still to be told included, it stays.
        if not self._reporter.held:
            self._leave(reason)
