"""The dashboard of the demo: on this machine only, on this loop, because its buttons reach the worker processes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from drumbeat.cli.demo.app import app
from drumbeat.cli.demo.buttons import Buttons
from drumbeat.cli.demo.crew import Crew
from drumbeat.errors import ConfigError
from drumbeat.settings import Settings
from drumbeat.web import dashboard
from drumbeat.web.access import OPEN
from drumbeat.web.server import Server, address_of, listen

USUAL, ANY = "127.0.0.1:7777", "127.0.0.1:0"


class Board:
    """It has its address at once, so that it can be told; who comes early waits until it is served."""

    def __init__(self) -> None:
        self.listener = _listener()
        self.address = address_of(self.listener)

    @asynccontextmanager
    async def served(self, crew: Crew) -> AsyncIterator[Buttons]:
        """Serve while the body runs; who looks on is told goodbye."""
        buttons = Buttons(app, crew)
        server = Server(dashboard(app, OPEN, extra=[buttons.panel()]))
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve([self.listener]), name="dashboard")
            try:
                yield buttons
            finally:
                server.stop()


def _listener() -> socket.socket:
    """On the usual port, or on any free one."""
    try:
        return listen(msgspec.structs.replace(Settings(), dashboard=USUAL))
    except ConfigError:
        return listen(msgspec.structs.replace(Settings(), dashboard=ANY))
