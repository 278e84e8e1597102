"""The contract holds on each engine, and for a pair: jobs in one store, wake-ups and locks in another."""

import pytest

from tests.conftest import ENGINES, PAIRS


@pytest.fixture(params=[*ENGINES, *PAIRS])
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name
