"""The worker processes of the demo: two real ones, that can be killed, and that never outlive the demo.

Each hangs on a socket to this process and drains when that is closed, however this process ends; nothing else holds them
together, so the death of one is found by the other, by its missing heartbeat.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from drumbeat.spawn import Watch, spawn
from drumbeat.worker import supervised

APP = "drumbeat.cli.demo.app:app"
GOODBYE = 5.0
"""Seconds for a worker to leave by itself."""


def work(link: socket.socket, *, prepare: Callable[[], None], log_path: str, **arguments: Any) -> int:
    """The first function of a worker process: what it prints and logs goes to a file, the screen belongs to the demo."""
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    return supervised.main(link, prepare=prepare, **arguments)


class Crew:
    """`async with Crew(...)`: the workers live inside it."""

    def __init__(self, flags: Mapping[str, Any], folder: Path, *, size: int) -> None:
        self._flags = flags
        self._folder = folder
        self._size = size
        self._workers: dict[int, tuple[Watch, socket.socket]] = {}

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
        process, link = spawn("drumbeat.cli.demo.crew:work", arguments, label=f"drumbeat-demo worker {number + 1}")
        self._workers[process.pid] = Watch(process), link

    async def _end(self) -> None:
        for watch, _ in self._workers.values():
            watch.signal(signal.SIGTERM)
        leaving = [watch.exited for watch, _ in self._workers.values()]
        if leaving:
            # Also when this task is being cancelled a second time, nobody stays behind.
            try:
                await asyncio.wait(leaving, timeout=GOODBYE)
            finally:
                for watch, link in self._workers.values():
                    watch.kill()
                    link.close()
