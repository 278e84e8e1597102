"""The processes of one measure: producers, which answer in JSON, and workers, whose CPU time and memory are read.

A worker's children are counted with it: a supervisor that sleeps is not an idle worker.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.apps import FOLDER_NAME
from bench.contender import Contender
from bench.ledger import ENVIRONMENT_NAME, Ledger
from bench.sites import Site

ROOT = Path(__file__).resolve().parent.parent
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


SOURCE_NAME = "DRUMBEAT_BENCH_SOURCE"
"""Where producers and workers find the package that is measured, if it is not the installed one: see bench/pairs.py."""


def python_path() -> str:
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get(SOURCE_NAME), os.environ.get("PYTHONPATH")]))


class ChildFailed(Exception):
    """A producer or a worker ended in a way that it should not have."""


class MeasureSetup:
    """A fresh folder with a fresh ledger: where one contender does one measure."""

    def __init__(self, contender: Contender, folder: Path, slots: int, environment: dict[str, str]) -> None:
        self.contender = contender
        self.folder = folder
        self._producers: list[ProducerProcess] = []
        path = folder / "ledger"
        self.ledger = Ledger.create(path, slots)
        self.environment = {
            **os.environ,
            "PYTHONPATH": python_path(),
            FOLDER_NAME: str(folder),
            ENVIRONMENT_NAME: str(path),
            **environment,
        }

    def produce(self, operation: str, **arguments: Any) -> Any:
        return self.begin(operation, **arguments).answer()

    def begin(self, operation: str, **arguments: Any) -> "ProducerProcess":
        """A producer that has imported and opened everything, and has been told to go."""
        who = [self.contender.engine, self.contender.name]
        command = [sys.executable, "-m", "bench.producer", *who, operation, json.dumps(arguments)]
        errors = self.folder / f"{operation}.stderr"
        process = self._start(command, errors, {}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._producers.append(ProducerProcess(process, errors))
        return self._producers[-1]

    def end_producers(self) -> None:
        """Those who wait for what will not come: the measure was broken off."""
        for producer in self._producers:
            producer.end()

    @contextmanager
    def worker(self, *, environment: dict[str, str] | None = None, **how: Any) -> Iterator["Worker"]:
        """A worker process; `how` is what the contender's `worker_command` takes."""
        command = self.contender.worker_command(**how)
        with self._run_worker(command, "worker", environment or {}) as worker:
            yield worker

    @contextmanager
    def scheduler(self) -> Iterator[None]:
        """What the library wants beside its worker for jobs of the future, if it wants anything."""
        command = self.contender.scheduler_command()
        if command is None:
            yield
        else:
            with self._run_worker(command, "scheduler", {}):
                yield

    @contextmanager
    def _run_worker(self, command: list[str], name: str, environment: dict[str, str]) -> Iterator["Worker"]:
        errors = self.folder / f"{name}.stderr"
        quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        worker = Worker(name, self._start(command, errors, environment, **quiet), errors)
        try:
            yield worker
            worker.check()
        except ChildFailed:
            # A producer waits in vain for a worker that is gone: that it is gone says more.
            worker.check()
            raise
        finally:
            worker.stop()

    def _start(
        self, command: list[str], errors: Path, environment: dict[str, str], **streams: Any
    ) -> subprocess.Popen[str]:
        return start_process(command, errors, self.environment | environment, **streams)


def start_process(
    command: list[str], errors: Path, environment: dict[str, str], **streams: Any
) -> subprocess.Popen[str]:
    """A process of the bench; what it has to complain about goes to that file."""
    with errors.open("ab") as stderr:
        # A session of its own: a stop reaches the worker's children too.
        return subprocess.Popen(
            command, env=environment, cwd=ROOT, stderr=stderr, text=True, start_new_session=True, **streams
        )


@contextmanager
def measure_setup(contender: Contender, slots: int, site: Site) -> Iterator[MeasureSetup]:
    with tempfile.TemporaryDirectory(prefix="drumbeat-bench-", dir=site.parent, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with site.prepare(contender, folder) as environment:
            place = MeasureSetup(contender, folder, slots, environment)
            try:
                yield place
            finally:
                place.end_producers()


class ProducerProcess:
    def __init__(self, process: subprocess.Popen[str], errors: Path) -> None:
        self._process = process
        self._errors = errors
        assert process.stdin is not None and process.stdout is not None
        self._read = process.stdout
        # Lines before "ready" are a library's greeting.
        while line := self._read.readline():
            if line.strip() == "ready":
                break
        else:
            self._fail()
        process.stdin.write("go\n")
        process.stdin.close()

    def answer(self) -> Any:
        last = ""
        for line in self._read:
            last = line.strip() or last
        if self._process.wait() != 0:
            self._fail()
        return json.loads(last)

    def end(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _fail(self) -> None:
        self._process.wait()
        raise ChildFailed(f"producer: {tail(self._errors)}")


class Worker:
    def __init__(self, name: str, process: subprocess.Popen[str], errors: Path) -> None:
        self._name = name
        self._process = process
        self._errors = errors
        self._asked = False

    def check(self) -> None:
        if self._process.poll() is not None and not self._asked:
            raise ChildFailed(f"{self._name} left with {self._process.returncode}: {tail(self._errors)}")

    def cpu_seconds(self) -> float:
        return sum(cpu_ticks(pid) for pid in family(self._process.pid)) / TICKS_PER_SECOND

    def resident_mb(self) -> float:
        return sum(resident_kb(pid) for pid in family(self._process.pid)) / 1024

    def ask_to_stop(self) -> None:
        """Without waiting for it: of several processes each may end while the others do."""
        if self._process.poll() is None and not self._asked:
            self._asked = True
            self._process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        self.ask_to_stop()
        if self._process.poll() is None:
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                pass
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()


def tail(path: Path) -> str:
    """The last line of what a process said: of a traceback, the error. One line, because it is shown under the table."""
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no message"


def family(pid: int) -> list[int]:
    members = [pid]
    for member in members:
        for task in Path(f"/proc/{member}/task").glob("*/children"):
            members += [int(child) for child in task.read_text().split()]
    return members


def cpu_ticks(pid: int, *, ended_children: bool = False) -> int:
    # The second field is a command name that may hold spaces: count from its closing bracket.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11 : 15 if ended_children else 13])


def resident_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0
