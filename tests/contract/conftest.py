"""The contract holds on each engine, and for a pair: jobs in one store, wake-ups and locks in another.

On the older servers too, PostgreSQL 16 and Redis 6.2: all of it with DRUMBEAT_FULL=1 (`make chaos`), which else would take
`make test` two minutes more; there the random histories (test_model.py, test_locks.py) and tests/engines run on them.
"""

import os

import pytest

from tests.conftest import ENGINES, PAIRS

NEWEST = ["sqlite", "postgres", "valkey"]


@pytest.fixture(params=[*(ENGINES if os.environ.get("DRUMBEAT_FULL") else NEWEST), *PAIRS])
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name
