"""Starts worker processes, watches them, restarts dead ones and frees their jobs at once. Runs no user code.

    supervisor --socket--> worker process 1 --crash journal--> the jobs it had started
               --socket--> worker process 2 ...

A dead worker's journal names the jobs that it had started: those are crash suspects, the others are not. The supervisor
declares the instance dead with that knowledge; other instances could only wait for its heartbeat to fail, and suspect every
job. Workers send a start-up error over the socket, and their health (worker_process.py); a worker that reads end of file
drains as after SIGTERM.

The first SIGTERM or SIGINT is passed on, and the workers drain; the second is passed on too, and they release what runs.
Workers that still live long after the first signal, or a few seconds after the second, are killed, and an unreachable store is
not waited for.
"""

import asyncio
import logging
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from drumbeat.clock import SYSTEM, Clock, jitter
from drumbeat.core.claim import ClaimRef
from drumbeat.errors import ConfigError, DrumbeatError, StoreUnavailable
from drumbeat.ids import InstanceId
from drumbeat.processes.exit_codes import (
    EXIT_CONFIG_ERROR,
    EXIT_NO_STORE,
    EXIT_OK,
    EXIT_RECYCLE,
    EXIT_REPLACE,
    describe_exit,
)
from drumbeat.processes.health import LoopPulse, ProcessHealth, combine
from drumbeat.processes.health_reporter import report_health
from drumbeat.processes.scratch import scratch_folder
from drumbeat.processes.service_notifier import ServiceNotifier
from drumbeat.processes.signals import SIGNALS, debounce
from drumbeat.settings import Settings
from drumbeat.store.lost_counts import recover_counts
from drumbeat.store.urls import open_store
from drumbeat.worker.worker_process import WorkerProcess

log = logging.getLogger(__name__)

MIN_UPTIME_SECONDS = 5.0
"""A worker that lived for less counts as failed at its start."""
MIN_RESTART_DELAY, MAX_RESTART_DELAY = 0.5, 30.0
NO_STORE_DELAY = 5.0
SIGNAL_DEBOUNCE_SECONDS = 1.0
"""A second signal within this time is the same request: SIGINT and SIGTERM together, or a script that repeats itself."""
KILL_DELAY = 10.0
"""Added to the drain timeout; a worker that still lives then is killed."""
URGENT_KILL_DELAY, URGENT_EXIT_DELAY = 4.0, 4.4
"""After the second request: when remaining workers are killed, and when pending death reports are abandoned."""
MIN_REPORT_DELAY, MAX_REPORT_DELAY = 0.1, 2.0
REPORT_TIMEOUT = 5.0
"""How long a stopping supervisor tries to reach the store; after that, others free the jobs by the missing heartbeat."""


class RestartBackoff:
    """How long to wait before a restart: not at all, unless the worker keeps dying at its start. Pure."""

    def __init__(self) -> None:
        self._quick_exits = 0

    def next_delay(self, exit_code: int, lived: float) -> float:
        if exit_code == EXIT_RECYCLE:  # as it should
            return 0.0
        self._quick_exits = self._quick_exits + 1 if lived < MIN_UPTIME_SECONDS else 0
        growing = (
            min(MAX_RESTART_DELAY, MIN_RESTART_DELAY * 2.0 ** (self._quick_exits - 2)) if self._quick_exits > 1 else 0.0
        )
        return max(growing, NO_STORE_DELAY) if exit_code == EXIT_NO_STORE else growing


class SupervisorHealth:
    """A `HealthSource` for the supervisor and its workers: as good as the worst of them."""

    def __init__(self, settings: Settings, clock: Clock = SYSTEM, *, is_wanted: bool = False) -> None:
        """`is_wanted`: somebody asks for it, so the workers are to report."""
        self._processes = settings.processes
        self._dead_after = settings.dead_after
        self._loop = LoopPulse(clock)
        self._workers: set[WorkerProcess] = set()
        self.is_stopping = False
        self.is_wanted = is_wanted

    def attach(self, workers: set[WorkerProcess]) -> None:
        """On the supervisor's loop."""
        self._workers = workers
        self._loop.watch(asyncio.get_running_loop())

    def report(self) -> ProcessHealth:
        workers = [(f"worker process {each.pid}", each.report()) for each in tuple(self._workers)]
        if len(workers) < self._processes and not self.is_stopping:
            workers.append(("supervisor", ProcessHealth(reasons=("a worker process is to be started",))))
        if (silence := self._loop.silence()) >= self._dead_after:
            reason = f"the event loop has not responded for {silence:.1f} s"
            workers.append(("supervisor", ProcessHealth(live=False, reasons=(reason,))))
        found = combine(workers)
        if not self.is_stopping:
            return found
        reasons = tuple(dict.fromkeys(("stopping", *found.reasons)))
        return msgspec.structs.replace(found, ready=False, stopping=True, reasons=reasons)


@contextmanager
def supervisor_health(settings: Settings, *, notifier: ServiceNotifier | None) -> Iterator[SupervisorHealth]:
    """The health of this process and of the workers that it starts, reported while the body runs.

    Raises:
        ConfigError: as `report_health`.
    """
    health = SupervisorHealth(settings, is_wanted=notifier is not None or settings.health is not None)
    with report_health(health, settings, notifier=notifier):
        yield health


class Supervisor:
    def __init__(
        self, ref: str, settings: Settings, *, health: SupervisorHealth | None = None, clock: Clock = SYSTEM
    ) -> None:
        self._ref = ref
        self._health = health or SupervisorHealth(settings, clock)
        self._settings = settings
        self._clock = clock
        self._workers: set[WorkerProcess] = set()
        self._pending_reports: set[asyncio.Task[None]] = set()
        self._start_error: str | None = None

    def run(self) -> int:
        """Keep the workers running until SIGTERM or SIGINT, and wait until they have drained. Returns the exit code.

        Raises:
            ConfigError: a worker could not start because the program or its settings are wrong.
        """
        code = asyncio.run(self._run())
        if self._start_error is not None:
            raise ConfigError(self._start_error)
        return code

    async def _run(self) -> int:
        self._stopping = asyncio.Event()
        self._health.attach(self._workers)
        loop = asyncio.get_running_loop()
        on_signal = debounce(self._on_signal, SIGNAL_DEBOUNCE_SECONDS, self._clock)
        for signal_number in SIGNALS:
            loop.add_signal_handler(signal_number, on_signal, signal_number)
        try:
            with tempfile.TemporaryDirectory(prefix="drumbeat-", dir=scratch_folder()) as folder:
                # Death reports are the outer group: workers are restarted while a report waits for the store.
                async with asyncio.TaskGroup() as self._reports, asyncio.TaskGroup() as keepers:
                    for number in range(self._settings.processes):
                        keepers.create_task(self._keep_running(number, Path(folder)), name=f"worker process {number}")
        finally:
            for signal_number in SIGNALS:
                loop.remove_signal_handler(signal_number)
        return EXIT_OK if self._start_error is None else EXIT_CONFIG_ERROR

    async def _keep_running(self, number: int, folder: Path) -> None:
        """Keep a worker process in this slot until asked to stop."""
        restarts = RestartBackoff()
        starts = 0
        while not self._stopping.is_set():
            starts += 1
            try:
                worker = WorkerProcess(
                    self._ref,
                    self._settings,
                    folder / f"{number}-{starts}",
                    self._clock,
                    reports_health=self._health.is_wanted,
                )
            except OSError as error:  # no memory, or no more processes: the other workers go on
                log.error("worker process cannot be started", extra={"slot": number, "reason": str(error)})
                await self._wait_before_restart(number, max(MIN_RESTART_DELAY, restarts.next_delay(EXIT_OK, 0.0)))
                continue
            self._workers.add(worker)
            log.info("worker process started", extra={"slot": number, "pid": worker.pid})
            exit_code = await worker.wait_for_exit()
            self._workers.discard(worker)
            has_finished = self._handle_exit(number, worker, exit_code)
            if has_finished and self._settings.burst:
                return
            if not self._stopping.is_set():
                await self._wait_before_restart(number, restarts.next_delay(exit_code, worker.uptime))

    def _handle_exit(self, number: int, worker: WorkerProcess, exit_code: int) -> bool:
        """Whether it has left of its own accord, with nothing left to do."""
        worker.close()
        instance, started = worker.read_journal()
        facts = {"slot": number, "pid": worker.pid, "exit": describe_exit(exit_code)}
        if exit_code in (EXIT_OK, EXIT_RECYCLE) and not started:  # else a handler has called exit
            log.info("worker process exited", extra=facts)
            return exit_code == EXIT_OK  # it has deregistered itself
        if exit_code == EXIT_CONFIG_ERROR and worker.start_error:
            self._start_error = self._start_error or worker.start_error
            self._stop_all()
            return False
        if exit_code in (EXIT_REPLACE, EXIT_NO_STORE) or self._stopping.is_set():
            log.info("worker process exited", extra=facts)
        else:
            log.error("worker process died", extra=facts | {"started": len(started)})
        if worker.was_killed:
            started = []  # killed by us, because it did not drain in time: no crash, so its jobs are released uncharged
        if instance is not None:
            reason = f"process died: {describe_exit(exit_code)}"
            report = self._reports.create_task(
                self._declare_dead(instance, started, reason), name=f"death report of {instance}"
            )
            self._pending_reports.add(report)
            report.add_done_callback(self._pending_reports.discard)
        return False

    async def _wait_before_restart(self, number: int, seconds: float) -> None:
        if not seconds:
            return
        log.warning("worker process waits before its restart", extra={"slot": number, "seconds": seconds})
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def _declare_dead(self, instance: InstanceId, started: list[ClaimRef], reason: str) -> None:
        """Free the jobs of a dead worker; retries while the store is unreachable."""
        died_at, delay = self._clock.monotonic(), MIN_REPORT_DELAY
        while True:
            try:
                store = await open_store(self._settings.url, namespace=self._settings.namespace, clock=self._clock)
                async with store:
                    report = await store.instances.declare_dead(instance, beat=None, started=started, reason=reason)
                    if report.declared:
                        await recover_counts(store, instance)
            except StoreUnavailable as error:
                outage = str(error)
            except DrumbeatError as error:
                log.error(
                    "jobs of a dead worker process were not freed", extra={"instance": instance, "reason": str(error)}
                )
                return
            else:
                if report.declared:
                    names = ("crash_suspect", "released", "dead", "cancelled")
                    counts: dict[str, object] = {name: getattr(report, name) for name in names}
                    log.warning("jobs of a dead worker process were freed", extra={"instance": instance} | counts)
                return
            if self._stopping.is_set() and self._clock.monotonic() - died_at > REPORT_TIMEOUT:
                log.error(
                    "jobs of a dead worker process are left to others", extra={"instance": instance, "reason": outage}
                )
                return
            await self._clock.sleep(jitter(delay))
            delay = min(MAX_REPORT_DELAY, 2 * delay)

    def _on_signal(self, number: signal.Signals) -> None:
        log.info("stopping", extra={"signal": number.name, "workers": len(self._workers)})
        self._stop_all()

    def _stop_all(self) -> None:
        """Ask all workers to drain; on the second call, to release what runs."""
        is_first = not self._stopping.is_set()
        self._stopping.set()
        self._health.is_stopping = True
        for worker in self._workers:
            worker.signal(signal.SIGTERM)
        if not is_first:
            self._clock.call_later(URGENT_KILL_DELAY, self._kill_all)
            self._clock.call_later(URGENT_EXIT_DELAY, self._cancel_reports)
        elif self._settings.drain is not None:
            self._clock.call_later(self._settings.drain + KILL_DELAY, self._kill_all)

    def _cancel_reports(self) -> None:
        for report in self._pending_reports:
            log.error("jobs of a dead worker process are left to others", extra={"report": report.get_name()})
            report.cancel()

    def _kill_all(self) -> None:
        for worker in self._workers:
            log.error("worker process does not exit: killed", extra={"pid": worker.pid})
            worker.was_killed = True
            worker.kill()
