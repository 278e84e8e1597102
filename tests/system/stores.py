"""Stores of a test's own that can be taken away from those who use them, in each of the ways in which that happens."""

import asyncio
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from drumbeat.store.urls import migrate_store, open_store
from tests.engines.redis.conftest import DURABLE
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer


class OwnStore(Protocol):
    url: str

    def go_away(self) -> None: ...
    def come_back(self) -> None: ...


class LockedFile:
    """A file that another program has locked for writing."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "jobs.db"
        self._stranger: sqlite3.Connection | None = None
        self.url = f"sqlite:///{self._path}"

    def go_away(self) -> None:
        self._stranger = sqlite3.connect(self._path, isolation_level=None, timeout=30)
        self._stranger.execute("BEGIN IMMEDIATE")

    def come_back(self) -> None:
        if self._stranger is not None:
            self._stranger.close()
            self._stranger = None


class GoneRedis:
    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self.url = server.url

    def go_away(self) -> None:
        self._server.kill()

    def come_back(self) -> None:
        self._server.start()


class HungRedis(GoneRedis):
    """Connections stay open, without answers."""

    def go_away(self) -> None:
        self._server.pause()

    def come_back(self) -> None:
        self._server.go_on()


class GonePostgres:
    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self.url = server.url

    def go_away(self) -> None:
        self._server.stop("immediate")

    def come_back(self) -> None:
        self._server.start()

    def close(self) -> None:
        """Before its server is ended."""


class HungPostgres(GonePostgres):
    def go_away(self) -> None:
        self._server.signal_all(signal.SIGSTOP)

    def come_back(self) -> None:
        self._server.signal_all(signal.SIGCONT)

    def close(self) -> None:
        self.come_back()  # or it would not hear that it is to end


@contextmanager
def _locked(folder: Path) -> Iterator[OwnStore]:
    store = LockedFile(folder)
    try:
        yield store
    finally:
        store.come_back()


def _redis(kind: type[GoneRedis]) -> Callable[[Path], AbstractContextManager[OwnStore]]:
    @contextmanager
    def made(folder: Path) -> Iterator[OwnStore]:
        with RedisServer("valkey", DURABLE) as server:
            yield kind(server)

    return made


def _postgres(kind: type[GonePostgres]) -> Callable[[Path], AbstractContextManager[OwnStore]]:
    @contextmanager
    def made(folder: Path) -> Iterator[OwnStore]:
        with PostgresServer(in_memory=True) as server:
            store = kind(server)
            try:
                yield store
            finally:
                store.close()

    return made


GONE = {"sqlite locked": _locked, "redis gone": _redis(GoneRedis), "postgres gone": _postgres(GonePostgres)}
HUNG = {"redis hung": _redis(HungRedis), "postgres hung": _postgres(HungPostgres)}


@contextmanager
def own_store(how: str, folder: Path) -> Iterator[OwnStore]:
    """Ready to be used."""
    with (GONE | HUNG)[how](folder) as store:
        asyncio.run(_prepared(store.url))
        yield store


async def _prepared(url: str) -> None:
    await migrate_store(url)
    async with await open_store(url):
        pass
