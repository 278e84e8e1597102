"""`--health HOST:PORT`: two addresses for probes, /live and /ready, answered with 200 or 503 and the reasons as JSON.

Small on purpose: no package is needed, nothing of a request but its path is used, and nothing is told but `ProcessHealth`.
"""

import asyncio
import socket
from contextlib import suppress

from drumbeat.errors import ConfigError
from drumbeat.processes.health import HealthSource, encode_report

REQUEST_TIMEOUT = 5.0
MAX_REQUEST_BYTES = 8_192
MAX_CONNECTIONS = 64
PHRASES = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


def listen(address: str) -> socket.socket:
    """A socket that listens on HOST:PORT.

    Raises:
        ConfigError: the port is taken, or the address is not of this machine.
    """
    host, _, port = address.rpartition(":")
    name = host.strip("[]")
    try:
        family = socket.getaddrinfo(name, int(port), type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((name, int(port)), family=family)
    except OSError as error:
        raise ConfigError(f"setting health: cannot listen on {address}: {error}", "health") from error


class HealthServer:
    def __init__(self, listener: socket.socket, source: HealthSource) -> None:
        self._listener = listener
        self._source = source
        self._connections = 0

    async def start(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, sock=self._listener, limit=MAX_REQUEST_BYTES)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections <= MAX_CONNECTIONS:
                with suppress(OSError, TimeoutError):
                    async with asyncio.timeout(REQUEST_TIMEOUT):
                        writer.write(self._answer(await _read_head(reader)))
                        await writer.drain()
        finally:
            self._connections -= 1
            writer.close()

    def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            return _format(405 if method.isalpha() else 400, b"", allow=True)
        if path not in (b"/live", b"/ready"):
            return _format(404, b"there are /live and /ready\n")
        report = self._source.report()
        is_good = report.live if path == b"/live" else report.ready
        return _format(200 if is_good else 503, encode_report(report), has_body=method == b"GET")


async def _read_head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return b""


def _format(status: int, body: bytes, *, has_body: bool = True, allow: bool = False) -> bytes:
    kind = "application/json" if body.startswith(b"{") else "text/plain; charset=utf-8"
    lines = [
        f"HTTP/1.1 {status} {PHRASES[status]}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "Connection: close",
        *(["Allow: GET, HEAD"] if allow else []),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + (body if has_body else b"")
