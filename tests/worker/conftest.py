from pathlib import Path

import pytest

from drumbeat.app import Drumbeat
from tests.worker.harness import Recorder


@pytest.fixture
async def app(tmp_path: Path) -> Drumbeat:
    return Drumbeat(f"sqlite:///{tmp_path}/jobs.db")


@pytest.fixture
def recorder(app: Drumbeat) -> Recorder:
    return Recorder(app)
