"""The conftest of the published contract suite: stores of one engine, opened by a function that its author gives.

Copied beside the suite by `contract.py`; it has the names that the tests import from their own conftest.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from drumbeat.clock import SYSTEM, Clock
from drumbeat.ids import JobId
from drumbeat.store.protocol import Store
from drumbeat.store.urls import open_store as open_own_store

settings.register_profile("drumbeat", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("drumbeat")

ENGINES = ["yours"]
NEWEST = ENGINES
TRANSACTIONAL: list[str] = []
PAIRS: dict[str, tuple[str, str]] = {}
OpenAgain = Callable[[], Awaitable[Store]]
SetRunAt = Callable[[Sequence[JobId], int], Awaitable[None]]


def _find(name: str | None = None) -> Any:
    """What the author of the engine gives: the function that opens stores, or another of its module; None: it has none."""
    module, _, opener = os.environ["DRUMBEAT_CONTRACT_STORE"].partition(":")
    return getattr(importlib.import_module(module), name or opener, None)


async def open_fresh(engine: str, folder: Path, *, clock: Clock = SYSTEM) -> Store:
    """A store on an empty database. Some tests compare with ours on SQLite."""
    os.makedirs(folder, exist_ok=True)
    if engine == "sqlite":
        return await open_own_store(f"sqlite:///{folder / 'test.db'}", clock=clock)
    store: Store = await _find()(folder, clock)
    return store


@asynccontextmanager
async def fresh_store(engine: str, folder: Path, *, clock: Clock = SYSTEM) -> AsyncIterator[Store]:
    async with await open_fresh(engine, folder, clock=clock) as store:
        yield store


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def clock() -> Clock:
    return SYSTEM


@pytest.fixture
async def store(engine: str, tmp_path: Path, clock: Clock) -> AsyncIterator[Store]:
    async with await open_fresh(engine, tmp_path, clock=clock) as store:
        yield store


@pytest.fixture
async def open_again(store: Store, engine: str, tmp_path: Path, clock: Clock) -> AsyncIterator[OpenAgain]:
    async with AsyncExitStack() as stack:

        async def open_again() -> Store:
            return await stack.enter_async_context(await open_fresh(engine, tmp_path, clock=clock))

        yield open_again


@pytest.fixture
def set_run_at(tmp_path: Path) -> SetRunAt:
    if (given := _find("set_run_at")) is None:
        pytest.skip("the engine's module has no set_run_at")
    return partial(given, tmp_path)
