"""Where the examples that tests play have their jobs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import SERVERS

Place = tuple[str, dict[str, str]]
"""The URL of the store, and what must be set for it."""


@pytest.fixture(params=["usual file", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A file in the folder of the example, for which nothing must be set, and a database."""
    if request.param == "usual file":
        yield f"sqlite:///{tmp_path / 'drumbeat.db'}", {}
        return
    url = SERVERS[request.param].fresh_url()
    yield url, {"DRUMBEAT_URL": url}
    SERVERS[request.param].give_back(url)
