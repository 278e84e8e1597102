"""Starts worker processes, watches them, replaces the dead and frees their jobs at once. Runs no user code.

    supervisor --socket--> worker process 1 --marks--> what it had started
               --socket--> worker process 2 ...

A dead worker's marks say which jobs it had started: those are suspects, the others are innocent. The supervisor buries the
instance in the store with that knowledge, where others could only wait for its heartbeat to fail and suspect all. The socket
carries nothing but its own end: a worker whose supervisor is gone drains as after SIGTERM.

The first SIGTERM or SIGINT is passed on and the workers drain; the next is passed on too, and they release what runs. What is
still there long after the first, or a few seconds after the second, is killed, and a store that is away is not waited for.
"""

import asyncio
import logging
import math
import signal
import socket
import tempfile
from contextlib import suppress
from pathlib import Path

from drumbeat import appref
from drumbeat.clock import SYSTEM, Clock, jitter
from drumbeat.core.claim import ClaimRef
from drumbeat.core.instance import DeadInstanceReport
from drumbeat.errors import ConfigError, DrumbeatError, StoreUnavailable
from drumbeat.ids import InstanceId
from drumbeat.settings import Settings
from drumbeat.spawn import ExitWatcher, describe_exit, spawn
from drumbeat.store.lost_counts import recover_counts
from drumbeat.store.urls import open_store
from drumbeat.worker.crash_journal import CrashJournal

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM)
EXIT_OK, EXIT_CONFIG_ERROR, EXIT_REPLACE, EXIT_NO_STORE = 0, 2, 70, 75
MIN_UPTIME_SECONDS = 5.0
"""A worker that lived shorter than this has died at its start, or nearly."""
MIN_RESTART_DELAY, MAX_RESTART_DELAY = 0.5, 30.0
NO_STORE_DELAY = 5.0
SIGNAL_DEBOUNCE_SECONDS = 1.0
"""A second signal so soon is the first said twice: SIGINT and SIGTERM at once, or an impatient script."""
KILL_DELAY = 10.0
"""So long after the time to drain, a worker that still lives is killed."""
URGENT_KILL_DELAY, URGENT_EXIT_DELAY = 4.0, 4.4
"""So long after the second request workers that still live are killed, and then nothing is waited for any more."""
MIN_REPORT_DELAY, MAX_REPORT_DELAY = 0.1, 2.0
REPORT_TIMEOUT = 5.0
"""So long a supervisor that is leaving waits for the store; then the jobs are found by others, by the missing heartbeat."""


class RestartBackoff:
    """How long to wait before a worker is started again: not at all, unless it keeps dying at its start. Pure."""

    def __init__(self) -> None:
        self._quick_exits = 0

    def next_delay(self, exit_code: int, lived: float) -> float:
        self._quick_exits = self._quick_exits + 1 if lived < MIN_UPTIME_SECONDS else 0
        growing = (
            min(MAX_RESTART_DELAY, MIN_RESTART_DELAY * 2.0 ** (self._quick_exits - 2)) if self._quick_exits > 1 else 0.0
        )
        return max(growing, NO_STORE_DELAY) if exit_code == EXIT_NO_STORE else growing


class WorkerProcess:
    """One worker process, from its start to its death."""

    def __init__(self, ref: str, settings: Settings, journal_path: Path, clock: Clock) -> None:
        arguments = {"ref": ref, "flags": appref.to_flags(settings), "marks_path": str(journal_path)}
        process, self._link, lifeline = spawn(
            "drumbeat.worker.supervised_worker:main",
            arguments,
            label=f"drumbeat-worker {ref}",
            with_main=appref.needs_main(ref),
        )
        lifeline.close()  # it must be able to outlive us: it has jobs to finish
        self.pid = process.pid
        self.watch = ExitWatcher(process)
        self.was_killed = False
        self._journal_path = journal_path
        self._clock = clock
        self._started_at = clock.monotonic()

    @property
    def uptime(self) -> float:
        return self._clock.monotonic() - self._started_at

    async def wait_for_exit(self) -> int:
        """Wait for its death; the exit code."""
        return await asyncio.shield(self.watch.exited)

    def read_start_error(self) -> str:
        """Why it could not start, if it said so. Once it is dead."""
        self._link.setblocking(False)
        with self._link, suppress(BlockingIOError, ConnectionResetError):
            return self._link.recv(65_536, socket.MSG_DONTWAIT).decode(errors="replace")
        return ""

    def read_journal(self) -> tuple[InstanceId | None, list[ClaimRef]]:
        """Who it was, and what it had started. Once it is dead."""
        marks = CrashJournal.open(self._journal_path)
        if marks is None:
            return None, []
        found = marks.read()
        marks.close()
        self._journal_path.unlink(missing_ok=True)
        return found


class Supervisor:
    def __init__(self, ref: str, settings: Settings, *, clock: Clock = SYSTEM) -> None:
        self._ref = ref
        self._settings = settings
        self._clock = clock
        self._workers: set[WorkerProcess] = set()
        self._pending_reports: set[asyncio.Task[None]] = set()
        self._last_signal_at = -math.inf
        self._start_error: str | None = None

    def run(self) -> int:
        """Keep the workers until SIGTERM or SIGINT, and until they have drained. Returns the exit code.

        Raises:
            ConfigError: a worker could not start because the program or its settings are wrong.
        """
        code = asyncio.run(self._run())
        if self._start_error is not None:
            raise ConfigError(self._start_error)
        return code

    async def _run(self) -> int:
        self._stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for signal_number in SIGNALS:
            loop.add_signal_handler(signal_number, self._on_signal, signal_number)
        try:
            with tempfile.TemporaryDirectory(prefix="drumbeat-") as folder:
                # Outside, so that the store may be away while workers are started again.
                async with asyncio.TaskGroup() as self._reports, asyncio.TaskGroup() as keepers:
                    for number in range(self._settings.processes):
                        keepers.create_task(self._keep_running(number, Path(folder)), name=f"worker process {number}")
        finally:
            for signal_number in SIGNALS:
                loop.remove_signal_handler(signal_number)
        return EXIT_OK if self._start_error is None else EXIT_CONFIG_ERROR

    async def _keep_running(self, number: int, folder: Path) -> None:
        """Have a worker process in this place until asked to stop."""
        restarts = RestartBackoff()
        lives = 0
        while not self._stopping.is_set():
            lives += 1
            try:
                worker = WorkerProcess(self._ref, self._settings, folder / f"{number}-{lives}", self._clock)
            except OSError as error:  # no memory, or no more processes: the others work on
                log.error("worker process cannot be started", extra={"place": number, "reason": str(error)})
                await self._wait_before_restart(number, max(MIN_RESTART_DELAY, restarts.next_delay(EXIT_OK, 0.0)))
                continue
            self._workers.add(worker)
            log.info("worker process started", extra={"place": number, "pid": worker.pid})
            exit_code = await worker.wait_for_exit()
            self._workers.discard(worker)
            self._handle_exit(number, worker, exit_code)
            if not self._stopping.is_set():
                await self._wait_before_restart(number, restarts.next_delay(exit_code, worker.uptime))

    def _handle_exit(self, number: int, worker: WorkerProcess, exit_code: int) -> None:
        words = worker.read_start_error()
        instance, holds = worker.read_journal()
        facts = {"place": number, "pid": worker.pid, "how": describe_exit(exit_code)}
        if exit_code == EXIT_OK and not holds:  # with something running it is a handler that has ended it
            log.info("worker process left", extra=facts)
            return  # it has said goodbye to the store itself
        if exit_code == EXIT_CONFIG_ERROR and words:
            self._start_error = self._start_error or words
            self._stop_all()
            return
        if exit_code in (EXIT_REPLACE, EXIT_NO_STORE) or self._stopping.is_set():
            log.info("worker process left", extra=facts)
        else:
            log.error("worker process died", extra=facts | {"had_started": len(holds)})
        if worker.was_killed:
            holds = []  # by us, because it did not drain in time: no crash, and drained jobs are released without a charge
        if instance is not None:
            reason = f"process died: {describe_exit(exit_code)}"
            burial = self._reports.create_task(
                self._declare_dead(instance, holds, reason), name=f"burial of {instance}"
            )
            self._pending_reports.add(burial)
            burial.add_done_callback(self._pending_reports.discard)

    async def _wait_before_restart(self, number: int, seconds: float) -> None:
        if not seconds:
            return
        log.warning("worker process waits before it is started again", extra={"place": number, "seconds": seconds})
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def _declare_dead(self, instance: InstanceId, holds: list[ClaimRef], reason: str) -> None:
        """Free the jobs of a dead worker; patient with a store that is away."""
        died_at, pause = self._clock.monotonic(), MIN_REPORT_DELAY
        while True:
            try:
                store = await open_store(self._settings.url, namespace=self._settings.namespace, clock=self._clock)
                async with store:
                    buried = await store.instances.declare_dead(instance, beat=None, started=holds, reason=reason)
                    if buried.declared:
                        await recover_counts(store, instance)
            except StoreUnavailable as error:
                outage = str(error)
            except DrumbeatError as error:
                log.error(
                    "jobs of a dead worker process were not freed", extra={"instance": instance, "reason": str(error)}
                )
                return
            else:
                self._log_freed_jobs(instance, buried)
                return
            if self._stopping.is_set() and self._clock.monotonic() - died_at > REPORT_TIMEOUT:
                log.error(
                    "jobs of a dead worker process are left to others", extra={"instance": instance, "reason": reason}
                )
                return
            await self._clock.sleep(jitter(pause))
            pause = min(MAX_REPORT_DELAY, 2 * pause)

    def _log_freed_jobs(self, instance: InstanceId, buried: DeadInstanceReport) -> None:
        if buried.declared:
            counts: dict[str, object] = {
                name: getattr(buried, name) for name in ("crash_suspect", "released", "dead", "cancelled")
            }
            log.warning("jobs of a dead worker process were freed", extra={"instance": instance} | counts)

    def _on_signal(self, number: signal.Signals) -> None:
        now = self._clock.monotonic()
        if now - self._last_signal_at < SIGNAL_DEBOUNCE_SECONDS:
            return
        self._last_signal_at = now
        log.info("stopping", extra={"signal": number.name, "workers": len(self._workers)})
        self._stop_all()

    def _stop_all(self) -> None:
        """Ask all workers to drain; asked again, they release what runs."""
        is_first = not self._stopping.is_set()
        self._stopping.set()
        for worker in self._workers:
            worker.watch.signal(signal.SIGTERM)
        if not is_first:
            self._clock.call_later(URGENT_KILL_DELAY, self._kill_all)
            self._clock.call_later(URGENT_EXIT_DELAY, self._cancel_reports)
        elif self._settings.drain is not None:
            self._clock.call_later(self._settings.drain + KILL_DELAY, self._kill_all)

    def _cancel_reports(self) -> None:
        for burial in self._pending_reports:
            log.error("jobs of a dead worker process are left to others", extra={"burial": burial.get_name()})
            burial.cancel()

    def _kill_all(self) -> None:
        for worker in self._workers:
            log.error("worker process does not leave: killed", extra={"pid": worker.pid})
            worker.was_killed = True
            worker.watch.kill()
