"""A dashboard on a real socket, on the loop of the test, and somebody who reads its event stream."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx

from drumbeat.web import Dashboard
from drumbeat.web.connections import ConnectionLimits
from drumbeat.web.server import SEND_BUFFER, Server

EVENTS = "/api/v1/events"
PATIENCE = 15.0


class Told(NamedTuple):
    kind: str
    data: Any


@asynccontextmanager
async def served(board: Dashboard, limits: ConnectionLimits | None = None) -> AsyncIterator[tuple[str, Server]]:
    """Its address, and the server itself."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        server = Server(board, limits)
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(server.serve([listener]), name="server")
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}", server
            finally:
                server.stop()


@asynccontextmanager
async def following(address: str, path: str = EVENTS) -> AsyncIterator[AsyncIterator[Told]]:
    """What the stream tells, one by one; the connection is closed at the end."""
    async with (
        httpx.AsyncClient(base_url=address, timeout=PATIENCE) as browser,
        browser.stream("GET", path) as answer,
    ):
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        yield _events(answer)


async def _events(answer: httpx.Response) -> AsyncIterator[Told]:
    kind = ""
    async for line in answer.aiter_lines():
        name, _, value = line.partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            yield Told(kind, json.loads(value))
