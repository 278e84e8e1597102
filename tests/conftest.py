"""Databases for tests: a fresh one of each engine, and as many stores on it as a test wants.

`store` is the first; `open_again()` gives another on the same database, as another process would have. A module that moves
time overrides the fixture `clock`.
"""

import asyncio
import functools
import gc
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from drumbeat.clock import SYSTEM, Clock
from drumbeat.ids import JobId
from drumbeat.store.protocol import Store
from drumbeat.store.urls import open_store
from tests.servers import folders, postgres, redis

# How long a property takes says something about the neighbours of this machine, nothing about the property.
settings.register_profile("drumbeat", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("drumbeat")

# A shell ignores Ctrl-C for what it starts with `&` or nohup, and so do all that are started from there. Tests send it, to this
# process and to others: these are born with what is set here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

TRANSACTIONAL = ["sqlite", "postgres", "postgres16"]
ENGINES = [*TRANSACTIONAL, *redis.kinds()]
POSTGRES = postgres.Databases(18, in_memory=True)
SERVERS: dict[str, postgres.Databases | redis.Databases] = {
    "postgres": POSTGRES,
    "postgres16": postgres.Databases(16, in_memory=True),
    **{kind: redis.Databases(kind) for kind in redis.kinds()},
}

# Jobs in the first, coordination in the second.
PAIRS = {"pair": ("postgres", "valkey")}

OpenAgain = Callable[[], Awaitable[Store]]
SetRunAt = Callable[[Sequence[JobId], int], Awaitable[None]]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """What killed runs have left is removed, once: not by each of the processes that run tests side by side."""
    if not hasattr(session.config, "workerinput"):
        folders.sweep()
        if session.config.getoption("numprocesses", None):
            postgres.share_kits()


# They wait more than they compute; or are one long file, which would be left for one process alone at the end.
PATIENT = (
    "tests/chaos/",
    "tests/engines/postgres/",
    "tests/engines/redis/",
    "tests/examples/",
    "tests/simulation/",
    "tests/sinks/",
    "tests/system/",
    "tests/web/browser/",
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where processes run files side by side, those that wait are spread among those that compute, and end before them: the
    machine has always something to do, and no long file is left for one process alone. It needs --no-loadscope-reorder."""
    refuse_twins(items)
    if not hasattr(config, "workerinput"):
        return
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    patient = [file for file in files if file.startswith(PATIENT)]
    others = [file for file in files if not file.startswith(PATIENT)]
    places = {file: number / max(1, len(others)) for number, file in enumerate(others)}
    places |= {file: 0.75 * number / max(1, len(patient)) for number, file in enumerate(patient)}
    items[:] = [item for file in sorted(files, key=places.__getitem__) for item in files[file]]


def refuse_twins(items: list[pytest.Item]) -> None:
    """Of tests that have the same identity only one would be run side by side, and nobody would be told."""
    twins = [id for id, count in Counter(item.nodeid for item in items).items() if count > 1]
    if twins:
        raise pytest.UsageError(f"tests with the same identity: {', '.join(twins)}")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests are made, and all of them stay: to look through them for garbage again and again was a third of the
    time of collecting, and half a second in each process whenever a test says gc.collect()."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_sessionfinish() -> None:
    """Processes that run tests side by side leave without their exit handlers, and are interrupted 5 s after they have told
    that they finished: the servers are ended before."""
    for server in SERVERS.values():
        server.close()
    postgres.remove_kits()


def fresh_url(engine: str, folder: Path) -> str:
    """The URL of an empty database; those of SQL have their tables. On SQLite: one for each folder."""
    engine, _ = PAIRS.get(engine, (engine, None))
    if engine in SERVERS:
        return SERVERS[engine].fresh_url()
    file = folder / "test.db"
    if not file.exists():  # it is the same for all who ask with this folder
        file.write_bytes(sqlite_file())
    return f"sqlite:///{file}"


@functools.cache
def sqlite_file() -> bytes:
    """An empty database as its first store leaves it: to make the tables took two thirds of opening one."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as thread:
        file = Path(folder) / "test.db"

        async def make() -> None:
            await (await open_store(f"sqlite:///{file}")).close()

        # In a thread of its own: fixtures are called with and without a loop.
        thread.submit(lambda: asyncio.run(make())).result()
        return file.read_bytes()


async def open_fresh(engine: str, folder: Path, *, clock: Clock = SYSTEM) -> Store:
    """A store on an empty database."""
    return await open_store(fresh_url(engine, folder), clock=clock)


@asynccontextmanager
async def fresh_store(engine: str, folder: Path, *, clock: Clock = SYSTEM) -> AsyncIterator[Store]:
    async with await open_fresh(engine, folder, clock=clock) as store:
        yield store


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who runs the tests side by side tells each process the width of its own terminal."""
    monkeypatch.delenv("COLUMNS", raising=False)


# Versions of servers differ in what the contract of the store says; whatever stands on it is shown on one of each engine.
@pytest.fixture(params=["sqlite", "postgres", "valkey"])
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def clock() -> Clock:
    return SYSTEM


@pytest.fixture
def store_url(engine: str, tmp_path: Path) -> Iterator[str]:
    url = fresh_url(engine, tmp_path)
    yield url
    server = SERVERS.get(PAIRS.get(engine, (engine, None))[0])
    if server is not None:
        server.give_back(url)


@pytest.fixture
def coordination(engine: str, tmp_path: Path) -> str | None:
    """The URL of the second store, where there is one."""
    return fresh_url(PAIRS[engine][1], tmp_path) if engine in PAIRS else None


@pytest.fixture
async def store(store_url: str, coordination: str | None, clock: Clock) -> AsyncIterator[Store]:
    async with await open_store(store_url, coordination=coordination, clock=clock) as store:
        yield store


@pytest.fixture
async def open_again(store: Store, store_url: str, coordination: str | None, clock: Clock) -> AsyncIterator[OpenAgain]:
    async with AsyncExitStack() as stack:

        async def open_again() -> Store:
            opened = await open_store(store_url, coordination=coordination, clock=clock)
            return await stack.enter_async_context(opened)

        yield open_again
