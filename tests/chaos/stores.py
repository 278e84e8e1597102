"""The store under test: a server of its own with a proxy before it, or a SQLite file; and what the nemesis may do to it."""

import os
import random
import signal
import sqlite3
import subprocess
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.chaos.proxy import FaultyProxy
from tests.engines.redis.conftest import DURABLE
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer


class ChaosStore:
    """A SQLite file. Another program may lock it."""

    faults: tuple[str, ...] = ("lock file", "step clock")

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self._path = folder / "jobs.db"
        self._stranger: sqlite3.Connection | None = None
        self.direct_url = self.url = f"sqlite:///{self._path}"
        self.proxy: FaultyProxy | None = None
        self.dice = dice
        self.stack = ExitStack()

    async def open(self) -> None:
        pass

    def save(self, folder: Path) -> None:
        """Keep what a server has, its log among it: `close` removes it. A SQLite file is in the run's folder anyway."""

    def close(self) -> None:
        self.heal()
        if self.proxy is not None:
            self.proxy.close()
        self.stack.close()

    def go_away(self, how: str) -> None:
        self._stranger = sqlite3.connect(self._path, isolation_level=None, timeout=30, check_same_thread=False)
        self._stranger.execute("BEGIN IMMEDIATE")

    def come_back(self, how: str) -> None:
        self.heal()

    def heal(self) -> None:
        if self._stranger is not None:
            self._stranger.close()
            self._stranger = None

    async def open_proxy(self, port: int) -> None:
        self.proxy = FaultyProxy(port, self.dice)
        await self.proxy.start()
        self.url = self.direct_url.replace(f":{port}", f":{self.proxy.port}")


NETWORK = ("cut", "delay", "lose answers", "tear", "swallow", "refuse")


class ChaosRedis(ChaosStore):
    faults = (*NETWORK, "restart", "hang")

    async def open(self) -> None:
        self.server = self.stack.enter_context(RedisServer("valkey", DURABLE))
        self.direct_url = self.server.url
        await self.open_proxy(self.server.port)

    def save(self, folder: Path) -> None:
        self.server.kill()
        _copy(self.server.folder, folder)

    def go_away(self, how: str) -> None:
        if how == "hang":
            self.server.pause()
        else:
            self.server.kill()

    def come_back(self, how: str) -> None:
        if how == "hang":
            self.server.go_on()
        else:
            self.server.start()

    def heal(self) -> None:
        pass


class ChaosPostgres(ChaosStore):
    faults = (*NETWORK, "restart", "hang", "kill backend")

    async def open(self) -> None:
        self.server = self.stack.enter_context(PostgresServer(in_memory=True))
        self.direct_url = self.server.url
        await self.open_proxy(self.server.port)

    def save(self, folder: Path) -> None:
        self.server.stop("immediate")
        _copy(self.server._folder, folder)

    def go_away(self, how: str) -> None:
        if how == "hang":
            self.server.signal_all(signal.SIGSTOP)
        elif how == "kill backend":
            self._kill_backend()
        else:
            self.server.stop("immediate")

    def come_back(self, how: str) -> None:
        if how == "hang":
            self.server.signal_all(signal.SIGCONT)
        elif how == "restart":
            self.server.start()

    def heal(self) -> None:
        pass

    def _kill_backend(self) -> None:
        """kill -9 of one of its processes: the server ends all others, and recovers by itself."""
        assert self.server._process is not None
        pid = self.server._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        with suppress(ProcessLookupError):
            os.kill(int(self.dice.choice(children)), signal.SIGKILL)


def _copy(source: Path, target: Path) -> None:
    """With the owners, so that a server can be started on it."""
    subprocess.run(["cp", "-a", source, target], check=True)


STORES = {"sqlite": ChaosStore, "postgres": ChaosPostgres, "redis": ChaosRedis}
