"""The worker processes of the demo: real ones, under a real supervisor, that can be killed and never outlive the demo.

    demo --socket--> supervisor --socket--> worker 1
                                --socket--> worker 2

`drumbeat run --processes 2` starts the same. When the demo exits, in whatever way, its end of the socket closes and the
supervisor stops its workers; the workers watch their supervisor in the same way.
"""

from __future__ import annotations

import os
import signal
import socket
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from drumbeat import appref, logs
from drumbeat.cli.failures import NotDone
from drumbeat.errors import ConfigError
from drumbeat.processes.entry import watch_parent
from drumbeat.processes.exit_codes import EXIT_CONFIG_ERROR
from drumbeat.processes.managed import ManagedProcess
from drumbeat.settings import PREFIX
from drumbeat.supervisor import Supervisor

APP = "drumbeat.cli.demo.app:app"
MAX_FOLDER_LENGTH = 50
"""Longer paths would make socket names too long for some systems."""
LEAVE_TIMEOUT = 15.0
"""Seconds for the supervisor to stop with its workers: they drain for two, and it kills them after ten more."""


def supervise(
    link: socket.socket, *, prepare: Callable[[], None], log_path: str, ref: str, flags: dict[str, Any]
) -> int:
    """The first function of the supervisor's process."""
    _isolate(log_path)
    watch_parent(link)
    settings = appref.load(ref, prepare=prepare).configure(flags)
    logs.configure(settings.log_level, settings.log_format)
    try:
        return Supervisor(ref, settings).run()
    except ConfigError as error:
        link.sendall(str(error).encode(errors="replace")[:10_000])
        return EXIT_CONFIG_ERROR


def _isolate(log_path: str) -> None:
    """Detach from the terminal, which belongs to the demo, and from the user's settings."""
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        del os.environ[name]
    folder = os.path.dirname(log_path)
    os.chdir(folder)
    if len(folder) < MAX_FOLDER_LENGTH:
        # What a killed worker leaves behind is deleted with the demo's own folder.
        tempfile.tempdir = os.environ["TMPDIR"] = folder


class DemoWorkers:
    """The workers, until `stop`. Their ids are read from the store."""

    def __init__(self, flags: Mapping[str, Any], folder: Path, *, size: int) -> None:
        self._log = folder / "workers.log"
        self.size = size
        arguments = {"log_path": str(self._log), "ref": APP, "flags": {**flags, "processes": size}}
        self._supervisor = ManagedProcess(
            "drumbeat.cli.demo.workers:supervise", arguments, label="drumbeat-demo supervisor"
        )

    async def stop(self) -> None:
        try:
            # Without their supervisor, also when this is cancelled, the workers stop by themselves.
            await self._supervisor.stop(LEAVE_TIMEOUT)
        finally:
            self._supervisor.close()

    def kill(self, pid: int) -> None:
        """SIGKILL to a worker and its group: no clean-up."""
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)

    def check(self) -> None:
        """Raise NotDone if the supervisor is dead."""
        if not self._supervisor.is_alive:
            message = self._supervisor.read_message() or self.log()[-500:] or "they say nothing"
            raise NotDone(f"the worker processes could not start: {message}")

    def log(self) -> str:
        """The output of the workers and their supervisor."""
        with suppress(FileNotFoundError):
            return self._log.read_text(errors="replace")
        return ""
