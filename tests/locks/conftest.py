"""Two programs on one store: each has its own keeper, as two processes would."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from drumbeat import Drumbeat
from tests.conftest import fresh_url
from tests.faults import FaultyStore

QUICK_LEASES: dict[str, Any] = {"lock_lease": 0.9, "lock_renew": 0.2}


class FaultyApp(Drumbeat):
    """Its keeper and its tasks talk to faulty stores."""

    keeper_store: FaultyStore
    tasks_store: FaultyStore | None = None

    def __init__(self, url: str, **settings: Any) -> None:
        super().__init__(url, **settings)
        self._real_store, self._real_open_store = self._internals.store, self._internals.open_store
        self._internals.store = self._store  # type: ignore[method-assign]
        self._internals.open_store = self._open_store  # type: ignore[method-assign]

    async def _store(self) -> Any:
        self.tasks_store = self.tasks_store or FaultyStore(await self._real_store())
        return self.tasks_store

    async def _open_store(self) -> Any:
        self.keeper_store = FaultyStore(await self._real_open_store())
        return self.keeper_store


@pytest.fixture(params=["sqlite", "postgres", "valkey"])
def app_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_url(request.param, tmp_path)


@pytest.fixture
async def app(app_url: str) -> AsyncIterator[Drumbeat]:
    async with Drumbeat(app_url, name="one") as app:
        yield app


@pytest.fixture
async def other(app_url: str) -> AsyncIterator[Drumbeat]:
    async with Drumbeat(app_url, name="two") as app:
        yield app


@pytest.fixture
async def faulty(app_url: str) -> AsyncIterator[FaultyApp]:
    async with FaultyApp(app_url, name="faulty", **QUICK_LEASES) as app:
        yield app
