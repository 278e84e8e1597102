"""A store that is really full: the worker stays, jobs that are there run and end where the engine can, and what could not be
written is written when there is room again."""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from drumbeat.app import Drumbeat
from drumbeat.core.job import JobState
from drumbeat.events import StoreDown, StoreHasSpace, StoreOutOfSpace
from drumbeat.store.sqlite import SqliteStore
from drumbeat.store.urls import migrate_store
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer, kinds
from tests.waiting import until
from tests.worker.worker_harness import EventRecorder, run_worker


class Home(Protocol):
    """A store of the test's own."""

    url: str

    async def fill(self, app: Drumbeat) -> None: ...
    async def make_room(self, app: Drumbeat) -> None: ...


class NearlyFullDisk:
    """Below the free space that is kept for what is under way."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.url = f"sqlite:///{folder / 'jobs.db'}"
        self._monkeypatch = monkeypatch

    async def fill(self, app: Drumbeat) -> None:
        found = os.statvfs("/")
        nothing = os.statvfs_result((*found[:3], 0, 0, *found[5:]))
        self._monkeypatch.setattr(os, "statvfs", lambda path: nothing)

    async def make_room(self, app: Drumbeat) -> None:
        self._monkeypatch.undo()


class FullDisk:
    """SQLite itself finds no room: its file cannot grow."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder / 'jobs.db'}"

    async def fill(self, app: Drumbeat) -> None:
        await self._bound(app, 1)

    async def make_room(self, app: Drumbeat) -> None:
        await self._bound(app, 1_000_000)

    async def _bound(self, app: Drumbeat, pages: int) -> None:
        store = await app._internals.store()
        assert isinstance(store, SqliteStore) and store._parts.writer._handler.db is not None
        store._parts.writer._handler.db.run(f"PRAGMA max_page_count = {pages}")


class FullMemory:
    """A Redis at its maxmemory."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self.url = server.url
        server.ask("SET", "padding", b"x" * 2_000_000)

    async def fill(self, app: Drumbeat) -> None:
        self._server.ask("CONFIG", "SET", "maxmemory", "1mb")

    async def make_room(self, app: Drumbeat) -> None:
        self._server.ask("CONFIG", "SET", "maxmemory", "0")


class FullTablespace:
    """A PostgreSQL that says so of every new row of history and of jobs."""

    _REFUSE = """
        CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
        END $$
    """
    _ALWAYS = "CREATE TRIGGER full_disk BEFORE INSERT ON drumbeat.{} FOR EACH ROW EXECUTE FUNCTION public.refuse()"

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self.url = server.url

    async def fill(self, app: Drumbeat) -> None:
        await self._server.execute(self._REFUSE)
        for table in ("history", "job"):
            await self._server.execute(self._ALWAYS.format(table))

    async def make_room(self, app: Drumbeat) -> None:
        await self._server.execute("DROP FUNCTION public.refuse CASCADE")


Made = Callable[[Path, pytest.MonkeyPatch], AbstractContextManager[Home]]


@contextmanager
def _nearly_full(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    yield NearlyFullDisk(folder, monkeypatch)


@contextmanager
def _full_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    yield FullDisk(folder)


def _full_memory(kind: str) -> Made:
    @contextmanager
    def made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
        with RedisServer(kind) as server:
            yield FullMemory(server)

    return made


@contextmanager
def _full_tablespace(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    with PostgresServer(in_memory=True) as server:
        asyncio.run(migrate_store(server.url))
        yield FullTablespace(server)


DRAINING: dict[str, Made] = {"sqlite": _nearly_full, **{kind: _full_memory(kind) for kind in kinds()}}
"""Where jobs can still end."""
REFUSING: dict[str, Made] = {"sqlite": _full_disk, "postgres": _full_tablespace}
"""Where they cannot."""


@pytest.fixture
def home(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    with request.param(tmp_path, monkeypatch) as home:
        yield home


@pytest.fixture
async def app(home: Home) -> Drumbeat:
    return Drumbeat(home.url)


@pytest.mark.parametrize("home", DRAINING.values(), ids=DRAINING.keys(), indirect=True)
async def test_in_a_full_store_jobs_end_and_schedules_wait(home: Home, app: Drumbeat, recorder: EventRecorder) -> None:
    go_on = asyncio.Event()
    ticks: list[int] = []
    done: list[int] = []

    @app.task(retries=0)
    async def work(number: int) -> int:
        await go_on.wait()
        done.append(number)
        return number

    @app.every(0.1, queue="ticks")
    async def tick() -> None:
        ticks.append(1)

    async with app:
        async with run_worker(app, concurrency=60) as worker:
            await until(lambda: len(ticks) > 1, what="fires")
            await app.enqueue_many([work.bind(number) for number in range(50)])
            await home.fill(app)
            await recorder.next(StoreOutOfSpace)
            go_on.set()
            await until(lambda: len(done) == 50, what="all jobs")

            async def nothing_left() -> bool:
                return not await app.jobs.list(state="running", task="work")

            await until(nothing_left, what="the end of all jobs")
            fired = len(ticks)
            assert not worker.shutdown.is_stopping
            await home.make_room(app)
            await recorder.next(StoreHasSpace)
            await until(lambda: len(ticks) > fired + 1, what="fires again")
        assert worker.shutdown.exit_code == 0
    assert sorted(done) == sorted(range(50))
    assert len(recorder.of(StoreOutOfSpace)) == len(recorder.of(StoreHasSpace)) == 1
    assert recorder.of(StoreDown) == []


@pytest.mark.parametrize("home", REFUSING.values(), ids=REFUSING.keys(), indirect=True)
async def test_outcomes_that_a_full_store_refuses_are_kept_with_their_results(
    home: Home, app: Drumbeat, recorder: EventRecorder
) -> None:
    go_on = asyncio.Event()
    begun: list[int] = []

    @app.task(retries=0)
    async def work(number: int) -> str:
        begun.append(number)
        await go_on.wait()
        return str(number) * 100_000

    async with app:
        jobs = await app.enqueue_many([work.bind(number) for number in range(9)])
        async with run_worker(app, concurrency=9) as worker:
            await until(lambda: len(begun) == 9, what="all jobs")
            await home.fill(app)
            go_on.set()
            await recorder.next(StoreOutOfSpace)
            assert not worker.shutdown.is_stopping
            await home.make_room(app)
            assert [await job.result(timeout=10) for job in jobs] == [str(number) * 100_000 for number in range(9)]
            await recorder.next(StoreHasSpace)
            records = [await app.jobs.show(job.id) for job in jobs]
    assert [(each.state, each.result_error) for each in records] == [(JobState.SUCCEEDED, None)] * 9
    assert len(begun) == 9, "nothing ran twice"
    assert len(recorder.of(StoreOutOfSpace)) == len(recorder.of(StoreHasSpace)) == 1
