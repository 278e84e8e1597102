"""Group commit: many requests in one transaction, a bad one fails alone, and time is taken inside the write lock."""

import asyncio
import contextlib
import functools
import os
import sqlite3 as driver
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from drumbeat.clock import FakeClock
from drumbeat.core.claim import WriteStatus
from drumbeat.core.job import JobState, OutcomeKind
from drumbeat.core.job_query import JobFilter
from drumbeat.errors import StoreError, StoreLost, StoreUnavailable
from drumbeat.store.job_reads import find_jobs, get_job
from drumbeat.store.sqlite import SqliteStore, database_thread, fsync_thread, writer
from drumbeat.store.sqlite.connection import SqliteConnection
from drumbeat.store.sqlite.database_thread import RequestGroup
from drumbeat.store.sqlite.insert import SqliteInsertBatch
from drumbeat.store.sqlite.write_lock import WriteLock
from drumbeat.store.sqlite.writer import WriteContext, WriteHandler
from tests.contract.making import HOUR, claim, claimed_one, end, ids, new_job, worker
from tests.waiting import until


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def writer_connection(store: SqliteStore) -> SqliteConnection:
    db = store._parts.writer._handler.db
    assert db is not None
    return db


class StatementTrace:
    """Everything that the writer executes, in order."""

    def __init__(self, store: SqliteStore) -> None:
        self.seen: list[str] = []
        writer_connection(store)._db.set_trace_callback(self.seen.append)

    def count(self, beginning: str) -> int:
        return sum(statement.startswith(beginning) for statement in self.seen)


class HeldWriteLock:
    """The write lock of another process, so that requests pile up behind it."""

    def __init__(self, path: Path) -> None:
        self._lock = WriteLock(path)
        self._lock.__enter__()

    def release(self) -> None:
        self._lock.__exit__(None, None, None)
        self._lock.close()


async def call_behind_lock(path: Path, calls: list[Any], check: Callable[[], None] = lambda: None) -> list[Any]:
    """Start all calls while another process holds the write lock; release it when all are queued."""
    held = HeldWriteLock(path)
    tasks = [asyncio.Task(call) for call in calls]
    await asyncio.wait(tasks, timeout=0.05)
    check()
    held.release()
    await asyncio.wait(tasks)
    return [task.exception() or task.result() for task in tasks]


async def test_requests_that_wait_share_one_transaction(sqlite: SqliteStore, path: Path) -> None:
    instance = await worker(sqlite)
    statements = StatementTrace(sqlite)
    calls = [sqlite.jobs.add([new_job()]) for _ in range(50)]
    calls += [sqlite.instances.heartbeat(instance, 0), sqlite.jobs.pause_queue("x", by="", reason="")]  # type: ignore[list-item]
    answers = await call_behind_lock(path, calls)
    assert all(not isinstance(answer, Exception) for answer in answers)
    assert statements.count("COMMIT") <= 2, "the first may have gone alone"
    assert statements.count("INSERT INTO drumbeat_job") <= 2, "single adds become one statement"
    assert len(await find_jobs(sqlite, JobFilter(limit=100))) == 50


class SlowDisk:
    """A disk that has written nothing before it is told to; `error` is what it answers then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.syncs = 0
        self.asked = threading.Event()
        self.error: OSError | None = None
        self._go_on = threading.Event()
        monkeypatch.setattr(fsync_thread, "_fdatasync", self._fdatasync)

    def go_on(self) -> None:
        self._go_on.set()

    def _fdatasync(self, file: int) -> None:
        self.asked.set()
        assert self._go_on.wait(10)
        self.syncs += 1
        if self.error is not None:
            raise self.error
        os.fsync(file)


async def test_an_enqueue_is_answered_when_it_is_on_disk_and_a_claim_need_not_wait_for_that(
    sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = await worker(sqlite)
    disk = SlowDisk(monkeypatch)
    adding = asyncio.Task(sqlite.jobs.add([job := new_job()]))
    await until(disk.asked.is_set)
    [claimed] = await claim(sqlite, instance)
    assert claimed.id == job.id, "what is committed is there for all"
    assert (await sqlite.instances.heartbeat(instance, 1)).alive
    ending = asyncio.Task(end(sqlite, instance, claimed, OutcomeKind.SUCCEEDED))

    async def is_visible() -> bool:
        return (await get_job(sqlite, job.id)).state is JobState.SUCCEEDED

    await until(is_visible)
    assert not adding.done()
    assert not ending.done()
    disk.go_on()
    assert (await adding)[0].created
    assert await ending is WriteStatus.APPLIED


async def test_an_enqueue_waits_for_the_disk_also_in_a_group_with_those_who_need_not(
    sqlite: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = await worker(sqlite)
    disk, held = SlowDisk(monkeypatch), HeldWriteLock(path)
    beats = [asyncio.Task(sqlite.instances.heartbeat(instance, 0))]
    adding = asyncio.Task(sqlite.jobs.add([new_job()]))
    beats.append(asyncio.Task(sqlite.instances.heartbeat(instance, 0)))
    await asyncio.wait([adding, *beats], timeout=0.05)
    held.release()
    try:
        await until(lambda: disk.asked.is_set() or adding.done())
        done, _ = await asyncio.wait([adding], timeout=0.05)
        assert not done, "it is not on disk yet"
    finally:
        disk.go_on()
    assert (await adding)[0].created
    await asyncio.wait(beats)


async def test_those_who_wait_for_the_disk_share_one_sync(
    sqlite: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sqlite.jobs.add([new_job()])
    disk = SlowDisk(monkeypatch)
    first = asyncio.Task(sqlite.jobs.add([new_job()]))
    await until(disk.asked.is_set)
    others = []
    for known in range(2, 12):  # one after the other, so that each has a commit of its own
        others.append(asyncio.Task(sqlite.jobs.add([new_job()])))
        await until(functools.partial(sees_more, path, known))
    disk.go_on()
    await asyncio.wait([first, *others])
    assert disk.syncs == 2


async def test_a_disk_that_fails_is_told_to_all_who_waited_for_it(
    sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SlowDisk(monkeypatch)
    disk.error = OSError(5, "Input/output error")
    disk.go_on()
    with pytest.raises(StoreUnavailable, match="Input/output error"):
        await sqlite.jobs.add([new_job()])
    disk.error = None
    assert (await sqlite.jobs.add([new_job()]))[0].created


async def test_a_store_that_closes_answers_those_who_wait_for_the_disk(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await SqliteStore.open(path, url="sqlite") as store:
        disk = SlowDisk(monkeypatch)
        adding = asyncio.Task(store.jobs.add([new_job()]))
        await until(disk.asked.is_set)
        closing = asyncio.Task(store.close())
        await asyncio.wait([closing], timeout=0.05)
        disk.go_on()
        assert (await adding)[0].created
        await closing


def sees_more(path: Path, known: int) -> bool:
    """Whether others see more jobs than these."""
    with contextlib.closing(driver.connect(path)) as db:
        count: int = db.execute("SELECT count(*) FROM drumbeat_job").fetchone()[0]
        return count > known


async def test_one_bad_request_in_a_group_spoils_nothing_for_the_others(sqlite: SqliteStore, path: Path) -> None:
    jobs = [new_job(priority=5 if number != 7 else 10) for number in range(20)]
    calls = [sqlite.jobs.add([job]) for job in jobs]
    calls += [sqlite.jobs.pause_queue("x", by="", reason=""), sqlite.jobs.add([new_job(), new_job(priority=10)])]  # type: ignore[list-item]
    answers = await call_behind_lock(path, calls)
    bad = [number for number, answer in enumerate(answers) if isinstance(answer, Exception)]
    assert bad == [7, 21]
    assert len(await find_jobs(sqlite, JobFilter(limit=100))) == 19
    assert [queue.paused for queue in await sqlite.inspect.list_queues() if queue.name == "x"] == [True]


async def test_a_text_that_sqlite_cannot_take_fails_alone(sqlite: SqliteStore, path: Path) -> None:
    answers = await call_behind_lock(path, [sqlite.jobs.add([new_job(args=args)]) for args in ("1", "\ud800", "2")])
    assert [isinstance(answer, Exception) for answer in answers] == [False, True, False]


async def test_a_failing_request_leaves_nothing_behind(sqlite: SqliteStore) -> None:
    def half(write: WriteContext, _: None) -> None:
        write.db.run("INSERT INTO drumbeat_meta (name, value) VALUES ('half', 1)")
        raise LookupError("stopped half way")

    with pytest.raises(LookupError):
        await sqlite._parts.writer.write(half, None)
    assert not writer_connection(sqlite).in_transaction
    assert (
        await sqlite._parts.worker_reader.read(
            lambda db: db.value("SELECT count(*) FROM drumbeat_meta WHERE name = 'half'")
        )
        == 0
    )


async def test_nothing_is_written_when_nothing_is_due(sqlite: SqliteStore, path: Path) -> None:
    instance = await worker(sqlite)
    await sqlite.jobs.add([new_job(delay=1_000_000)])
    statements = StatementTrace(sqlite)
    assert await claim(sqlite, instance, wants=["task:x"]) == []
    assert await sqlite.jobs.prune(0, 10) == 0
    assert await sqlite.jobs.expire_blocked("version:", 0, 10) == 0
    assert statements.seen == []


async def test_now_is_taken_inside_the_write_lock(sqlite: SqliteStore, path: Path, clock: FakeClock) -> None:
    job = new_job()
    asked = clock.now_us()
    await call_behind_lock(path, [sqlite.jobs.add([job])], check=lambda: clock.jump(60))
    found = await get_job(sqlite, job.id)
    assert found.created_at.timestamp() * 1_000_000 == asked + 60_000_000


async def test_now_is_taken_after_a_wait_for_a_lock_of_sqlite_itself(
    sqlite: SqliteStore, path: Path, clock: FakeClock
) -> None:
    """Longer than tokens are reserved for: they are reserved again."""
    instance = await worker(sqlite)
    job = new_job()
    await sqlite.jobs.add([job])
    stranger = SqliteConnection(path, read_only=False)
    stranger.run("BEGIN IMMEDIATE")
    call = asyncio.Task(claim(sqlite, instance))
    done, _ = await asyncio.wait([call], timeout=0.1)
    assert not done
    clock.jump(3_600)
    stranger.run("COMMIT")
    stranger.close()
    [claimed] = await call
    assert claimed.token == clock.now_us()
    writing = sqlite._parts.writer._handler
    assert writing._tokens.is_reserved(clock.now_us())


async def test_tokens_grow_when_the_clock_steps_back(sqlite: SqliteStore, clock: FakeClock) -> None:
    instance = await worker(sqlite)
    job = await claimed_one(sqlite, instance, run_at=clock.now_us() - 10 * HOUR)
    seen = [job.token]
    for step in (-3_600, -60, 0, 7_200):
        await end(sqlite, instance, job, OutcomeKind.RELEASED)
        clock.jump(step)
        [job] = await claim(sqlite, instance)
        seen.append(job.token)
    assert seen == sorted(set(seen))
    assert seen[1:4] == [seen[0] + 1, seen[0] + 2, seen[0] + 3]
    assert seen[4] == clock.now_us()


async def test_a_job_becomes_claimable_at_its_moment_not_before(sqlite: SqliteStore, clock: FakeClock) -> None:
    instance = await worker(sqlite)
    job = new_job(delay=1_000_000)
    await sqlite.jobs.add([job])
    await clock.advance(0.999999)
    assert await claim(sqlite, instance) == []
    await clock.advance(0.000001)
    assert ids(await claim(sqlite, instance)) == [job.id]


async def test_a_call_that_does_not_get_the_write_lock_ends_with_store_unavailable(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_thread, "CALL_TIMEOUT", 0.5)
    async with await SqliteStore.open(path, url="sqlite") as store:
        held = HeldWriteLock(path)
        job = new_job()
        with pytest.raises(StoreUnavailable, match="no answer"):
            await store.jobs.add([job])
        held.release()
        assert (await store.jobs.add([job]))[0].id == job.id
        assert len(await find_jobs(store, JobFilter())) == 1


async def test_a_strangers_lock_is_waited_for(sqlite: SqliteStore, path: Path) -> None:
    stranger = SqliteConnection(path, read_only=False)
    stranger.run("BEGIN IMMEDIATE")
    call = asyncio.Task(sqlite.jobs.add([new_job()]))
    done, _ = await asyncio.wait([call], timeout=0.1)
    assert not done
    stranger.run("COMMIT")
    assert (await call)[0].created
    stranger.close()


async def test_the_log_is_brought_in_when_it_is_long(
    sqlite: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "CHECKPOINT_BYTES", 1_000_000)
    log = Path(f"{path}-wal")
    largest = 0
    for _ in range(40):
        await sqlite.jobs.add([new_job(args='"' + "x" * 50_000 + '"')])
        largest = max(largest, log.stat().st_size)
    assert largest < 1_500_000
    assert path.stat().st_size > 1_000_000


async def test_a_reader_in_the_middle_does_not_hold_up_a_checkpoint_or_lose_its_snapshot(
    sqlite: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sqlite.jobs.add([new_job()])
    reader = SqliteConnection(path, read_only=True)
    reader.run("BEGIN")
    assert reader.value("SELECT count(*) FROM drumbeat_job") == 1
    monkeypatch.setattr(writer, "CHECKPOINT_BYTES", 1)
    await sqlite.jobs.add([new_job()])
    await sqlite.jobs.add([new_job()])
    assert reader.value("SELECT count(*) FROM drumbeat_job") == 1
    reader.run("ROLLBACK")
    assert reader.value("SELECT count(*) FROM drumbeat_job") == 3
    reader.close()


async def test_a_reading_connection_cannot_write(path: Path, sqlite: SqliteStore) -> None:
    with pytest.raises(Exception, match="readonly"):
        await sqlite._parts.worker_reader.read(lambda db: db.run("DELETE FROM drumbeat_job"))


async def test_threads_end_with_the_store(path: Path) -> None:
    before = threading.active_count()
    async with await SqliteStore.open(path, url="x") as store:
        await claim(store, await worker(store))
        await find_jobs(store, JobFilter())
        assert threading.active_count() > before
    await until(lambda: threading.active_count() == before, what="the end of the threads")


async def test_after_a_fork_the_child_is_told_to_open_anew_and_the_parent_goes_on(sqlite: SqliteStore) -> None:
    await sqlite.jobs.add([new_job()])
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = b"nothing"
        try:
            sqlite._parts.writer.write(lambda *_: None, None)
        except StoreError as error:
            said = str(error).encode()
        finally:
            os.write(writing, said)
            os._exit(0)
    os.waitpid(child, 0)
    assert b"open the store anew in the child" in os.read(reading, 1_000)
    os.close(reading)
    os.close(writing)
    assert (await sqlite.jobs.add([new_job()]))[0].created


async def test_a_forked_child_does_not_keep_the_write_lock_of_its_dead_parent(path: Path) -> None:
    """The parent takes the write lock, forks and is killed; the child lives on with the copied descriptors."""
    reading, writing = os.pipe()
    parent = os.fork()
    if parent == 0:
        lock = WriteLock(path)
        lock.__enter__()
        grandchild = os.fork()
        if grandchild == 0:
            os.read(reading, 1)
            os._exit(0)
        os._exit(0)
    os.waitpid(parent, 0)
    got = threading.Event()

    def take() -> None:
        with WriteLock(path):
            got.set()

    threading.Thread(target=take, daemon=True).start()
    await until(got.is_set, what="the write lock")
    os.write(writing, b"x")
    os.close(reading)
    os.close(writing)


async def test_a_checkpoint_that_fails_is_not_told_to_those_whose_work_is_done(
    sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: SqliteConnection) -> bool:
        raise driver.OperationalError("disk I/O error")

    monkeypatch.setattr(writer, "CHECKPOINT_BYTES", 1)
    monkeypatch.setattr(SqliteConnection, "checkpoint", fail)
    assert (await sqlite.jobs.add([new_job()]))[0].created


async def test_the_log_of_a_lost_file_is_not_brought_in(
    sqlite: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brought_in: list[SqliteConnection] = []
    await sqlite.jobs.add([new_job()])
    monkeypatch.setattr(writer, "CHECKPOINT_BYTES", 1)
    monkeypatch.setattr(SqliteConnection, "checkpoint", brought_in.append)
    path.rename(path.with_suffix(".lost"))
    with pytest.raises(StoreLost):
        await sqlite.jobs.add([new_job()])
    assert brought_in == []


async def test_an_error_of_our_own_code_reaches_the_caller_and_the_thread_goes_on(
    sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(WriteHandler, "_run_unit", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await sqlite.jobs.add([new_job()])
    assert (await sqlite.jobs.add([new_job()]))[0].created


async def test_a_commit_wakes_the_loop_for_a_hint_only_if_there_is_a_listener(
    sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    posted: list[int] = []
    monkeypatch.setattr(
        sqlite._parts.notifier, "_loop", SimpleNamespace(call_soon_threadsafe=lambda _, due: posted.append(due))
    )
    await sqlite.jobs.add([new_job()])
    assert posted == []
    sqlite._parts.notifier.listeners["here"] = lambda _: None
    await sqlite.jobs.add([new_job(run_at=7)])
    assert posted == [7]


async def test_a_reader_does_not_create_a_deleted_file_anew(path: Path, sqlite: SqliteStore) -> None:
    path.unlink()
    with pytest.raises(StoreLost):
        await find_jobs(sqlite, JobFilter())
    assert not path.exists()


async def test_large_batches_do_not_share_a_transaction_so_that_others_can_write_between_them(
    sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    transaction = WriteHandler._run_transaction

    def counted(self: WriteHandler, db: SqliteConnection, group: RequestGroup[WriteContext]) -> Any:
        sizes.append(
            sum(len(request.argument.jobs) for request in group if isinstance(request.argument, SqliteInsertBatch))
        )
        return transaction(self, db, group)

    monkeypatch.setattr(WriteHandler, "_run_transaction", counted)
    batches = [[new_job() for _ in range(4_000)] for _ in range(10)]
    async with asyncio.TaskGroup() as group:
        for batch in batches:
            group.create_task(sqlite.jobs.add(batch))
    assert sum(sizes) == 40_000
    assert max(sizes) < 15_000
