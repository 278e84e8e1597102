"""The contract holds on each engine, and for a pair: jobs in one store, wake-ups, locks and rooms in another.

In `make test` the pair runs only the files that reach its second store: all other parts of a pair are the objects of its first
store (store/coordinated.py), which the same tests check as `postgres`. Older servers, PostgreSQL 16 and Redis 6.2, run
tests/engines and random histories (test_model.py, test_locks.py), fewer than the newest: the logic is that of the same
statements and scripts, and one that an older server does not know fails whenever it is sent. With DRUMBEAT_FULL=1
(`make system`) everything runs everywhere.
"""

import os
from functools import partial

import pytest

from tests.conftest import ENGINES, PAIRS, SetRunAt
from tests.contract import run_at

NEWEST = ["sqlite", "postgres", "valkey"]
REACH_SECOND_STORE = ("test_firing", "test_locks", "test_rooms", "test_wake")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "engine" not in metafunc.fixturenames or hasattr(metafunc.module, "engine"):
        return
    is_full = bool(os.environ.get("DRUMBEAT_FULL"))
    name = metafunc.module.__name__.rpartition(".")[2]
    pairs = list(PAIRS) if is_full or name in REACH_SECOND_STORE else []
    metafunc.parametrize("engine", [*(ENGINES if is_full else NEWEST), *pairs], indirect=True, scope="function")


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def set_run_at(store_url: str) -> SetRunAt:
    """Behind the store's back: by its operations, no job runs before it is due."""
    return partial(run_at.set_run_at, store_url)
