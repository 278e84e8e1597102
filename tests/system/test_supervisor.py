"""Several worker processes under a supervisor, with real signals; what handlers did is read from a ledger of their own."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from drumbeat.app import Drumbeat
from drumbeat.core.instance import InstanceState
from drumbeat.core.job import CancelAnswer, JobState, OutcomeKind
from drumbeat.errors import JobCancelled, JobFailed, JobTimedOut
from drumbeat.processes.exit_codes import EXIT_NO_STORE, EXIT_OK, EXIT_REPLACE
from drumbeat.supervisor import RestartBackoff
from tests.system.workers import Cluster as Programs
from tests.waiting import until, until_sync, within

SCRIPT = Path(__file__).parents[1] / "apps" / "cluster.py"


class Cluster:
    """A supervisor with two worker processes, and an app to talk to them."""

    def __init__(self, folder: Path, **environ: str) -> None:
        self.folder = folder
        self.ledger = folder / "ledger"
        self.log = folder / "log"
        self.url = f"sqlite:///{folder / 'jobs.db'}"
        self.ledger.touch()
        # A supervisor that is killed leaves its temporary folder: among the test's own.
        own = {"DRUMBEAT_URL": self.url, "TEST_LEDGER": str(self.ledger), "TMPDIR": str(folder)}
        environ = {**os.environ, **own, **environ}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, SCRIPT], stdout=log, stderr=log, cwd=SCRIPT.parents[2], env=environ
            )

    def told(self, *words: str) -> list[int]:
        """The ids of the processes that wrote these words."""
        lines = [line.rpartition(" ") for line in self.ledger.read_text().splitlines()]
        return [int(pid) for text, _, pid in lines if text == " ".join(words)]

    async def heard(self, *words: str, times: int = 1) -> int:
        """Wait until these words are in the ledger so often; the process that wrote them last."""
        await until(lambda: len(self.told(*words)) >= times, deadline=20, what=f"{words} in the ledger")
        return self.told(*words)[-1]

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def leave(self, deadline: float = 20) -> int:
        """Wait for the supervisor's end; its exit code."""
        until_sync(lambda: self.process.poll() is not None, deadline=deadline, what="the supervisor's end")
        return self.process.returncode

    def workers(self) -> list[int]:
        """The worker processes that live now, by the list of processes."""
        return [pid for pid in set(self.told("open")) if is_alive(pid)]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


Start = Callable[..., Cluster]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    clusters: list[Cluster] = []

    def start(**environ: str) -> Cluster:
        clusters.append(Cluster(tmp_path, **environ))
        return clusters[-1]

    yield start
    for cluster in clusters:
        cluster.process.kill()
        cluster.process.wait()
        for pid in cluster.workers():
            os.kill(pid, signal.SIGKILL)
        sys.stdout.write(cluster.log.read_text())


@pytest_asyncio.fixture
async def app(start: Start, tmp_path: Path) -> AsyncIterator[Drumbeat]:
    """The same program, as a client."""
    from tests.apps.cluster import app

    app.configure({"url": f"sqlite:///{tmp_path / 'jobs.db'}"})
    async with app:
        yield app


async def test_a_job_that_kills_its_process_is_a_dead_letter_and_its_neighbours_all_finish(
    start: Start, app: Drumbeat
) -> None:
    from tests.apps.cluster import poison, quick

    cluster = start()
    async with asyncio.timeout(30):
        neighbours = await app.enqueue_many([quick.bind(number) for number in range(100)])
        killer = await poison.enqueue()
        neighbours += await app.enqueue_many([quick.bind(number) for number in range(100, 200)])
        assert [await job.result() for job in neighbours] == list(range(200))
        with pytest.raises(JobFailed, match="the process running this job died: SIGKILL"):
            await killer.result()
    job = await killer.job()
    assert (job.state, job.crashes, job.failures) == (JobState.DEAD, 3, 0)
    # Once in a worker, which took its innocent neighbours down; then alone, which harmed nobody.
    assert len(cluster.told("poison", "begin")) == 3
    assert len(cluster.told("open")) >= 4


async def test_a_suspect_is_not_taken_into_a_batch_again(start: Start, app: Drumbeat) -> None:
    from tests.apps.cluster import bulk

    cluster = start()
    values = ["fine"] * 15 + ["poison"] + ["fine"] * 15
    jobs = await app.enqueue_many([bulk.bind(value) for value in values])
    async with asyncio.timeout(40):
        killer = jobs.pop(15)
        with pytest.raises(JobFailed, match="the process running this job died: SIGKILL"):
            await killer.result()
        assert [await job.result() for job in jobs] == ["FINE"] * 30
    assert (await killer.job()).crashes == 3
    assert len(cluster.told("bulk", "poison")) == 3


async def test_every_call_of_a_batch_in_processes_is_made(start: Start, app: Drumbeat) -> None:
    from tests.apps.cluster import bulk_apart

    start()
    jobs = await app.enqueue_many([bulk_apart.bind(number) for number in range(30)])
    async with asyncio.timeout(30):
        assert [await job.result() for job in jobs] == [2 * number for number in range(30)]


async def test_a_crash_that_does_not_happen_again_costs_a_job_nothing(start: Start, app: Drumbeat) -> None:
    from tests.apps.cluster import poison_once

    start()
    job = await poison_once.enqueue()
    await job.result(timeout=20)
    attempts = await app.jobs.attempts(job.id)
    assert [attempt.outcome for attempt in attempts] == [OutcomeKind.CRASHED, OutcomeKind.SUCCEEDED]
    assert attempts[0].error is not None
    assert attempts[0].error.message == "process died: SIGKILL"


async def test_the_jobs_of_a_killed_worker_run_again_within_two_seconds_and_it_is_replaced(
    start: Start, app: Drumbeat
) -> None:
    from tests.apps.cluster import slow

    cluster = start()
    await cluster.heard("open", times=2)
    job = await slow.enqueue(60)
    victim = await cluster.heard("slow", "begin")
    os.kill(victim, signal.SIGKILL)
    with within(2.0):
        await until(lambda: len(cluster.told("slow", "begin")) == 2, deadline=20, what="the second run")
    await until(lambda: len(cluster.workers()) >= 2 and victim not in cluster.workers(), what="another worker")
    dead = [each for each in await app.instances.list(all=True) if each.state is InstanceState.DEAD]
    assert [(each.pid, each.ended_reason) for each in dead] == [
        (victim, "process died: SIGKILL; its jobs: 1 to run again alone")
    ]
    assert (await job.job()).failures == 0


async def test_a_killed_worker_is_replaced_where_there_is_no_waitid(start: Start, app: Drumbeat) -> None:
    """As on macOS before Python 3.13: nothing tells of a death, so children are looked for."""
    from tests.apps.cluster import slow

    cluster = start(TEST_WITHOUT="waitid pidfd_open")
    await cluster.heard("open", times=2)
    job = await slow.enqueue(60)
    victim = await cluster.heard("slow", "begin")
    os.kill(victim, signal.SIGKILL)
    with within(2.0):
        await until(lambda: len(cluster.told("slow", "begin")) == 2, deadline=20, what="the second run")
    await until(lambda: len(cluster.workers()) >= 2 and victim not in cluster.workers(), what="another worker")
    assert (await job.job()).failures == 0


async def test_the_start_of_a_child_process_does_not_count_as_the_time_of_its_first_job(
    start: Start, app: Drumbeat
) -> None:
    from tests.apps.cluster import brief

    start()
    job = await brief.enqueue()
    assert await job.result(timeout=20)
    assert (await job.job()).failures == 0


async def test_a_time_out_kills_the_process_of_its_job(start: Start, app: Drumbeat) -> None:
    from tests.apps.cluster import apart

    cluster = start()
    job = await apart.using(timeout=0.5).enqueue(60)
    child = await cluster.heard("apart", "begin")
    with pytest.raises(JobTimedOut):
        await job.result(timeout=10)
    assert not is_alive(child)


async def test_cancelling_a_running_job_kills_its_process(start: Start, app: Drumbeat) -> None:
    from tests.apps.cluster import apart

    cluster = start()
    job = await apart.enqueue(60)
    child = await cluster.heard("apart", "begin")
    assert await job.cancel() is CancelAnswer.REQUESTED
    with pytest.raises(JobCancelled):
        await job.result(timeout=10)
    assert not is_alive(child)


async def test_sigterm_drains_all_workers(start: Start, app: Drumbeat) -> None:
    from tests.apps.cluster import apart, slow

    cluster = start()
    jobs = [await slow.enqueue(1.5), await slow.enqueue(1.5), await apart.enqueue(1.5)]
    await cluster.heard("slow", "begin", times=2)
    await cluster.heard("apart", "begin")
    cluster.signal(signal.SIGTERM)
    assert cluster.leave() == 0
    assert [(await job.job()).state for job in jobs] == [JobState.SUCCEEDED] * 3
    assert cluster.workers() == []
    assert len(cluster.told("close")) == len(cluster.told("open"))


async def test_a_signal_to_all_processes_at_once_is_one_request(start: Start, app: Drumbeat) -> None:
    """As systemd stops a service, and as Ctrl-C reaches a group."""
    from tests.apps.cluster import slow

    cluster = start()
    job = await slow.enqueue(1.5)
    await cluster.heard("open", times=2)
    await cluster.heard("slow", "begin")
    for pid in [cluster.process.pid, *cluster.workers()]:
        os.kill(pid, signal.SIGTERM)
    assert cluster.leave() == 0
    assert (await job.job()).state is JobState.SUCCEEDED


async def test_a_handler_in_a_process_hears_that_its_worker_drains(start: Start, app: Drumbeat) -> None:
    from tests.apps.cluster import drains

    cluster = start()
    job = await drains.enqueue()
    await cluster.heard("drains", "begin")
    cluster.signal(signal.SIGINT)
    assert cluster.leave() == 0
    found = await job.job()
    assert (found.state, found.failures, found.crashes) == (JobState.PENDING, 0, 0)


async def test_a_second_signal_releases_what_runs(start: Start, app: Drumbeat) -> None:
    from tests.apps.cluster import apart, slow

    cluster = start()
    jobs = [await slow.enqueue(60), await apart.enqueue(60)]
    await cluster.heard("slow", "begin")
    await cluster.heard("apart", "begin")

    def is_heard_twice() -> bool:
        if cluster.log.read_text().count("stopping") == 2:
            return True
        cluster.signal(signal.SIGTERM)
        return False

    await until(is_heard_twice, what="a second signal that counts")
    assert cluster.leave(deadline=10) == 0
    for job in jobs:
        found = await job.job()
        assert (found.state, found.failures, found.crashes) == (JobState.PENDING, 0, 0)


async def test_a_worker_that_does_not_leave_is_killed_and_its_jobs_are_released(start: Start, app: Drumbeat) -> None:
    from tests.apps.cluster import block

    cluster = start(TEST_DRAIN="0.1", TEST_LAST_RESORT="0.5")
    job = await block.enqueue(60)
    await cluster.heard("block", "begin")
    cluster.signal(signal.SIGTERM)
    assert cluster.leave() == 0
    found = await job.job()
    assert (found.state, found.failures, found.crashes) == (JobState.PENDING, 0, 0)


async def test_the_workers_of_a_killed_supervisor_drain(start: Start, app: Drumbeat) -> None:
    from tests.apps.cluster import slow

    cluster = start()
    await cluster.heard("open", times=2)
    job = await slow.enqueue(1)
    await cluster.heard("slow", "begin")
    cluster.signal(signal.SIGKILL)
    await until(lambda: not cluster.workers(), deadline=20, what="the end of the orphans")
    assert (await job.job()).state is JobState.SUCCEEDED
    assert len(cluster.told("close")) == 2


async def test_workers_are_replaced_while_the_store_is_away_and_jobs_are_freed_when_it_is_back(
    start: Start, app: Drumbeat
) -> None:
    from tests.apps.cluster import slow

    cluster = start()
    await cluster.heard("open", times=2)
    job = await slow.enqueue(60)
    victim = await cluster.heard("slow", "begin")
    lock = sqlite3.connect(cluster.url.removeprefix("sqlite:///"), isolation_level=None)
    lock.execute("BEGIN EXCLUSIVE")
    os.kill(victim, signal.SIGKILL)
    await until(lambda: cluster.log.read_text().count("worker process started") == 3, what="another worker")
    assert "were freed" not in cluster.log.read_text()
    assert len(cluster.told("slow", "begin")) == 1
    lock.rollback()
    lock.close()
    await cluster.heard("slow", "begin", times=2)
    assert (await job.job()).failures == 0


def test_a_supervisor_that_is_killed_while_it_asks_the_program_leaves_no_traceback(tmp_path: Path) -> None:
    programs = Programs(tmp_path, "tests.apps.slow_import")
    supervisor = programs.start("--processes", "2", TEST_GATE=str(programs.gate()))
    try:
        [entry] = programs.wait_for("importing")
        supervisor.kill()
        supervisor.wait(10)
        programs.gate().touch()
        until_sync(lambda: not is_alive(entry.pid), what="the end of the child")
    finally:
        programs.gate().touch()
        programs.end()
    told = (tmp_path / "worker-1.log").read_text().splitlines()
    assert len(told) == 1 and told[0].endswith(f"the process that started this one ({entry.pid}) is gone: leaving")


def test_a_program_that_cannot_start_ends_the_supervisor_with_one_line(start: Start) -> None:
    cluster = start(TEST_TROUBLE="1")
    assert cluster.leave() == 1  # the script's own way to tell it
    lines = cluster.log.read_text().splitlines()
    told = [line for line in lines if "no database password" in line]
    assert len(told) == 1
    assert told[0].startswith("ConfigError: module '__main__' cannot be imported: RuntimeError: no database password")


def test_a_worker_that_lived_is_started_again_at_once() -> None:
    restarts = RestartBackoff()
    assert [restarts.next_delay(-9, lived=60) for _ in range(5)] == [0] * 5


def test_a_worker_that_keeps_dying_at_its_start_waits_longer_and_longer() -> None:
    restarts = RestartBackoff()
    assert [restarts.next_delay(1, lived=1) for _ in range(10)] == [0, 0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert restarts.next_delay(1, lived=60) == 0
    assert restarts.next_delay(1, lived=1) == 0


def test_a_worker_that_left_for_want_of_a_store_pauses_and_one_to_be_replaced_does_not() -> None:
    assert RestartBackoff().next_delay(EXIT_NO_STORE, lived=60) == 5
    assert RestartBackoff().next_delay(EXIT_REPLACE, lived=60) == RestartBackoff().next_delay(EXIT_OK, lived=60) == 0
