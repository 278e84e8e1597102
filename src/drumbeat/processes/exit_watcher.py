"""Notice that a child process has exited, reap it, and kill its process group without hitting another one.

A pid or group number is safe to signal only until the process is reaped; from then on it may belong to another process.
"""

import asyncio
import os
import signal
import subprocess
import threading
from contextlib import suppress

from drumbeat.processes.exit_codes import EXIT_UNKNOWN

POLL_INTERVAL = 0.05
"""How often to poll for the exit where neither pidfd_open nor waitid exists (macOS before Python 3.13)."""


class ExitWatcher:
    """Learns of a process's exit on the running loop, once, and reaps it. Nothing else may wait for the process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._loop = asyncio.get_running_loop()
        self._reaping = threading.Lock()
        self._code: int | None = None
        """The exit code, once the process is reaped."""
        self.exited: asyncio.Future[int] = self._loop.create_future()
        """The exit code; minus the signal's number if a signal killed the process."""
        if hasattr(os, "pidfd_open"):
            self._descriptor = os.pidfd_open(process.pid)
            self._loop.add_reader(self._descriptor, self._reap_exited)
        else:
            self._descriptor = -1
            wait = self._wait_for_exit if hasattr(os, "waitid") else self._poll_exit
            threading.Thread(target=wait, name="drumbeat-exit-watcher", daemon=True).start()

    def kill(self) -> None:
        """Kill the process and its group at once. Harmless when it is dead."""
        with self._reaping:
            if self._code is None:
                _kill_group(self._process.pid)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process alone. Harmless when it is dead."""
        with self._reaping, suppress(ProcessLookupError):
            if self._code is None:
                os.kill(self._process.pid, number)

    def _wait_for_exit(self) -> None:
        # Without reaping: the loop does that, after the group has been killed.
        with suppress(ChildProcessError):  # the program reaps every child itself; `_reap` handles that
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        self._schedule_reap()

    def _poll_exit(self) -> None:
        never = threading.Event()
        while self._code is None:
            never.wait(POLL_INTERVAL)
            with self._reaping:
                self._code = _reap_by_waitpid(self._process.pid, os.WNOHANG)
        self._schedule_reap()

    def _schedule_reap(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._reap_exited)

    def _reap_exited(self) -> None:
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
        if self._code is None:
            self._code = _reap(self._process.pid)
        self._process.returncode = self._code
        if not self.exited.cancelled():
            self.exited.set_result(self._code)


def _reap(pid: int) -> int:
    """Reap a child that is dead, or about to be."""
    if not hasattr(os, "waitid"):
        return _reap_by_waitpid(pid) or 0
    try:
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        if found is None or found.si_code != os.CLD_EXITED or found.si_status != 0:
            # Its own children would go on with a job that another worker will run. Killed before the leader is reaped:
            # until then the group number cannot be reused.
            _kill_group(pid)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return EXIT_UNKNOWN


def _reap_by_waitpid(pid: int, options: int = 0) -> int | None:
    """`_reap` where waitid is missing; with WNOHANG, None while the child lives. waitpid reaps at once, so the group is killed
    right after: the kernel does not reuse a number immediately."""
    try:
        found, status = os.waitpid(pid, options)
    except ChildProcessError:
        return EXIT_UNKNOWN
    if not found:
        return None
    if status:
        _kill_group(pid)
    return os.waitstatus_to_exitcode(status)


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def exit_with_group() -> None:
    """Exit at once, and kill everything that this process has started and that has not left its group."""
    if os.getpgrp() == os.getpid():
        _kill_group(os.getpid())
    os._exit(1)
