"""A thread that tells those who keep this process running how it is: an HTTP endpoint or a file, systemd, a supervisor.

HealthSource --asked every second, and at each request--> HealthReporter --> HealthServer
(of a worker or a supervisor)                                            --> HealthFile, ServiceNotifier, a parent: outlets
"""

import asyncio
import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol

from drumbeat.processes.health import HealthSource, ProcessHealth
from drumbeat.processes.health_file import HealthFile
from drumbeat.processes.health_server import HealthServer, listen
from drumbeat.processes.service_notifier import ServiceNotifier
from drumbeat.settings import Settings

log = logging.getLogger(__name__)

MAX_INTERVAL = 1.0
JOIN_TIMEOUT = 2.0


class HealthOutlet(Protocol):
    @property
    def interval(self) -> float | None:
        """The longest time in seconds between two reports; None: any."""
        ...

    def tell(self, report: ProcessHealth) -> None: ...

    def close(self) -> None:
        """The process stops."""
        ...


class HealthReporter:
    def __init__(
        self, source: HealthSource, outlets: Sequence[HealthOutlet], *, server: HealthServer | None, dead_after: float
    ) -> None:
        self._source = source
        self._outlets = outlets
        self._server = server
        # Several times within `dead_after`: whoever hears nothing for that long takes us for dead.
        wanted = [dead_after / 4, *(each.interval for each in outlets if each.interval is not None)]
        self._interval = min(MAX_INTERVAL, *wanted)
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._work, name="drumbeat-health", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with suppress(RuntimeError):  # its loop is closed
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(JOIN_TIMEOUT)

    def _work(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        server = None if self._server is None else await self._server.start()
        while not self._stopping.is_set():
            report = self._source.report()
            for outlet in self._outlets:
                outlet.tell(report)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval):
                    await self._stopping.wait()
        for outlet in self._outlets:
            outlet.close()
        if server is not None:
            server.close()


@contextmanager
def report_health(
    source: HealthSource,
    settings: Settings,
    *,
    notifier: ServiceNotifier | None = None,
    parent: HealthOutlet | None = None,
) -> Iterator[None]:
    """Report the health of this process while the body runs, to whom the settings and the environment name.

    Raises:
        ConfigError: the address is taken, or the file cannot be written.
    """
    outlets: list[HealthOutlet] = [each for each in (notifier, parent) if each is not None]
    server = None
    if settings.health is not None and parent is None:  # else the supervisor reports for all
        if settings.health.startswith("/"):
            outlets.append(HealthFile(settings.health))
        else:
            listener = listen(settings.health)
            server = HealthServer(listener, source)
            host, port = listener.getsockname()[:2]
            log.info("health endpoint is open", extra={"address": f"{host}:{port}"})
    if server is None and not outlets:
        yield
        return
    reporter = HealthReporter(source, outlets, server=server, dead_after=settings.dead_after)
    reporter.start()
    try:
        yield
    finally:
        reporter.stop()
