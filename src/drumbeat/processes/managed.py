"""`ManagedProcess`: a child process from its start to its exit. Supervisor, child pool, dashboard and demo all use it."""

import asyncio
import signal
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Unpack

from drumbeat.clock import SYSTEM, Clock
from drumbeat.processes.exit_watcher import ExitWatcher
from drumbeat.processes.spawn import SpawnOptions, spawn

MAX_MESSAGE_BYTES = 65_536
KILL_TIMEOUT = 1.0
"""How long `stop` waits for a killed process to be reaped."""


class ManagedProcess:
    """Made on the loop that learns of the exit. `close` must follow once the process is dead."""

    def __init__(
        self, target: str, arguments: Mapping[str, Any], *, clock: Clock = SYSTEM, **options: Unpack[SpawnOptions]
    ) -> None:
        """
        Raises:
            OSError: no memory, or no more processes or files.
        """
        process, self.link, self._lifeline = spawn(target, arguments, **options)
        self.pid = process.pid
        self._clock = clock
        self._started_at = clock.monotonic()
        self._watcher = ExitWatcher(process)
        self.exited = self._watcher.exited
        """The exit code; minus the signal's number if a signal killed it."""

    @property
    def is_alive(self) -> bool:
        return not self.exited.done()

    @property
    def uptime(self) -> float:
        return self._clock.monotonic() - self._started_at

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process alone. Harmless when it is dead."""
        self._watcher.signal(number)

    def kill(self) -> None:
        """Kill the process and its group at once. Harmless when it is dead."""
        self._watcher.kill()

    async def wait_for_exit(self) -> int:
        """Wait until it is dead and reaped. Returns the exit code."""
        # Shielded: a cancelled waiter must not cancel the future that others wait for.
        return await asyncio.shield(self.exited)

    async def stop(self, timeout: float) -> None:
        """SIGTERM; then SIGKILL to its group after `timeout` seconds, or when this is cancelled."""
        self.signal(signal.SIGTERM)
        try:
            await asyncio.wait([self.exited], timeout=timeout)
        finally:
            self.kill()
        await asyncio.wait([self.exited], timeout=KILL_TIMEOUT)

    def read_message(self) -> str:
        """The text that it wrote to its socket before it died; empty if none."""
        self.link.setblocking(False)
        with suppress(OSError):
            return self.link.recv(MAX_MESSAGE_BYTES, socket.MSG_DONTWAIT).decode(errors="replace")
        return ""

    def close(self) -> None:
        """Close our ends of the socket and of the lifeline."""
        self.link.close()
        if self._lifeline is not None:
            self._lifeline.close()
