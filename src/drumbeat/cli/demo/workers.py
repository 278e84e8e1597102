"""The worker processes of the demo: real ones, under a real supervisor, that can be killed, and that never outlive the demo.

    demo --socket--> supervisor --socket--> worker 1
                                --socket--> worker 2

It is what `drumbeat run --processes 2` starts. The supervisor hangs on a socket to this process and stops its workers when
that is closed, however this process ends; they hang on it in the same way.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from drumbeat import appref, logs
from drumbeat.cli.failures import NotDone
from drumbeat.errors import ConfigError
from drumbeat.settings import PREFIX
from drumbeat.spawn import ExitWatcher, Spawned, spawn
from drumbeat.supervisor import Supervisor

APP = "drumbeat.cli.demo.app:app"
MAX_FOLDER_LENGTH = 50
"""In a longer one, the names of sockets would be too long for some systems."""
LEAVE_TIMEOUT = 15.0
"""Seconds for the supervisor to leave by itself, with its workers: they drain for two, and it kills them after ten more."""


def supervise(
    link: socket.socket, *, prepare: Callable[[], None], log_path: str, ref: str, flags: dict[str, Any]
) -> int:
    """The first function of the supervisor's process."""
    _isolate(log_path)
    threading.Thread(target=_exit_when_orphaned, args=[link], name="drumbeat-lifeline", daemon=True).start()
    settings = appref.load(ref, prepare=prepare).configure(flags)
    logs.configure(settings.log_level, settings.log_format)
    try:
        return Supervisor(ref, settings).run()
    except ConfigError as error:
        link.sendall(str(error).encode(errors="replace")[:10_000])
        return 2


def _isolate(log_path: str) -> None:
    """From the terminal, which belongs to the demo, and from whatever the user has set: the demo is about itself."""
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        del os.environ[name]
    folder = os.path.dirname(log_path)
    os.chdir(folder)
    if len(folder) < MAX_FOLDER_LENGTH:
        # What a killed worker leaves behind goes away with the demo's own folder.
        tempfile.tempdir = os.environ["TMPDIR"] = folder


def _exit_when_orphaned(link: socket.socket) -> None:
    with suppress(OSError):
        while link.recv(1):
            pass
    os.kill(os.getpid(), signal.SIGTERM)


class DemoWorkers:
    """`async with Crew(...)`: the workers live inside it. Who they are is known from the store, as everywhere."""

    def __init__(self, flags: Mapping[str, Any], folder: Path, *, size: int) -> None:
        self._flags = dict(flags) | {"processes": size}
        self._log = folder / "workers.log"
        self.size = size

    async def __aenter__(self) -> Self:
        arguments = {"log_path": str(self._log), "ref": APP, "flags": self._flags}
        self._spawned: Spawned = spawn(
            "drumbeat.cli.demo.workers:supervise", arguments, label="drumbeat-demo supervisor"
        )
        self._watch = ExitWatcher(self._spawned.process)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watch.signal(signal.SIGTERM)
        try:
            await asyncio.wait([self._watch.exited], timeout=LEAVE_TIMEOUT)
        finally:
            # Also when this task is cancelled: without their supervisor, the workers leave by themselves.
            self._watch.kill()
            self._spawned.link.close()
            self._spawned.lifeline.close()

    def kill(self, pid: int) -> None:
        """SIGKILL to a worker and all that it has started: no goodbye, no clean-up."""
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)

    def check(self) -> None:
        """Refuse to go on if there is nobody who could start workers."""
        if self._watch.is_alive:
            return
        self._spawned.link.setblocking(False)
        said = ""
        with suppress(BlockingIOError):
            said = self._spawned.link.recv(10_000).decode(errors="replace")
        raise NotDone(f"the worker processes could not start: {said or self.log()[-500:] or 'they say nothing'}")

    def log(self) -> str:
        """What the workers and their supervisor had to say."""
        with suppress(FileNotFoundError):
            return self._log.read_text(errors="replace")
        return ""
