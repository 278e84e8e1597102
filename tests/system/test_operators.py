"""What operators see of real processes: probes, systemd's protocol, recycling, process 1, a read-only root."""

import http.client
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from drumbeat.app import Drumbeat
from drumbeat.clock import SYSTEM
from drumbeat.core.job import JobState
from drumbeat.processes.exit_codes import EXIT_RECYCLE
from tests.cli.command import call
from tests.servers import disks
from tests.system.workers import ROOT, Cluster, cluster_of
from tests.waiting import until, until_sync

Pair = tuple[Cluster, Drumbeat]
BRISK = {"DRUMBEAT_DEAD_AFTER": "2", "DRUMBEAT_LEADER_LEASE": "0.5"}


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    with cluster_of(tmp_path, "tests.apps.operated", monkeypatch) as pair:
        yield pair


class Probe:
    """What a kubelet does."""

    def __init__(self, cluster: Cluster) -> None:
        found = until_sync(
            lambda: re.search(r"health endpoint is open address=(\S+):(\d+)", cluster.logs()), deadline=30, what="it"
        )
        self.address = (str(found[1]), int(found[2]))

    def ask(self, path: str, method: str = "GET") -> tuple[int, Any]:
        with closing(http.client.HTTPConnection(*self.address, timeout=5)) as connection:
            connection.request(method, path)
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text.startswith(b"{") else text

    async def wait_for(self, path: str, status: int, reason: str = "") -> None:
        def told() -> bool:
            found, report = self.ask(path)
            return found == status and (not reason or any(reason in each for each in report["reasons"]))

        await until(told, deadline=30, what=f"{path} answers {status} {reason}")


async def test_probes_are_told_of_a_blocked_loop_an_absent_store_and_a_drain(pair: Pair) -> None:
    from tests.apps.operated import block, wait

    cluster, app = pair
    async with app:
        worker = cluster.start("--health", "127.0.0.1:0", **BRISK)
        probe = Probe(cluster)
        await probe.wait_for("/ready", 200)
        assert probe.ask("/live") == (200, {"live": True, "ready": True, "running": 0, "reasons": []})
        assert (probe.ask("/live", "HEAD"), probe.ask("/live", "POST")[0], probe.ask("/")[0]) == ((200, b""), 405, 404)

        await block.enqueue(str(cluster.gate()))
        await probe.wait_for("/live", 503, "the event loop has not responded")
        cluster.gate().touch()
        await probe.wait_for("/live", 200)

        with closing(sqlite3.connect(cluster.url.removeprefix("sqlite:///"), isolation_level=None)) as stranger:
            stranger.execute("BEGIN EXCLUSIVE")
            await probe.wait_for("/ready", 503, "the store has accepted no heartbeat")
            assert probe.ask("/live")[0] == 200
            stranger.rollback()
        await probe.wait_for("/ready", 200)

        taken = call("run", "tests.apps.operated:app", "--health", "{}:{}".format(*probe.address), folder=ROOT)
        assert (taken.returncode, taken.stderr.count("\n")) == (2, 1)
        assert "setting health: cannot listen on" in taken.stderr and "in use" in taken.stderr

        job = await wait.enqueue(str(cluster.gate("second")))
        cluster.wait_for("waits")
        worker.send_signal(signal.SIGTERM)
        await probe.wait_for("/ready", 503, "stopping")
        assert probe.ask("/live")[0] == 200
        cluster.gate("second").touch()
        assert worker.wait(30) == 0
        assert (await job.job()).state is JobState.SUCCEEDED


class Systemd:
    """The socket at which systemd listens, with an abstract name."""

    def __init__(self) -> None:
        self._name = f"drumbeat-test-{os.getpid()}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{self._name}")
        self._socket.setblocking(False)
        self.lines: list[str] = []
        self.environ = {"NOTIFY_SOCKET": f"@{self._name}", "WATCHDOG_USEC": "400000"}

    def heard(self, line: str) -> int:
        while True:
            try:
                self.lines += self._socket.recv(65_536).decode().splitlines()
            except BlockingIOError:
                return self.lines.count(line)

    def close(self) -> None:
        self._socket.close()


async def test_systemd_hears_of_ready_stopping_and_only_of_a_healthy_service_by_its_watchdog(pair: Pair) -> None:
    from tests.apps.operated import variables

    cluster, app = pair
    file = cluster.gate("health")
    async with app:
        with closing(Systemd()) as systemd:
            supervisor = cluster.start("--processes", "2", "--health", str(file), **BRISK, **systemd.environ)
            await until(lambda: systemd.heard("READY=1"), deadline=30, what="READY=1")
            assert json.loads(file.read_text())["ready"]
            assert await (await variables.enqueue()).result(timeout=30) == []
            await until(lambda: systemd.heard("WATCHDOG=1") >= 3, what="the watchdog to be fed")

            victim = next(each.pid for each in await app.instances.list())
            os.kill(victim, signal.SIGSTOP)
            await until(
                lambda: systemd.heard("") == 0 and any("no report for" in each for each in systemd.lines),
                deadline=30,
                what="a worker process that is silent",
            )
            fed = systemd.heard("WATCHDOG=1")
            age = file.stat().st_mtime_ns
            end = SYSTEM.monotonic() + 1.0  # two feeds, and one new file
            until_sync(lambda: SYSTEM.monotonic() > end)
            assert (systemd.heard("WATCHDOG=1"), file.stat().st_mtime_ns) == (fed, age)
            os.kill(victim, signal.SIGCONT)
            await until(lambda: systemd.heard("WATCHDOG=1") > fed, deadline=30, what="the watchdog to be fed again")

            supervisor.send_signal(signal.SIGTERM)
            assert supervisor.wait(30) == 0
            assert (systemd.heard("READY=1"), systemd.heard("STOPPING=1")) == (1, 1)
    assert not file.exists()


async def test_a_worker_is_recycled_after_its_jobs_or_for_its_memory_and_nothing_is_charged(pair: Pair) -> None:
    from tests.apps.operated import note, take_memory

    cluster, app = pair
    async with app:
        jobs = await app.enqueue_many([note.bind(number) for number in range(30)])
        alone = cluster.start("--max-jobs", "10", "--concurrency", "2")
        assert alone.wait(30) == EXIT_RECYCLE, cluster.logs()
        begun = [record for record in await app.jobs.list(limit=100) if record.state is not JobState.PENDING]
        assert [record.state for record in begun] == [JobState.SUCCEEDED] * 10

        supervisor = cluster.start("--processes", "2", "--max-memory", "200MB", "--drain", "5")
        assert [await job.result(timeout=60) for job in jobs].count(alone.pid) == 10
        large = await take_memory.enqueue(300)
        first = await large.result(timeout=60)
        await until(lambda: "MB are in use" in cluster.logs(), deadline=30, what="a worker that is recycled")
        again = [await (await note.enqueue(number)).result(timeout=60) for number in range(4)]
        assert first not in again
        supervisor.send_signal(signal.SIGTERM)
        assert supervisor.wait(30) == 0, cluster.logs()
        assert {(record.state, record.failures, record.crashes) for record in await app.jobs.list(limit=100)} == {
            (JobState.SUCCEEDED, 0, 0)
        }, cluster.logs()
    assert "worker process died" not in cluster.logs()


INIT = """
import ctypes, sys
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER: orphans come to us, as to process 1
from drumbeat.processes import init
init.fork_under_init()
from drumbeat.cli import main
main()
"""


def is_known(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.skipif(not Path("/proc").exists(), reason="only Linux hands orphans to whom they are not born to")
async def test_process_1_reaps_orphans_passes_signals_on_and_exits_as_its_program(pair: Pair) -> None:
    from tests.apps.operated import leave_orphan

    cluster, app = pair
    async with app:
        process = subprocess.Popen(
            [sys.executable, "-c", INIT, "run", "tests.apps.operated:app", "--log-level", "debug"],
            cwd=ROOT,
            env=os.environ | {"DRUMBEAT_URL": cluster.url},
            stderr=subprocess.PIPE,
        )
        try:
            orphan = await (await leave_orphan.enqueue()).result(timeout=30)
            await until(lambda: not is_known(orphan), what="the orphan to be reaped")
            [worker] = await app.instances.list()
            assert worker.pid != process.pid
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
            assert not is_known(worker.pid)
        finally:
            if process.poll() is None:
                process.terminate()  # passed on
                process.wait(30)
            process.communicate()


READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,bind,ro / && cd / && shift && exec "$@"'


@pytest.mark.skipif(disks.find_obstacle() is not None, reason="this process may not mount")
async def test_a_read_only_root_file_system_is_enough_but_for_the_store_and_shared_memory(pair: Pair) -> None:
    """Neither /tmp nor the program's folder can be written; the file of SQLite lies on a mount of its own."""
    from tests.apps.operated import note

    cluster, app = pair
    async with app:
        jobs = await app.enqueue_many([note.bind(number) for number in range(20)])
        command = [sys.executable, "-m", "drumbeat", "run", "tests.apps.operated:app", "--processes", "2", "--burst"]
        environ = {name: value for name, value in os.environ.items() if name not in ("TMPDIR", "TEMP", "TMP")}
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", READ_ONLY, "sh", str(cluster.folder), *command],
            env=environ | {"DRUMBEAT_URL": cluster.url, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert [(await job.job()).state for job in jobs] == [JobState.SUCCEEDED] * 20
