"""The dashboard of `drumbeat run --dashboard`: a process of its own beside the workers.

A separate process, so that a handler that blocks its worker does not block the page on which to find the reason. It dies with
the process that started it, is restarted when it crashes, and stops last: a drain can be watched.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

from drumbeat import appref
from drumbeat.errors import ConfigError
from drumbeat.processes.entry import watch_parent
from drumbeat.processes.exit_codes import EXIT_CONFIG_ERROR, EXIT_OK, describe_exit
from drumbeat.processes.managed import ManagedProcess
from drumbeat.service import wait_task
from drumbeat.settings import Settings

log = logging.getLogger(__name__)

RESTART_DELAY = 5.0
STOP_TIMEOUT = 5.0


class DashboardProcess:
    """Keeps the process running, from a thread with its own loop: the workers' loop may be busy."""

    def __init__(self, ref: str, settings: Settings) -> None:
        self._ref = ref
        self._flags = appref.to_flags(settings)
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="drumbeat-dashboard", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the process, and wait for its exit."""
        with contextlib.suppress(RuntimeError):  # its loop is closed: nothing runs
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(2 * STOP_TIMEOUT)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._keep_running())
        finally:
            self._loop.close()

    async def _keep_running(self) -> None:
        async with wait_task(self._stopping) as stopping:
            while not self._stopping.is_set():
                process = ManagedProcess(
                    "drumbeat.web.dashboard_process:main",
                    {"ref": self._ref, "flags": self._flags},
                    label=f"drumbeat-dashboard {self._ref}",
                    with_main=appref.needs_main(self._ref),
                    dies_with_parent=True,
                )
                await asyncio.wait({process.exited, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if process.is_alive:
                    await process.stop(STOP_TIMEOUT)
                process.close()
                # After a configuration error it has logged the reason, and would fail again.
                if stopping.done() or process.exited.result() in (EXIT_OK, EXIT_CONFIG_ERROR):
                    return
                log.error("dashboard process died", extra={"exit": describe_exit(process.exited.result())})
                await asyncio.wait([stopping], timeout=RESTART_DELAY)


@contextlib.contextmanager
def dashboard_process(ref: str, settings: Settings) -> Iterator[None]:
    """Run a dashboard while the body runs.

    Raises:
        ConfigError: it may not listen there, or its packages are missing.
    """
    try:
        from drumbeat.web.server import listen
    except ImportError as missing:
        raise ConfigError(f"the dashboard needs packages: pip install 'drumbeat[web]' ({missing})") from missing
    listen(settings).close()  # raises here, before anything is started
    dashboard = DashboardProcess(ref, settings)
    dashboard.start()
    try:
        yield
    finally:
        dashboard.stop()


def main(link: socket.socket, *, prepare: Callable[[], None], ref: str, flags: dict[str, Any]) -> int:
    """The process itself."""
    from drumbeat.web.server import run

    watch_parent(link)
    try:
        app = appref.load(ref, prepare=prepare)
        app.configure(flags)
        return run(app._internals, on_ready=lambda address: log.info("dashboard is open", extra={"address": address}))
    except ConfigError as error:
        log.error("dashboard cannot start", extra={"reason": str(error)})
        return EXIT_CONFIG_ERROR
