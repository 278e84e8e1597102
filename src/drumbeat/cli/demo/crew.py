"""The worker processes of the demo: two real ones, that can be killed, and that never outlive the demo.

Each hangs on a socket to this process and drains when that is closed, however this process ends; nothing else holds them
together, so the death of one is found by the other, by its missing heartbeat.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from drumbeat.cli.failures import NotDone
from drumbeat.settings import PREFIX
from drumbeat.spawn import Spawned, Watch, spawn
from drumbeat.worker import supervised

APP = "drumbeat.cli.demo.app:app"
LONGEST_FOLDER = 50
"""In a longer one, the names of sockets would be too long for some systems."""
GOODBYE = 5.0
"""Seconds for a worker to leave by itself."""


def work(link: socket.socket, *, prepare: Callable[[], None], log_path: str, **arguments: Any) -> int:
    """The first function of a worker process: what it prints and logs goes to a file, the screen belongs to the demo."""
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    # The demo is about itself: neither a setting of the user's environment nor a .env of the folder has a say.
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        del os.environ[name]
    folder = os.path.dirname(log_path)
    os.chdir(folder)
    if len(folder) < LONGEST_FOLDER:
        # What a killed worker leaves behind goes away with the demo's own folder.
        tempfile.tempdir = os.environ["TMPDIR"] = folder
    return supervised.main(link, prepare=prepare, **arguments)


class Crew:
    """`async with Crew(...)`: the workers live inside it."""

    def __init__(self, flags: Mapping[str, Any], folder: Path, *, size: int) -> None:
        self._flags = flags
        self._folder = folder
        self._size = size
        self._workers: dict[int, tuple[Watch, Spawned]] = {}

    async def __aenter__(self) -> Self:
        try:
            for number in range(self._size):
                self._start(number)
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    @property
    def pids(self) -> list[int]:
        """Those that live."""
        return [pid for pid, (watch, _) in self._workers.items() if watch.is_alive]

    async def kill(self, pid: int) -> None:
        """SIGKILL: no goodbye, no clean-up. Returns when it is dead."""
        watch, _ = self._workers[pid]
        watch.kill()
        await asyncio.shield(watch.exited)

    def check(self) -> None:
        """Refuse to go on if a worker has ended by itself."""
        for watch, spawned in self._workers.values():
            if not watch.is_alive:
                spawned.link.setblocking(False)
                said = ""
                with suppress(BlockingIOError):
                    said = spawned.link.recv(10_000).decode(errors="replace")
                raise NotDone(f"a worker process could not start: {said or self.log()[-500:] or 'it says nothing'}")

    def log(self) -> str:
        """What the workers had to say."""
        return "".join(path.read_text(errors="replace") for path in sorted(self._folder.glob("worker-*.log")))

    def _start(self, number: int) -> None:
        marks = self._folder / f"worker-{number}.marks"
        arguments = {
            "log_path": str(self._folder / f"worker-{number}.log"),
            "ref": APP,
            "flags": dict(self._flags),
            "marks_path": str(marks),
        }
        spawned = spawn("drumbeat.cli.demo.crew:work", arguments, label=f"drumbeat-demo worker {number + 1}")
        self._workers[spawned.process.pid] = Watch(spawned.process), spawned

    async def _end(self) -> None:
        for watch, _ in self._workers.values():
            watch.signal(signal.SIGTERM)
        leaving = [watch.exited for watch, _ in self._workers.values()]
        if leaving:
            # Also when this task is being cancelled a second time, nobody stays behind.
            try:
                await asyncio.wait(leaving, timeout=GOODBYE)
            finally:
                for watch, spawned in self._workers.values():
                    watch.kill()
                    spawned.link.close()
                    spawned.lifeline.close()
