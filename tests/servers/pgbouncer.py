"""PgBouncer in transaction mode before a test's PostgreSQL, where the machine has it (Debian: `apt install pgbouncer`)."""

import os
import shutil
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.servers import folders
from tests.servers.ports import free_port
from tests.servers.postgres import NOBODY, PASSWORD, PostgresServer
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
pool_mode = transaction
default_pool_size = 2
server_lifetime = 60
logfile = {folder}/log
pidfile = {folder}/pid
"""


class PgBouncer:
    """Two connections to the server for however many clients: whoever relies on a session is found out."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Path()
        self.port = 0

    def url_of(self, database: str) -> str:
        return f"postgresql://postgres:{PASSWORD}@127.0.0.1:{self.port}/{database}?pooler=transaction"

    def __enter__(self) -> Self:
        assert PROGRAM is not None
        self._folder = folders.make("pgbouncer")
        self.port = free_port()
        config = self._folder / "pgbouncer.ini"
        facts = {"server": self._server.port, "password": PASSWORD, "port": self.port, "folder": self._folder}
        config.write_text(_CONFIG.format(**facts))
        is_root = os.getuid() == 0
        if is_root:
            for path in (self._folder, config):
                os.chown(path, NOBODY, NOBODY)
        who = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if is_root else {}
        self._process = subprocess.Popen(  # type: ignore[call-overload]
            [PROGRAM, "-q", str(config)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self._folder,
            **who,
        )
        until_sync(self._answers, what="PgBouncer's start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
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
