"""What the tests of the PostgreSQL engine share: the server of all tests for most, one of its own for those that break it."""

from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from drumbeat.redaction import mask_url
from drumbeat.store.postgres import PostgresAddress, PostgresStore, parse_address
from tests.conftest import SERVERS
from tests.servers.postgres import PostgresServer


def address_of(url: str) -> PostgresAddress:
    return parse_address(url, mask_url(url))


@pytest.fixture
def server() -> PostgresServer:
    """The shared one: tests create databases and roles in it, and never stop it."""
    shared = SERVERS["postgres"].server
    assert isinstance(shared, PostgresServer)
    return shared


@pytest.fixture
def url() -> str:
    """A fresh database with tables."""
    return SERVERS["postgres"].fresh_url()


@pytest.fixture
async def postgres(url: str) -> AsyncIterator[PostgresStore]:
    async with await PostgresStore.open(address_of(url)) as store:
        yield store


@pytest.fixture
async def raw(url: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """A separate connection to the same database."""
    connection = await asyncpg.connect(url)
    yield connection
    await connection.close()


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    with PostgresServer(in_memory=True) as server:
        yield server
