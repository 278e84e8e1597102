"""Whether a worker is live and ready, for `HealthReporter`.

live     its event loop and the loop of its heartbeat respond: neither was silent for `dead_after`
ready    it is registered, the store has accepted a heartbeat within `dead_after`, its start-up is done, it is not stopping
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from drumbeat.clock import SYSTEM, Clock
from drumbeat.processes.health import LoopPulse, ProcessHealth
from drumbeat.processes.health_reporter import HealthOutlet, report_health
from drumbeat.processes.service_notifier import ServiceNotifier
from drumbeat.settings import Settings

if TYPE_CHECKING:
    from drumbeat.worker.worker import Worker


class WorkerHealth:
    """A `HealthSource`. It exists before its worker: a process that waits for its store is live, and not ready."""

    def __init__(self, settings: Settings, clock: Clock = SYSTEM) -> None:
        self._dead_after = settings.dead_after
        self._clock = clock
        self._worker: Worker | None = None
        self._loop = LoopPulse(clock)
        self._heartbeat = LoopPulse(clock)

    def attach(self, worker: Worker) -> None:
        """On its loop."""
        self._loop.watch(asyncio.get_running_loop())
        self._worker = worker

    def report(self) -> ProcessHealth:
        worker = self._worker
        parts = None if worker is None else worker.parts
        if worker is None or parts is None:
            return ProcessHealth(reasons=("starting: the store has not answered yet",))
        heartbeat = parts.heartbeat
        if heartbeat.loop is not None:
            self._heartbeat.watch(heartbeat.loop)
        stalled = [
            f"the {name} has not responded for {silence:.1f} s"
            for name, pulse in (("event loop", self._loop), ("heartbeat", self._heartbeat))
            if (silence := pulse.silence()) >= self._dead_after
        ]
        unready = []
        if heartbeat.answered_at is None:
            unready.append("starting: not registered yet")
        elif (silence := self._clock.monotonic() - heartbeat.answered_at) >= self._dead_after:
            unready.append(f"the store has accepted no heartbeat for {silence:.1f} s")
        elif not worker.is_started:
            unready.append("starting: its start-up has not ended")
        if worker.shutdown.is_stopping:
            unready.append("stopping")
        return ProcessHealth(
            live=not stalled,
            ready=not stalled and not unready,
            stopping=worker.shutdown.is_stopping,
            running=worker.core.runs.job_count,
            reasons=(*stalled, *unready),
        )


@contextmanager
def worker_health(
    settings: Settings, *, notifier: ServiceNotifier | None = None, parent: HealthOutlet | None = None
) -> Iterator[WorkerHealth]:
    """The health of this process's worker, reported while the body runs.

    Raises:
        ConfigError: as `report_health`.
    """
    health = WorkerHealth(settings)
    with report_health(health, settings, notifier=notifier, parent=parent):
        yield health
