"""The processes of a chaos run: started with the commands that users type, and again whenever they end."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.chaos import journal
from tests.chaos.timelines import CHILD, SUPERVISED, WORKER

ROOT = Path(__file__).parents[2]
PROGRAM = "tests.chaos.program:app"
Command = list[str]


def _worker(*flags: str) -> Command:
    return [sys.executable, "-m", "drumbeat", "run", PROGRAM, *flags]


def _client(kind: str) -> Command:
    return [sys.executable, "-m", "tests.chaos.clients", kind]


SMALL = {
    "worker-1": _worker(),
    "supervised-1": _worker("--processes", "2"),
    "clients-1": _client("all"),  # each Python takes most of a second of CPU to start
}
WHOLE = {
    "worker-1": _worker("--role", "worker"),
    "worker-2": _worker(),
    "supervised-1": _worker("--processes", "2"),
    "controller-1": _worker("--role", "controller"),
    "controller-2": _worker("--role", "controller"),
    "bulk-1": _client("bulk"),
    "bulk-2": _client("bulk"),
    "single-1": _client("single"),
    "single-2": _client("single"),
    "locks-1": _client("locks"),
    "locks-2": _client("locks"),
    "operator-1": _client("operator"),
}
SERVING = ("worker", "supervised", "controller")


class ChaosProcess:
    """A process with a name, in one of its lives."""

    def __init__(self, name: str, command: Command, folder: Path, environment: dict[str, str]) -> None:
        self.name = name
        self._command = command
        self.log = folder / f"{name}.log"
        self._environment = environment
        self._lives = 0
        self.is_stopped = self.is_terminated = False
        self.start()

    @property
    def node(self) -> str:
        return f"{self.name}.{self._lives}"

    @property
    def is_serving(self) -> bool:
        return self.name.startswith(SERVING)

    @property
    def is_supervisor(self) -> bool:
        return self.name.startswith("supervised")

    @property
    def code(self) -> int | None:
        return self.process.poll()

    def start(self) -> None:
        self._lives += 1
        self.is_stopped = self.is_terminated = False
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            self.process = subprocess.Popen(
                self._command,
                cwd=ROOT,
                env=os.environ | self._environment | {journal.NODE: self.node},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def read_log(self) -> bytes:
        """What it has written in this life."""
        return self.log.read_bytes()[self._log_start :]

    def signal(self, number: int) -> None:
        """To it and all that it has started."""
        for pid in [self.process.pid, *self.descendants()]:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        self.is_stopped = number == signal.SIGSTOP

    def descendants(self) -> list[int]:
        return _descendants(self.process.pid)

    def workers(self) -> list[int]:
        """Its processes that run jobs."""
        if self.name.startswith("supervised"):
            return _children(self.process.pid)
        return [self.process.pid] if self.name.startswith("worker") else []

    def describe(self, pid: int) -> str:
        """What this process of it is."""
        if pid == self.process.pid:
            return WORKER
        return SUPERVISED if pid in self.workers() else CHILD

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait(60)

    def terminate(self) -> None:
        if self.is_stopped:
            self.signal(signal.SIGCONT)
        self.is_terminated = True
        self.process.terminate()


def _descendants(pid: int) -> list[int]:
    return [each for child in _children(pid) for each in (child, *_descendants(child))]


def _children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
