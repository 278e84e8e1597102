"""A TCP proxy before a server that cuts connections, delays, loses answers, tears them, and swallows everything."""

import asyncio
import random
from contextlib import suppress
from typing import Literal

from drumbeat.clock import SYSTEM

Mode = Literal["open", "delay", "lose answers", "tear", "swallow", "refuse"]
CHUNK = 1 << 16


class FaultyProxy:
    def __init__(self, target: int, dice: random.Random) -> None:
        self.mode: Mode = "open"
        self.port = 0
        self.target = target
        self._dice = dice
        self._links: dict[asyncio.StreamWriter, asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None

    async def start(self, address: str = "127.0.0.1") -> None:
        self._server = await asyncio.start_server(self._serve, address, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()

    def cut(self, share: float = 1.0) -> None:
        for pair in list(self._links.items()):
            if self._dice.random() < share:
                _abort(*pair)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.mode == "refuse":
            _abort(writer)
            return
        try:
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            _abort(writer)
            return
        self._links[writer] = to_server
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, to_server, writer, is_answer=False))
                group.create_task(self._pump(from_server, writer, to_server, is_answer=True))
        finally:
            self._links.pop(writer, None)
            _abort(writer, to_server)

    async def _pump(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        other: asyncio.StreamWriter,
        *,
        is_answer: bool,
    ) -> None:
        with suppress(OSError):
            while data := await source.read(CHUNK):
                mode = self.mode
                if mode == "swallow":
                    continue
                if mode == "delay":
                    await SYSTEM.sleep(self._dice.uniform(0.0, 0.5))
                if is_answer and mode in ("lose answers", "tear") and self._dice.random() < 0.3:
                    if mode == "tear":
                        target.write(data[: self._dice.randrange(len(data))])
                        await target.drain()
                        target.close()
                    break
                target.write(data)
                await target.drain()
        _abort(target if not is_answer else other)
        if not target.is_closing():
            _abort(target)


def _abort(*writers: asyncio.StreamWriter) -> None:
    for writer in writers:
        writer.transport.abort()
