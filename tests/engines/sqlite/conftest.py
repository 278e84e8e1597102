"""What the tests of the SQLite engine share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from drumbeat.clock import Clock
from drumbeat.store.sqlite import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "engine.db"


@pytest.fixture
async def sqlite(path: Path, clock: Clock) -> AsyncIterator[SqliteStore]:
    async with await SqliteStore.open(path, url=f"sqlite:///{path}", clock=clock) as store:
        yield store
