"""The server that forwarded jobs are posted to. No fault concerns it, but it is no good server: it refuses, delays, and closes
connections before or after it has taken a message. What it took is written down before it says so."""

import asyncio
import random
from contextlib import suppress

from drumbeat.clock import SYSTEM
from tests.chaos import journal

REFUSED = 0.02
SILENT = 0.02
"""The share of requests that are taken, and whose connection is closed without an answer."""
BUSY = 0.002
"""Answered with 503, which stops the sink for half a second and more."""


class Receiver:
    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._server: asyncio.Server | None = None
        self.url = ""

    async def start(self, address: str = "127.0.0.1") -> None:
        self._server = await asyncio.start_server(self._serve, address, 0)
        self.url = f"http://{address}:{self._server.sockets[0].getsockname()[1]}/"

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError, asyncio.IncompleteReadError):
            while await self._answer(reader, writer):
                pass
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Take one request. Returns whether the connection stays."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
        await reader.readexactly(int(headers["content-length"]))
        chance = self._dice.random()
        status = 500 if chance < REFUSED else 503 if chance < REFUSED + BUSY else 200
        is_silent = status == 200 and chance > 1 - SILENT
        journal.write("delivered", job=headers["idempotency-key"], taken=status == 200, answered=not is_silent)
        if is_silent:
            return False
        if chance > 0.9:
            await SYSTEM.sleep(0.02)
        writer.write(f"HTTP/1.1 {status} -\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()
        return True
