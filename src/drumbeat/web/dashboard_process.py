"""The dashboard of `drumbeat run --dashboard`: a process of its own beside the workers.

Of its own, so that a handler that holds up its worker does not hold up the page on which somebody looks for the reason. It dies
with the process that started it, is started again when it dies by itself, and is the last to leave: a drain can be watched.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

from drumbeat import appref
from drumbeat.errors import ConfigError
from drumbeat.settings import Settings
from drumbeat.spawn import Spawned, describe_exit, spawn

log = logging.getLogger(__name__)

EXIT_CONFIG_ERROR = 2
RESTART_DELAY = 5.0
STOP_TIMEOUT = 5.0


class DashboardProcess:
    """Keeps the process, from a thread: the loop of the workers may be busy."""

    def __init__(self, ref: str, settings: Settings) -> None:
        self._ref = ref
        self._flags = appref.to_flags(settings)
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._spawned: Spawned | None = None
        self._thread = threading.Thread(target=self._supervise, name="drumbeat-dashboard", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End it, and wait until it has ended."""
        self._stopping.set()
        with self._lock:
            if self._spawned is not None:
                self._spawned.process.terminate()
        self._thread.join(STOP_TIMEOUT)
        with self._lock:
            if self._spawned is not None:
                self._spawned.process.kill()

    def _supervise(self) -> None:
        while not self._stopping.is_set():
            code = self._run_once()
            if self._stopping.is_set() or code == 0:
                return
            if code == EXIT_CONFIG_ERROR:
                return  # it has said why, and would say it again
            log.error("dashboard process died", extra={"how": describe_exit(code)})
            self._stopping.wait(RESTART_DELAY)

    def _run_once(self) -> int:
        with self._lock:
            if self._stopping.is_set():
                return 0
            self._spawned = spawned = spawn(
                "drumbeat.web.dashboard_process:main",
                {"ref": self._ref, "flags": self._flags},
                label=f"drumbeat-dashboard {self._ref}",
                with_main=appref.needs_main(self._ref),
                dies_with_parent=True,
            )
        code = spawned.process.wait()
        with self._lock:
            self._spawned = None
        spawned.link.close()
        spawned.lifeline.close()
        return code


@contextlib.contextmanager
def dashboard_process(ref: str, settings: Settings) -> Iterator[None]:
    """Have a dashboard while the body runs.

    Raises:
        ConfigError: it may not listen there, or its packages are missing.
    """
    try:
        from drumbeat.web.server import listen
    except ImportError as missing:
        raise ConfigError(f"the dashboard needs packages: pip install 'drumbeat[web]' ({missing})") from missing
    listen(settings).close()  # told here, before anything is started
    beside = DashboardProcess(ref, settings)
    beside.start()
    try:
        yield
    finally:
        beside.stop()


def main(link: socket.socket, *, prepare: Callable[[], None], ref: str, flags: dict[str, Any]) -> int:
    """The process itself."""
    from drumbeat.web.server import run

    threading.Thread(target=_exit_when_orphaned, args=[link], name="drumbeat-lifeline", daemon=True).start()
    try:
        app = appref.load(ref, prepare=prepare)
        app.configure(flags)
        return run(app._internals, on_ready=lambda address: log.info("dashboard is open", extra={"address": address}))
    except ConfigError as error:
        log.error("dashboard cannot start", extra={"reason": str(error)})
        return EXIT_CONFIG_ERROR


def _exit_when_orphaned(link: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while link.recv(1):
            pass
    os.kill(os.getpid(), signal.SIGTERM)
