"""An app on a fresh file, and the brokers that its jobs are sent to."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from drumbeat import Drumbeat
from tests.servers.redis import RedisServer


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Drumbeat]:
    async with Drumbeat(f"sqlite:///{tmp_path / 'test.db'}", name="shop") as app:
        yield app


@pytest.fixture
def broker() -> Iterator[RedisServer]:
    """A server of the test's own: it may be killed, paused and filled."""
    with RedisServer() as server:
        yield server
