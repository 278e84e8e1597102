"""PgBouncer before a test's PostgreSQL, where the machine has it (Debian: `apt install pgbouncer`)."""

import os
import shutil
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.servers import folders
from tests.servers.ports import free_port
from tests.servers.postgres import NOBODY, PASSWORD, PostgresServer, as_nobody
from tests.waiting import until_sync

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")

_CONFIG = """
[databases]
* = host=127.0.0.1 port={server} user=postgres password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = {size}
server_lifetime = 60
server_login_retry = 1
logfile = {folder}/log
pidfile = {folder}/pid
"""


class PgBouncer:
    """Two connections to the server for however many clients: whoever relies on a session is found out."""

    def __init__(self, server: PostgresServer, *, mode: str = "transaction", size: int = 2) -> None:
        self._server = server
        self._mode = mode
        self._size = size
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Path()
        self.port = 0

    def url_of(self, database: str) -> str:
        told = "?pooler=transaction" if self._mode == "transaction" else ""
        return f"postgresql://postgres:{PASSWORD}@127.0.0.1:{self.port}/{database}{told}"

    def __enter__(self) -> Self:
        self._folder = folders.make("pgbouncer")
        self.port = free_port()
        facts = {"server": self._server.port, "password": PASSWORD, "port": self.port, "folder": self._folder}
        self._config.write_text(_CONFIG.format(**facts, mode=self._mode, size=self._size))
        if os.getuid() == 0:
            for path in (self._folder, self._config):
                os.chown(path, NOBODY, NOBODY)
        self.start()
        return self

    @property
    def _config(self) -> Path:
        return self._folder / "pgbouncer.ini"

    def start(self) -> None:
        """Also again, on the same port."""
        assert PROGRAM is not None
        self._process = subprocess.Popen(
            [PROGRAM, "-q", str(self._config)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self._folder,
            **as_nobody(),
        )
        until_sync(self._answers, what="PgBouncer's start")

    def kill(self) -> None:
        """Harmless twice."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        (self._folder / "pid").unlink(missing_ok=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            log = self._folder / "log"
            raise AssertionError(f"PgBouncer ended at once:\n{log.read_text() if log.exists() else ''}")
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True
        except OSError:
            return False
