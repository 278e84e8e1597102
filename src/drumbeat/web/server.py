"""Serving a dashboard by itself: uvicorn on one address, until told to stop. For `drumbeat dashboard` and `run --dashboard`.

A program that mounts `app.dashboard()` has a server of its own and needs none of this.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import uvicorn

from drumbeat.errors import ConfigError, StoreUnavailable
from drumbeat.processes.signals import stop_on_signals
from drumbeat.protocols import DashboardApp
from drumbeat.web import dashboard
from drumbeat.web.access import OPEN, check_listener
from drumbeat.web.asgi import Dashboard
from drumbeat.web.connection_guard import ACCEPT_BATCH, ConnectionGuard, ConnectionLimits, default_limits, make_protocol

if TYPE_CHECKING:
    from drumbeat.settings import Settings

log = logging.getLogger(__name__)

SHUTDOWN_TIMEOUT = 3
"""So many seconds requests may go on after the server was told to stop."""
BACKLOG = 256
SWEEP_TICKS = 5
"""Ticks of uvicorn's, of a tenth of a second."""
SEND_BUFFER_BYTES = 64 * 1024
"""Bytes that the kernel keeps for a client: one that does not read is found out when it is full."""


class DashboardServer(uvicorn.Server):
    """uvicorn without its hands on the signals: they are ours, and a stop that was asked for is no death by a signal."""

    def __init__(self, board: Dashboard, limits: ConnectionLimits | None = None) -> None:
        self.guard = ConnectionGuard(limits or default_limits())
        board.state.streams.set_limits(self.guard.limits.streams, self.guard.limits.streams_per_caller)
        super().__init__(
            uvicorn.Config(
                board,
                log_config=None,
                log_level="warning",
                access_log=False,
                # Who calls is decided by `access.py`, from the peer's real address.
                proxy_headers=False,
                server_header=False,
                http=make_protocol(self.guard),
                backlog=ACCEPT_BATCH,
                ws="none",
                lifespan="off",
                timeout_graceful_shutdown=SHUTDOWN_TIMEOUT,
            )
        )
        self._board = board

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            # uvicorn takes how many are accepted at once for the length of the line, too.
            listener.listen(BACKLOG)

    async def on_tick(self, counter: int) -> bool:
        if counter % SWEEP_TICKS == 0:
            self.guard.sweep()
        return await super().on_tick(counter)

    def stop(self) -> None:
        """End what is open, event streams at once, and return from `serve`."""
        self._board.state.is_closing = True
        self.should_exit = True


def split_address(address: str) -> tuple[str, int]:
    """HOST:PORT, as the setting has been read."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def listen(settings: Settings) -> socket.socket:
    """A socket on the address of the settings.

    Raises:
        ConfigError: others could come there, and nobody would ask who they are; or the address cannot be had.
    """
    host, port = split_address(settings.dashboard)
    check_listener(settings, host)
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigError(f"the dashboard cannot listen on {settings.dashboard}: {error}", "dashboard") from error
    # Inherited by every connection. asyncio sets it only where it is told that the protocol is TCP, and here nobody tells it:
    # each answer would wait 40 ms between its head and its body.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    return listener


def url_of(listener: socket.socket) -> str:
    """Where a browser finds it."""
    host, port = listener.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/"


async def serve(
    app: DashboardApp, *, on_ready: Callable[[str], None], stop_scope: Callable[[Callable[[], None]], Any]
) -> None:
    """Serve the dashboard of this app until stopped.

    `ready` is told the address; `stopping` gives a context manager within which it calls the function it is given when the
    server shall stop. A store that is away is waited for: that is when people look.
    """
    with listen(app.settings) as listener:
        server = DashboardServer(dashboard(app, OPEN))
        with stop_scope(server.stop):
            await _try_store(app)
            on_ready(url_of(listener))
            await server.serve([listener])


async def _try_store(host: DashboardApp) -> None:
    try:
        await host.store()
    except StoreUnavailable as error:
        log.warning("store unavailable at start", extra={"reason": str(error)})


def run(app: DashboardApp, *, on_ready: Callable[[str], None]) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code."""
    asyncio.run(serve(app, on_ready=on_ready, stop_scope=stop_on_signals))
    return 0
