"""A dashboard on a real socket, on the loop of the test, and somebody who reads its event stream."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx

from drumbeat.web import Dashboard
from drumbeat.web.connection_guard import ConnectionLimits
from drumbeat.web.server import SEND_BUFFER_BYTES, DashboardServer

EVENTS = "/api/v1/events"
READ_TIMEOUT = 15.0


class ServerSentEvent(NamedTuple):
    kind: str
    data: Any


@asynccontextmanager
async def serve_dashboard(
    board: Dashboard, limits: ConnectionLimits | None = None
) -> AsyncIterator[tuple[str, DashboardServer]]:
    """Its address, and the server itself."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        server = DashboardServer(board, limits)
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(server.serve([listener]), name="server")
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}", server
            finally:
                server.stop()


@asynccontextmanager
async def follow_events(address: str, path: str = EVENTS) -> AsyncIterator[AsyncIterator[ServerSentEvent]]:
    """What the stream tells, one by one; the connection is closed at the end."""
    async with (
        httpx.AsyncClient(base_url=address, timeout=READ_TIMEOUT) as browser,
        browser.stream("GET", path) as answer,
    ):
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        yield _events(answer)


async def _events(answer: httpx.Response) -> AsyncIterator[ServerSentEvent]:
    kind = ""
    async for line in answer.aiter_lines():
        name, _, value = line.partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            yield ServerSentEvent(kind, json.loads(value))
