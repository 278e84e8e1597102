"""Real worker processes for tests: started with the command that users type, ended with real signals."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from drumbeat.app import Drumbeat
from tests.apps import journal
from tests.waiting import until_sync

ROOT = Path(__file__).parents[2]
QUICK = {"DRUMBEAT_HEARTBEAT": "0.1", "DRUMBEAT_DEAD_AFTER": "1", "DRUMBEAT_POLL": "0.2", "DRUMBEAT_LOG_LEVEL": "debug"}


class Cluster:
    """Worker processes on one store, and the journal of what their handlers did."""

    def __init__(self, folder: Path, program: str) -> None:
        self.folder = folder
        self.program = program
        self.journal = folder / "journal"
        self.url = f"sqlite:///{folder}/jobs.db"
        self._started: list[subprocess.Popen[bytes]] = []
        self._number = 0

    def start(self, *flags: str, **environ: str) -> "subprocess.Popen[bytes]":
        self._number += 1
        log = (self.folder / f"worker-{self._number}.log").open("wb")
        process = subprocess.Popen(
            [sys.executable, "-m", "drumbeat", "run", f"{self.program}:app", *flags],
            cwd=ROOT,
            env=os.environ | QUICK | {"DRUMBEAT_URL": self.url, journal.FILE: str(self.journal)} | environ,
            stdout=log,
            stderr=log,
        )
        log.close()
        self._started.append(process)
        return process

    def gate(self, name: str = "gate") -> Path:
        return self.folder / name

    def entries(self, event: str | None = None) -> list[journal.Entry]:
        return journal.read(self.journal, event)

    def wait_for(self, event: str, count: int = 1, deadline: float = 20.0) -> list[journal.Entry]:
        until_sync(
            lambda: len(self.entries(event)) >= count, what=f"{count} x {event}\n{self.logs()}", deadline=deadline
        )
        return self.entries(event)

    def logs(self) -> str:
        return "\n".join(
            f"--- {log.name}\n{log.read_text()[-4000:]}" for log in sorted(self.folder.glob("worker-*.log"))
        )

    def end(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait(10)


@contextmanager
def cluster_of(
    folder: Path, program: str, monkeypatch: pytest.MonkeyPatch, *, url: str | None = None
) -> Iterator[tuple[Cluster, Drumbeat]]:
    """A cluster, and the program's own app in this process, as a client of the same store: a file, if none is named."""
    cluster = Cluster(folder, program)
    cluster.url = url or cluster.url
    monkeypatch.setenv("DRUMBEAT_URL", cluster.url)
    monkeypatch.setenv(journal.FILE, str(cluster.journal))
    module = __import__(program, fromlist=["app"])
    app: Drumbeat = module.app
    app.configure({"url": cluster.url})
    try:
        yield cluster, app
    finally:
        cluster.end()
