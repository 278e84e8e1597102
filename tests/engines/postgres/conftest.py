"""What the tests of the PostgreSQL engine share: one server for most of them, one of its own for those that break it."""

from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from drumbeat.store.postgres import Address, PostgresStore, address
from drumbeat.store.urls import masked
from tests.servers.postgres import Databases, PostgresServer

DATABASES = Databases()


def at(url: str) -> Address:
    return address(url, masked(url))


@pytest.fixture
def server() -> PostgresServer:
    """The shared one: tests create databases and roles in it, and never stop it."""
    return DATABASES.server


@pytest.fixture
def url() -> str:
    """A fresh database with tables."""
    return DATABASES.fresh_url()


@pytest.fixture
async def postgres(url: str) -> AsyncIterator[PostgresStore]:
    async with await PostgresStore.open(at(url)) as store:
        yield store


@pytest.fixture
async def raw(url: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """A connection of somebody else to the same database."""
    connection = await asyncpg.connect(url)
    yield connection
    await connection.close()


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server
