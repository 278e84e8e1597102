"""A SQLite file that is deleted or replaced while it is in use: nothing is acknowledged into a file that nobody can find."""

import asyncio
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from drumbeat.app import Drumbeat
from drumbeat.core.job_query import JobFilter
from drumbeat.errors import StoreLost, StoreUnavailable
from drumbeat.processes.exit_codes import EXIT_NO_STORE
from drumbeat.store.job_reads import find_jobs, get_job
from drumbeat.store.sqlite import file_checks
from drumbeat.store.urls import open_store
from tests.apps import crashes
from tests.contract.making import claim, new_job, worker
from tests.system.workers import cluster_of
from tests.waiting import until, until_sync


class Producer:
    """A process that adds jobs, and what it said of each."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said: list[tuple[int, str, str]] = []

    async def listen(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            began, how, rest = line.decode().rstrip("\n").split(" ", 2)
            self.said.append((int(began), how, rest))

    def of(self, how: str) -> list[str]:
        return [rest for _, each, rest in self.said if each == how]

    async def end(self) -> None:
        if self.process.returncode is None and self.process.stdin is not None:
            self.process.stdin.close()
            await asyncio.wait_for(self.process.wait(), 20)


@asynccontextmanager
async def run_producers(path: Path, count: int = 1) -> AsyncIterator[list[Producer]]:
    """Processes that add jobs, each with some acknowledged already."""
    pipe = asyncio.subprocess.PIPE
    producers = [
        Producer(
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.apps.producing", str(path)), stdin=pipe, stdout=pipe
            )
        )
        for _ in range(count)
    ]
    async with asyncio.TaskGroup() as group:
        for producer in producers:
            group.create_task(producer.listen())
        for producer in producers:
            await until(lambda producer=producer: len(producer.of("ok")) >= 20, deadline=30, what="acknowledged jobs")
        try:
            yield producers
        finally:
            for producer in producers:
                await producer.end()


def delete(path: Path) -> None:
    path.unlink()


def delete_all(path: Path) -> None:
    for name in ("", "-wal", "-shm", "-lock"):
        Path(f"{path}{name}").unlink()


def replace(path: Path) -> None:
    """By a backup that was made while it was in use."""
    copy = path.with_suffix(".copy")
    source, target = sqlite3.connect(path), sqlite3.connect(copy)
    source.backup(target)
    target.close()
    source.close()
    copy.replace(path)


def replace_wal(path: Path) -> None:
    wal = Path(f"{path}-wal")
    shutil.copy(wal, f"{wal}.copy")
    os.replace(f"{wal}.copy", wal)


LOSSES = [
    delete,
    delete_all,
    replace,
    replace_wal,
    lambda path: delete(Path(f"{path}-wal")),
    lambda path: delete(Path(f"{path}-shm")),
]
NAMES = ["deleted", "deleted with all", "replaced by a backup", "log replaced", "log deleted", "index deleted"]


@pytest.mark.parametrize("lose", LOSSES, ids=NAMES)
async def test_nothing_is_acknowledged_into_a_file_that_is_gone(path: Path, lose: Callable[[Path], None]) -> None:
    async with run_producers(path, 2) as producers:
        lose(path)
        lost_at = time.monotonic_ns()
        for producer in producers:
            await until(lambda producer=producer: len(producer.of("StoreLost")) >= 30, deadline=10, what="StoreLost")
    for producer in producers:
        after = [how for began, how, _ in producer.said if began > lost_at]
        assert set(after) == {"StoreLost"}, "once lost, always lost"
        assert "deleted or replaced" in producer.of("StoreLost")[0] and str(path) in producer.of("StoreLost")[0]


@pytest.mark.parametrize("lose", [delete, replace_wal], ids=["deleted", "log replaced"])
async def test_a_lost_file_is_neither_read_nor_claimed_from(path: Path, lose: Callable[[Path], None]) -> None:
    async with await open_store(f"sqlite:///{path}") as store:
        await store.jobs.add([new_job()])
        instance = await worker(store)
        assert len(await find_jobs(store, JobFilter())) == 1
        lose(path)
        with pytest.raises(StoreLost):
            await find_jobs(store, JobFilter())
        with pytest.raises(StoreLost):
            await store.jobs.list_running(instance)
        with pytest.raises(StoreLost):
            await claim(store, instance)
        with pytest.raises(StoreLost):
            await store.instances.heartbeat(instance, 0, lead=None)


async def test_a_file_that_is_gone_before_its_first_list_is_lost_too(path: Path) -> None:
    async with await open_store(f"sqlite:///{path}") as store:
        path.unlink()
        with pytest.raises(StoreLost):
            await find_jobs(store, JobFilter())
        assert not path.exists(), "a reader creates nothing"


def delete_log(path: Path) -> None:
    Path(f"{path}-wal").unlink()
    Path(f"{path}-shm").unlink()


@pytest.mark.parametrize("lose", [delete_all, delete_log], ids=["deleted with all", "log and index deleted"])
async def test_who_has_lost_a_file_leaves_alone_what_stands_in_its_place(
    path: Path, lose: Callable[[Path], None]
) -> None:
    """SQLite makes a checkpoint of its log, and deletes it by its name, when it closes a file as the last."""
    async with run_producers(path) as [producer]:
        lose(path)
        new = new_job()
        async with await open_store(f"sqlite:///{path}") as store:
            await store.jobs.add([new])
        await producer.end()
        assert producer.process.returncode == 0
        async with await open_store(f"sqlite:///{path}") as store:
            assert (await get_job(store, new.id)).id == new.id


async def test_a_store_that_is_opened_anew_goes_on_with_the_file_that_is_there(path: Path) -> None:
    app = Drumbeat(f"sqlite:///{path}")

    @app.task
    def noop() -> None:
        pass

    await noop.enqueue()
    delete_all(path)
    with pytest.raises(StoreLost):
        await noop.enqueue()
    await app.close()
    job = await noop.enqueue()
    assert (await app.jobs.show(job.id)).id == job.id
    await app.close()


async def test_jobs_in_a_transaction_of_the_callers_own_are_refused_once_the_file_was_replaced(path: Path) -> None:
    app = Drumbeat(f"sqlite:///{path}")

    @app.task
    def noop() -> None:
        pass

    conn = sqlite3.connect(path)
    await noop.using(conn=conn).enqueue()
    conn.commit()
    replace(path)
    with pytest.raises(StoreLost):
        await noop.using(conn=conn).enqueue()
    conn.close()
    await app.close()


@pytest.mark.parametrize("runs", [None, "coroutine", "thread"])
def test_a_worker_that_has_lost_its_file_says_so_in_one_line_and_leaves_to_be_started_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: str | None
) -> None:
    with cluster_of(tmp_path, "tests.apps.crashes", monkeypatch) as (cluster, app):
        process = cluster.start()
        if runs == "coroutine":
            crashes.hold.enqueue_sync(str(cluster.gate()))
            cluster.wait_for("started")
        elif runs == "thread":
            crashes.stuck.enqueue_sync()
            cluster.wait_for("started")
        else:
            until_sync(lambda: app.sync.instances.list(), deadline=20, what="the worker's registration")
        app.sync.close()
        delete_all(tmp_path / "jobs.db")
        until_sync(lambda: process.poll() is not None, deadline=20, what=f"its end\n{cluster.logs()}")
        assert process.returncode == EXIT_NO_STORE
        log = (tmp_path / "worker-1.log").read_text()  # all of it
        lines = [line for line in log.splitlines() if "the store is lost" in line]
        assert len(lines) == 1 and "deleted or replaced" in lines[0], log
        assert "Traceback" not in log


async def test_a_handlers_own_transaction_is_not_acknowledged_into_a_file_that_is_gone(path: Path) -> None:
    async with await open_store(f"sqlite:///{path}") as store:
        transaction = store.transactional.transaction()
        conn = await transaction.begin()
        conn.execute("CREATE TABLE invoice (id INTEGER)")
        path.unlink()
        with pytest.raises(StoreLost):
            await transaction.commit()
        with pytest.raises(StoreUnavailable):
            await store.transactional.transaction().begin()
        assert not path.exists()


async def test_a_folder_that_cannot_be_read_for_a_moment_is_an_outage_and_no_loss(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await open_store(f"sqlite:///{path}") as store:
        await store.jobs.add([new_job()])

        def refuse(path: str) -> None:
            raise PermissionError(13, "Permission denied")

        with monkeypatch.context() as patch:
            patch.setattr(file_checks, "inode_of", refuse)
            with pytest.raises(StoreUnavailable):
                await store.jobs.add([new_job()])
            with pytest.raises(StoreUnavailable):
                await find_jobs(store, JobFilter())
        await store.jobs.add([new_job()])
