"""The store goes away under real processes: they stop on request, log why they exit, and start when it is back."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drumbeat.processes.exit_codes import EXIT_NO_STORE
from drumbeat.supervisor import SIGNAL_DEBOUNCE_SECONDS
from tests.apps import journal
from tests.cli.command import build_environment
from tests.system.stores import GONE, HUNG, OwnStore, own_store
from tests.waiting import until_sync, within

ROOT = Path(__file__).parents[2]
PROGRAM = "tests.apps.enduring:app"
SOON = 5.0
FULL = bool(os.environ.get("DRUMBEAT_FULL"))
QUICK = {"DRUMBEAT_HEARTBEAT": "0.1", "DRUMBEAT_DEAD_AFTER": "1", "DRUMBEAT_POLL": "0.2"}


class Process:
    """`drumbeat run` of tests.apps.enduring."""

    _drumbeat = (sys.executable, "-m", "drumbeat")

    def __init__(self, folder: Path, url: str, *flags: str, **environ: str) -> None:
        self._log = folder / "log"
        self._journal = folder / "journal"
        self.gate = folder / "gate"
        own = QUICK | {"DRUMBEAT_URL": url, journal.FILE: str(self._journal), "TMPDIR": str(folder)}
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*self._drumbeat, "run", PROGRAM, *flags],
                cwd=ROOT,
                env=build_environment(**own | environ),
                stdout=log,
                stderr=log,
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def wait_for(self, text: str, *, times: int = 1, deadline: float = 20) -> None:
        until_sync(lambda: self.log.count(text) >= times, deadline=deadline, what=f"{text!r} in the log")

    def wait_for_event(self, event: str) -> int:
        """The process in which it happened."""
        return until_sync(lambda: journal.read(self._journal, event), deadline=20, what=event)[0].pid  # type: ignore[no-any-return]

    def enqueue(self, url: str) -> str:
        done = subprocess.run(
            [*self._drumbeat, "enqueue", "endure", f"gate={self.gate}", "--app", PROGRAM, "--url", url],
            cwd=ROOT,
            env=build_environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()[-1]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def ended(self, deadline: float = 20) -> int:
        until_sync(lambda: self.process.poll() is not None, deadline=deadline, what="the end of the process")
        code: int = self.process.returncode
        return code


Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Process] = []

    def start(url: str, *flags: str, **environ: str) -> Process:
        started.append(Process(tmp_path, url, *flags, **environ))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()
        for pid in map(int, re.findall(r"worker process started .*pid=(\d+)", each.log)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        sys.stdout.write(each.log)


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OwnStore]:
    with own_store(request.param, tmp_path) as store:
        yield store


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("store", [*GONE, *HUNG], indirect=True)
def test_a_second_sigterm_ends_a_worker_whose_store_is_away(store: OwnStore, start: Start) -> None:
    worker = start(store.url)
    worker.enqueue(store.url)
    worker.wait_for_event("begun")
    store.go_away()
    worker.signal(signal.SIGTERM)
    worker.wait_for("draining")
    with within(SOON):
        worker.signal(signal.SIGTERM)
        code = worker.ended()
    assert code == EXIT_NO_STORE
    assert "Traceback" not in worker.log
    assert "exits with unreported outcomes" in worker.log or "exits by force" in worker.log


@pytest.mark.parametrize("store", ["redis hung"], indirect=True)
def test_a_second_sigterm_ends_a_supervisor_and_its_workers_too(store: OwnStore, start: Start) -> None:
    supervisor = start(store.url, "--processes", "2")
    supervisor.enqueue(store.url)
    worker = supervisor.wait_for_event("begun")
    store.go_away()
    supervisor.signal(signal.SIGTERM)
    supervisor.wait_for("draining")
    asked_at = time.monotonic()
    until_sync(
        lambda: time.monotonic() > asked_at + SIGNAL_DEBOUNCE_SECONDS
    )  # so soon it would be the first said twice
    with within(SOON):
        supervisor.signal(signal.SIGTERM)
        supervisor.ended()
    assert not is_alive(worker)
    assert "Traceback" not in supervisor.log


@pytest.mark.parametrize("store", ["redis gone", *(["postgres hung"] if FULL else [])], indirect=True)
def test_the_workers_of_a_killed_supervisor_leave_though_the_store_is_away(store: OwnStore, start: Start) -> None:
    supervisor = start(store.url, "--processes", "2", "--drain", "0.5")
    supervisor.enqueue(store.url)
    worker = supervisor.wait_for_event("begun")
    store.go_away()
    supervisor.signal(signal.SIGKILL)
    supervisor.ended()
    with within(0.5 + 10 + SOON):
        until_sync(lambda: not is_alive(worker), deadline=40, what="the end of the orphan")
    assert "Traceback" not in supervisor.log


@pytest.mark.parametrize("store", [*GONE, *(HUNG if FULL else [])], indirect=True)
def test_an_idle_worker_leaves_a_store_that_stays_away_with_75_and_the_reason(store: OwnStore, start: Start) -> None:
    worker = start(store.url, DRUMBEAT_MAX_FAILED_BEATS="3")
    worker.wait_for("new leader")
    store.go_away()
    assert worker.ended(40) == EXIT_NO_STORE
    log = worker.log
    [said] = [line for line in log.splitlines() if "the store has accepted no heartbeat for long" in line]
    assert "failures=" in said and "reason=" in said
    [left] = [line for line in log.splitlines() if "this worker exits" in line]
    assert "the store has been away for too long and nothing runs" in left and "exit_code=75" in left
    assert "Traceback" not in log


@pytest.mark.parametrize(
    ("store", "processes"), [(how, "1") for how in GONE] + [("redis gone", "2")], indirect=["store"]
)
def test_a_worker_that_starts_while_the_store_is_away_waits_and_starts_when_it_is_back(
    store: OwnStore, start: Start, processes: str
) -> None:
    store.go_away()
    worker = start(store.url, "--processes", processes, DRUMBEAT_MAX_FAILED_BEATS="1000")
    worker.wait_for("the store does not answer; trying again")
    assert worker.is_alive
    store.come_back()
    worker.enqueue(store.url)
    worker.gate.touch()
    worker.wait_for_event("ended")
    worker.signal(signal.SIGTERM)
    assert worker.ended() == 0
    assert worker.log.count("the store does not answer; trying again") == 1
    assert "Traceback" not in worker.log


@pytest.mark.parametrize("store", ["redis gone", "postgres gone"], indirect=True)
def test_a_worker_that_finds_no_store_for_long_leaves_with_75_and_one_line(store: OwnStore, start: Start) -> None:
    store.go_away()
    worker = start(store.url, DRUMBEAT_MAX_FAILED_BEATS="3")
    assert worker.ended(40) == EXIT_NO_STORE
    lines = worker.log.splitlines()
    assert [line for line in lines if "the store does not answer; trying again" in line]
    assert "the store has been away for too long" in lines[-1] and "exit_code=75" in lines[-1]
    assert "Traceback" not in worker.log and len(lines) <= 3


@pytest.mark.parametrize("store", ["redis hung"], indirect=True)
def test_a_worker_that_waits_for_its_store_stops_on_request(store: OwnStore, start: Start) -> None:
    store.go_away()
    worker = start(store.url)
    worker.wait_for("the store does not answer; trying again", deadline=60)
    with within(SOON):
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0


def test_a_wrong_address_is_reported_at_once(tmp_path: Path, start: Start) -> None:
    worker = start(f"sqlite:///{tmp_path}/nowhere/jobs.db")
    assert worker.ended() == 2
    assert worker.log.count("\n") == 1 and "does not exist" in worker.log
