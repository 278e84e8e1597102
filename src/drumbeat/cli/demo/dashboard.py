"""The dashboard of the demo: on the loopback address only, and on this loop, because its buttons control the workers."""

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
    """Listens at once, so that its address can be shown; early requests wait until it serves."""

    def __init__(self) -> None:
        self.listener = _open_listener()
        self.address = url_of(self.listener)

    @asynccontextmanager
    async def serve(self, workers: DemoWorkers) -> AsyncIterator[DemoButtons]:
        """Serve while the body runs; open event streams are closed at the end."""
        buttons = DemoButtons(app, workers)
        server = DashboardServer(dashboard(app._internals, OPEN, panels=[buttons.panel()]))
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve([self.listener]), name="dashboard")
            try:
                yield buttons
            finally:
                server.stop()


def _open_listener() -> socket.socket:
    """On DRUMBEAT_DASHBOARD; else on the default port, or any free one. No other setting of the environment counts.

    Raises:
        ConfigError: the address is taken, or is no loopback address: the demo has no login.
    """
    configured = {name: value for name in [f"{PREFIX}DASHBOARD"] if (value := os.environ.get(name))}
    if configured:
        settings = resolve({}, {}, configured, {})
        if not is_loopback(split_address(settings.dashboard)[0]):
            raise ConfigError(
                f"the demo's dashboard has no login, so it listens on a loopback address only: "
                f"DRUMBEAT_DASHBOARD={settings.dashboard} is none; use 127.0.0.1:PORT",
                "dashboard",
            )
        return listen(settings)
    try:
        return listen(msgspec.structs.replace(Settings(), dashboard=DEFAULT_ADDRESS))
    except ConfigError:
        return listen(msgspec.structs.replace(Settings(), dashboard=ANY_PORT))
