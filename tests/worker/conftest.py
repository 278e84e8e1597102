from pathlib import Path

import pytest

from drumbeat.app import Drumbeat
from tests.conftest import fresh_url
from tests.worker.worker_harness import EventRecorder


@pytest.fixture(params=["sqlite", "valkey"])
def app_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the worker works: in a file, and across a network."""
    return fresh_url(request.param, tmp_path)


@pytest.fixture
async def app(app_url: str) -> Drumbeat:
    return Drumbeat(app_url)


@pytest.fixture
def recorder(app: Drumbeat) -> EventRecorder:
    return EventRecorder(app)
