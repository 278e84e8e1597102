"""What the tests of the Redis engine share: the servers of all tests for most, one of its own for those that break it."""

from collections.abc import AsyncIterator, Iterator

import pytest

from drumbeat.redaction import mask_url
from drumbeat.store.redis import RedisAddress, RedisStore, parse_address
from tests.conftest import SERVERS
from tests.servers.redis import RedisServer, kinds

KINDS = kinds()
DURABLE = {"appendonly": "yes", "appendfsync": "always"}


def address_of(url: str) -> RedisAddress:
    return parse_address(url, mask_url(url))


async def open_redis(server: RedisServer) -> RedisStore:
    return await RedisStore.open(address_of(server.url))


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def server(kind: str) -> RedisServer:
    """The shared one: tests never stop it, and flush nothing but their own database."""
    shared = SERVERS[kind].server
    assert isinstance(shared, RedisServer)
    return shared


@pytest.fixture
def url(kind: str) -> str:
    """An empty database."""
    return SERVERS[kind].fresh_url()


@pytest.fixture
async def redis(url: str) -> AsyncIterator[RedisStore]:
    async with await RedisStore.open(address_of(url)) as store:
        yield store


@pytest.fixture
def own_server(kind: str) -> Iterator[RedisServer]:
    """Everything acknowledged is on disk."""
    with RedisServer(kind, DURABLE) as server:
        yield server
