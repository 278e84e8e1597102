"""A server for a dashboard: uvicorn on one address. For `drumbeat dashboard` and `run --dashboard`.

An application that mounts `app.dashboard()` has its own server and does not use this.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import uvicorn

from drumbeat.admin import Admin
from drumbeat.errors import ConfigError, StoreUnavailable
from drumbeat.processes.signals import stop_on_signals
from drumbeat.web import dashboard
from drumbeat.web.access import OPEN, check_listener
from drumbeat.web.asgi import Dashboard
from drumbeat.web.connection_guard import ACCEPT_BATCH, ConnectionGuard, ConnectionLimits, default_limits, make_protocol

if TYPE_CHECKING:
    from drumbeat.settings import Settings

log = logging.getLogger(__name__)

SHUTDOWN_TIMEOUT = 3
"""Seconds that requests may continue after the server was stopped."""
BACKLOG = 256
SWEEP_TICKS = 5
"""In ticks of uvicorn, 0.1 s each."""
SEND_BUFFER_BYTES = 64 * 1024
"""The kernel's send buffer: a client that does not read is detected when it is full."""


class DashboardServer(uvicorn.Server):
    """uvicorn without its signal handlers: Drumbeat handles signals itself."""

    def __init__(self, board: Dashboard, limits: ConnectionLimits | None = None) -> None:
        self.guard = ConnectionGuard(limits or default_limits())
        board.state.streams.set_limits(self.guard.limits.streams, self.guard.limits.streams_per_caller)
        super().__init__(
            uvicorn.Config(
                board,
                log_config=None,
                log_level="warning",
                access_log=False,
                # access.py identifies callers by the peer's real address.
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
            # uvicorn uses its backlog option for both; only the accept batch should be small.
            listener.listen(BACKLOG)

    async def on_tick(self, counter: int) -> bool:
        if counter % SWEEP_TICKS == 0:
            self.guard.sweep()
        return await super().on_tick(counter)

    def stop(self) -> None:
        """End open event streams and return from `serve`."""
        self._board.state.is_closing = True
        self.should_exit = True


def split_address(address: str) -> tuple[str, int]:
    """Split the setting HOST:PORT."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def listen(settings: Settings) -> socket.socket:
    """A socket on the address of the settings.

    Raises:
        ConfigError: no access control for that address, or it is in use.
    """
    host, port = split_address(settings.dashboard)
    check_listener(settings, host)
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigError(f"the dashboard cannot listen on {settings.dashboard}: {error}", "dashboard") from error
    # Inherited by every connection. asyncio does not set it here: responses would wait 40 ms between head and body.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    return listener


def url_of(listener: socket.socket) -> str:
    """The URL for browsers."""
    host, port = listener.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/"


async def serve(
    app: Admin, *, on_ready: Callable[[str], None], stop_scope: Callable[[Callable[[], None]], Any]
) -> None:
    """Serve the dashboard of this app until stopped.

    `on_ready` is called with the URL. `stop_scope` returns a context manager that calls its argument to stop the server.
    An unavailable store does not stop the server: that is when people look at it.
    """
    with listen(app.settings) as listener:
        server = DashboardServer(dashboard(app, OPEN))
        with stop_scope(server.stop):
            await _try_store(app)
            on_ready(url_of(listener))
            await server.serve([listener])


async def _try_store(host: Admin) -> None:
    try:
        await host.store()
    except StoreUnavailable as error:
        log.warning("store unavailable at start", extra={"reason": str(error)})


def run(app: Admin, *, on_ready: Callable[[str], None]) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code."""
    asyncio.run(serve(app, on_ready=on_ready, stop_scope=stop_on_signals))
    return 0
