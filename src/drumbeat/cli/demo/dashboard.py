"""The dashboard of the demo: on this machine only, on this loop, because its buttons reach the worker processes."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from drumbeat.cli.demo.app import app
from drumbeat.cli.demo.buttons import DemoButtons
from drumbeat.cli.demo.workers import DemoWorkers
from drumbeat.errors import ConfigError
from drumbeat.settings import PREFIX, Settings
from drumbeat.settings_loader import resolve
from drumbeat.web import dashboard
from drumbeat.web.access import OPEN, is_loopback
from drumbeat.web.server import DashboardServer, listen, split_address, url_of

DEFAULT_ADDRESS, ANY_PORT = "127.0.0.1:7777", "127.0.0.1:0"


class DemoDashboard:
    """It has its address at once, so that it can be told; who comes early waits until it is served."""

    def __init__(self) -> None:
        self.listener = _open_listener()
        self.address = url_of(self.listener)

    @asynccontextmanager
    async def serve(self, crew: DemoWorkers) -> AsyncIterator[DemoButtons]:
        """Serve while the body runs; who looks on is told goodbye."""
        buttons = DemoButtons(app, crew)
        server = DashboardServer(dashboard(app._internals, OPEN, panels=[buttons.panel()]))
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve([self.listener]), name="dashboard")
            try:
                yield buttons
            finally:
                server.stop()


def _open_listener() -> socket.socket:
    """Where DRUMBEAT_DASHBOARD says; else on the usual port, or on any free one. No other setting of yours has a say here.

    Raises:
        ConfigError: that address cannot be had, or is not of this machine alone: the demo asks nobody who he is.
    """
    configured = {name: value for name in [f"{PREFIX}DASHBOARD"] if (value := os.environ.get(name))}
    if configured:
        settings = resolve({}, {}, configured, {})
        if not is_loopback(split_address(settings.dashboard)[0]):
            raise ConfigError(
                f"the demo's dashboard asks for no login, so it listens on this machine only: "
                f"DRUMBEAT_DASHBOARD={settings.dashboard} is not of it; use 127.0.0.1:PORT",
                "dashboard",
            )
        return listen(settings)
    try:
        return listen(msgspec.structs.replace(Settings(), dashboard=DEFAULT_ADDRESS))
    except ConfigError:
        return listen(msgspec.structs.replace(Settings(), dashboard=ANY_PORT))
