"""An app on a fresh file, and a hand that ends jobs as a worker would."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from drumbeat import Drumbeat
from drumbeat.core.job import OutcomeKind
from drumbeat.ids import InstanceId
from tests.conftest import fresh_url
from tests.contract import making


@pytest.fixture(params=["sqlite", "valkey"])
def app_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the jobs are: in a file, and across a network."""
    return fresh_url(request.param, tmp_path)


@pytest.fixture
async def app(app_url: str) -> AsyncIterator[Drumbeat]:
    async with Drumbeat(app_url) as app:
        yield app


class ManualWorker:
    """Claims everything that is due, and ends it in the way that a test asks for."""

    def __init__(self, app: Drumbeat, instance: InstanceId) -> None:
        self._app = app
        self._instance = instance

    async def claim(self) -> list[Any]:
        queues = sorted(self._app._internals.client.declared_queues())
        return await making.claim(await self._app._internals.store(), self._instance, *queues)

    async def end(self, kind: OutcomeKind, **facts: Any) -> list[Any]:
        jobs = await self.claim()
        await making.report(
            await self._app._internals.store(), self._instance, *(making.outcome(job, kind, **facts) for job in jobs)
        )
        return jobs


@pytest.fixture
async def hand(app: Drumbeat) -> ManualWorker:
    return ManualWorker(app, await making.worker(await app._internals.store()))
