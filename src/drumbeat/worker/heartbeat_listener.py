"""How a worker reacts to its heartbeat: cancellations, lost leases, dead peers, an unreachable store.

`HeartbeatListener` is called on the worker's loop, `WorkerDescription` on any thread (see heartbeat.py).
"""

import os
import socket
from collections.abc import Callable

from drumbeat.context import AbortReason
from drumbeat.core.claim import Outcome, unblocked_by
from drumbeat.core.instance import DeadInstanceReport, HeartbeatReply, NewInstance, Peer, Role
from drumbeat.core.job import OutcomeKind
from drumbeat.events import InstanceDied, LeaseLost, StoreEmptied
from drumbeat.ids import InstanceId, JobId
from drumbeat.redaction import mask_url
from drumbeat.worker.buffer import JobBuffer
from drumbeat.worker.core import WorkerCore
from drumbeat.worker.fetcher import Fetcher
from drumbeat.worker.reporter import OutcomeReporter
from drumbeat.worker.room_consumer import RoomConsumer
from drumbeat.worker.store_loop import StoreLoop


class WorkerDescription:
    """An `InstanceDescription`: what other instances know of this worker."""

    def __init__(self, core: WorkerCore, queues: tuple[str, ...], rooms: RoomConsumer) -> None:
        self._settings = core.settings
        self._tasks = {name: spec.signature for name, spec in core.task_specs.items()}
        self._runs = core.runs
        self._queues = queues
        self._rooms = rooms

    def describe_instance(self, id: InstanceId, wake_address: str | None) -> NewInstance:
        works = self._settings.role != "controller"
        return NewInstance(
            id=id,
            app=self._settings.name,
            version=self._settings.version,
            host=socket.gethostname(),
            pid=os.getpid(),
            roles=tuple(role for role in Role if self._settings.role in ("both", role)),
            queues=self._queues if works else (),
            tasks=self._tasks if works else {},
            concurrency=self._settings.concurrency if works else 0,
            rooms=self._rooms.signatures if works else {},
            wake=wake_address if works else None,
        )

    def count_running(self) -> int:
        return self._runs.job_count


class HeartbeatListener:
    """A `HeartbeatEvents`."""

    def __init__(
        self, core: WorkerCore, buffer: JobBuffer, fetcher: Fetcher, reporter: OutcomeReporter, store_loop: StoreLoop
    ) -> None:
        self._core = core
        self._buffer = buffer
        self._fetcher = fetcher
        self._reporter = reporter
        self._store_loop = store_loop
        self._runnable = unblocked_by({name: spec.signature for name, spec in core.task_specs.items()})
        self._was_leader = False
        self.on_emptied: Callable[[], None] = lambda: None
        """Called when the store was emptied: what was declared there is gone."""
        self.awaits_successor = False
        """This instance was the leader, there is no other leader yet, and there are peers that may become one."""

    def on_identity(self, id: InstanceId, asked_at: float) -> None:
        self._core.lease.renew(asked_at)
        self._core.identity.current = id
        self._core.journal.set_instance(id)

    def on_heartbeat(self, reply: HeartbeatReply, asked_at: float) -> None:
        self._core.lease.renew(asked_at)
        self._store_loop.on_heartbeat(reply)
        if reply.leader is not None:
            self._was_leader = reply.leader.instance == self._core.identity()
        self.awaits_successor = self._was_leader and bool(reply.peers)
        self._fetcher.set_unblocks(tuple(sorted(self._runnable.intersection(reply.blocked_on))))
        if reply.cancel_requests:
            self._cancel({claim.id: claim.token for claim in reply.cancel_requests})
        self._buffer.wake()  # after the cancellations: jobs may have waited for the lease

    def _cancel(self, requests: dict[JobId, int]) -> None:
        for job in self._buffer.remove(requests.keys()):
            self._reporter.put(Outcome(id=job.id, token=job.token, kind=OutcomeKind.CANCELLED))
        for run in self._core.runs:
            # One job of a batch cannot be cancelled alone: it ends as the batch ends.
            job = run.jobs[0]
            if len(run.jobs) == 1 and requests.get(job.id) == job.token and not run.is_interrupted:
                run.abort(AbortReason.CANCELLED)

    def on_lease_lost(self) -> None:
        self._core.events.emit(LeaseLost(instance=self._core.identity(), running=len(self._core.runs)))
        for job in self._buffer.drain():
            self._reporter.drop(job)
        self._store_loop.on_lease_lost()
        self._core.runs.abort_all(AbortReason.LEASE_LOST)

    def on_store_emptied(self) -> None:
        self.on_emptied()
        self._core.events.emit(StoreEmptied(instance=self._core.identity(), url=mask_url(self._core.settings.url)))

    def on_instance_died(self, peer: Peer, report: DeadInstanceReport) -> None:
        self._core.events.emit(InstanceDied(instance=self._core.identity(), dead=peer.id, jobs=report))

    def on_store_unreachable(self, failures: int, reason: str) -> None:
        # With any claim held, or an outcome still to be reported, the worker stays.
        if not self._reporter.held:
            self._core.shutdown.leave_store(reason)
