"""The store under test: a server of its own with a proxy before it, or a SQLite file; and what the nemesis may do to it."""

import os
import random
import signal
import sqlite3
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.chaos.cluster import ChaosProcess
from tests.chaos.journal import Entry
from tests.chaos.proxy import FaultyProxy
from tests.chaos.shared_clock import SharedClock
from tests.engines.redis.conftest import DURABLE
from tests.proof.history import History
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer


class ChaosStore:
    """A SQLite file. Another program may lock it."""

    faults: tuple[str, ...] = ("lock file", "step clock")
    fault_share = 0.34
    """Of all faults."""
    isolation: tuple[str, ...] = ()
    """Namespaces of its own that the run needs, as `unshare` takes them."""
    server_clock: SharedClock | None = None
    """The clock of a server that can be stepped."""
    is_halting = False
    """A fault ends all processes: nobody else may, and none is started again meanwhile."""
    processes: Sequence[ChaosProcess] = ()
    proxy_address = fence_address = "127.0.0.1"

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self._path = folder / "jobs.db"
        self._stranger: sqlite3.Connection | None = None
        self.direct_url = self.url = f"sqlite:///{self._path}"
        self.proxy: FaultyProxy | None = None
        self.dice = dice
        self.stack = ExitStack()

    @classmethod
    def find_obstacle(cls) -> str | None:
        """What this machine lacks for it; None: nothing."""
        return None

    async def open(self) -> None:
        pass

    def place(self, name: str, command: list[str]) -> list[str]:
        """The command of a process, to be run where it belongs."""
        return command

    def find_concerned(self, how: str) -> set[str] | None:
        """The names of the processes that a fault concerns; None: all."""
        return None

    def judge(self, entries: Sequence[Entry], history: History) -> list[str]:
        """Violations of what is promised here in addition; what is not promised here is taken out of the history."""
        return []

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
        await self.proxy.start(self.proxy_address)
        self.url = self.direct_url.replace(f"127.0.0.1:{port}", f"{self.proxy_address}:{self.proxy.port}")

    def point_proxy(self, port: int) -> None:
        """New connections go to another server."""
        assert self.proxy is not None
        self.proxy.target = port


NETWORK = ("cut", "delay", "lose answers", "tear", "swallow", "refuse")


class ChaosRedis(ChaosStore):
    faults: tuple[str, ...] = (*NETWORK, "restart", "hang")

    async def open(self) -> None:
        self.server = self.stack.enter_context(self.make_server())
        self.direct_url = self.server.url
        await self.open_proxy(self.server.port)

    def make_server(self) -> RedisServer:
        return RedisServer("valkey", DURABLE)

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
    faults: tuple[str, ...] = (*NETWORK, "restart", "hang", "kill backend")

    async def open(self) -> None:
        self.server = self.stack.enter_context(self.make_server())
        self.direct_url = self.server.url
        await self.open_proxy(self.server.port)

    def make_server(self) -> PostgresServer:
        return PostgresServer(in_memory=True)

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
