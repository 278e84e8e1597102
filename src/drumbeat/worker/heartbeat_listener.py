"""What a worker does about the news its heart brings: cancellations, lost leases, dead neighbours, a store that stays away.

Called on the worker's own loop (see heartbeat.py); decides nothing about how long things live.
"""

import os
import socket
from collections.abc import Callable

from drumbeat.context import AbortReason
from drumbeat.core.claim import Outcome, unblocked_by
from drumbeat.core.instance import DeadInstanceReport, HeartbeatReply, NewInstance, Peer, Role
from drumbeat.core.job import OutcomeKind
from drumbeat.events import Events, InstanceDied, LeaseLost, StoreEmptied
from drumbeat.ids import InstanceId, JobId
from drumbeat.redaction import mask_url
from drumbeat.settings import Settings
from drumbeat.worker.active_runs import ActiveRuns
from drumbeat.worker.buffer import JobBuffer
from drumbeat.worker.crash_journal import CrashJournal, NullCrashJournal
from drumbeat.worker.fetcher import Fetcher
from drumbeat.worker.reporter import OutcomeReporter
from drumbeat.worker.store_loop import StoreLoop

ROLES = {
    "both": (Role.WORKER, Role.CONTROLLER),
    "worker": (Role.WORKER,),
    "controller": (Role.CONTROLLER,),
}


class HeartbeatListener:
    def __init__(
        self,
        settings: Settings,
        events: Events,
        buffer: JobBuffer,
        fetcher: Fetcher,
        reporter: OutcomeReporter,
        runs: ActiveRuns,
        journal: CrashJournal | NullCrashJournal,
        *,
        queues: tuple[str, ...],
        tasks: dict[str, str],
        rooms: Callable[[], dict[str, str]],
        on_unreachable: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._events = events
        self._buffer = buffer
        self._fetcher = fetcher
        self._reporter = reporter
        self._runs = runs
        self._journal = journal
        self._queues = queues
        self._tasks = tasks
        self._rooms = rooms
        self._runnable = unblocked_by(tasks)
        self._on_unreachable = on_unreachable
        self._was_leader = False
        self.identity = InstanceId("")
        """Who we are to the store. It changes when others have declared us dead."""
        self.wake_address: str | None = None
        self.store_loop: StoreLoop | None = None
        self.awaits_successor = False
        """This instance has led, nobody else does yet, and there are others who might."""

    def describe_instance(self, id: InstanceId) -> NewInstance:
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
            wake=self.wake_address if works else None,
        )

    def count_running(self) -> int:
        return self._runs.job_count

    def on_identity(self, id: InstanceId) -> None:
        self.identity = id
        self._journal.set_instance(id)

    def on_heartbeat(self, pulse: HeartbeatReply) -> None:
        if self.store_loop is not None:
            self.store_loop.on_heartbeat(pulse)
        if pulse.leader is not None:
            self._was_leader = pulse.leader.instance == self.identity
        self.awaits_successor = self._was_leader and bool(pulse.peers)
        self._fetcher.set_unblocks(tuple(sorted(self._runnable.intersection(pulse.blocked_on))))
        if pulse.cancel_requests:
            self._cancel({hold.id: hold.token for hold in pulse.cancel_requests})

    def _cancel(self, asked: dict[JobId, int]) -> None:
        for job in self._buffer.remove(asked.keys()):
            self._reporter.put(Outcome(id=job.id, token=job.token, kind=OutcomeKind.CANCELLED))
        for run in self._runs:
            # One job of a batch cannot be cancelled alone: it ends as the batch ends.
            job = run.jobs[0]
            if len(run.jobs) == 1 and asked.get(job.id) == job.token and not run.is_interrupted:
                run.abort(AbortReason.CANCELLED)

    def on_lease_lost(self) -> None:
        self._events.emit(LeaseLost(instance=self.identity, running=len(self._runs)))
        for job in self._buffer.drain():
            self._reporter.drop(job)
        self._runs.abort_all(AbortReason.LEASE_LOST)

    def on_store_emptied(self) -> None:
        self._events.emit(StoreEmptied(instance=self.identity, url=mask_url(self._settings.url)))

    def on_instance_died(self, peer: Peer, buried: DeadInstanceReport) -> None:
        self._events.emit(InstanceDied(instance=self.identity, dead=peer.id, jobs=buried))

    def on_store_unreachable(self, failures: int, reason: str) -> None:
        # With anything at hand, an outcome that is still to be told included, it stays.
        if not self._reporter.held:
            self._on_unreachable(reason)
