"""The part of HTTP/1.1 that a webhook needs: POST on persistent connections, status and headers. Follows no redirects.

Written here because webhooks work without extras: h11 comes only with the extra `web`.
"""

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit

import msgspec

from drumbeat.errors import ConfigError
from drumbeat.names import short_repr

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 256 * 1024


class WebhookTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed URL."""

    secure: bool
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"

    @property
    def display_url(self) -> str:
        """Without its query, which may contain keys."""
        return f"{'https' if self.secure else 'http'}://{self.authority}{self.path.partition('?')[0]}"


def parse_target(url: object) -> WebhookTarget:
    """Raises:
    ConfigError: it is no HTTP URL.
    """
    try:
        parts = (
            urlsplit(url) if isinstance(url, str) and url.isascii() and url.isprintable() and " " not in url else None
        )
        port = parts and parts.port
    except ValueError:
        parts = port = None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"url must be one like https://host/path, not {short_repr(url)}", "url")
    if "@" in parts.netloc:
        raise ConfigError("url must have no user and password: use headers={'Authorization': ...}", "url")
    secure = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return WebhookTarget(secure=secure, host=parts.hostname, port=port or (443 if secure else 80), path=path)


class HttpResponse(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]


class NoResponse(Exception):
    """The connection ended before the first byte of a response, perhaps because it was idle for too long."""


class BadResponse(Exception):
    """The response is not valid HTTP."""


class HttpConnection:
    """A persistent connection, for one request after another."""

    def __init__(self, target: WebhookTarget, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._target = target
        self._reader = reader
        self._writer = writer
        self.is_used = False
        self.is_open = True

    @classmethod
    async def open(cls, target: WebhookTarget, address: str, context: ssl.SSLContext | None) -> Self:
        """Connect to this address, whatever the name resolves to by now; the certificate must match the name."""
        reader, writer = await asyncio.open_connection(
            address,
            target.port,
            ssl=context if target.secure else None,
            server_hostname=target.host if target.secure else None,
            limit=MAX_HEAD_BYTES,
        )
        return cls(target, reader, writer)

    async def post(self, headers: Mapping[str, str], body: bytes) -> HttpResponse:
        """Raises:
        NoResponse, BadResponse: see there.
        OSError: the connection broke.
        """
        self.is_used = True
        head = {"Host": self._target.authority, "Content-Length": str(len(body)), **headers}
        lines = [f"POST {self._target.path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items())]
        self._writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        try:
            await self._writer.drain()
            return await self._read_response()
        except asyncio.IncompleteReadError as error:
            raise BadResponse("the answer is not complete") from error
        except (asyncio.LimitOverrunError, ValueError, UnicodeDecodeError) as error:
            raise BadResponse(f"the answer is not HTTP: {error}") from error

    async def _read_response(self) -> HttpResponse:
        while True:
            try:
                head = await self._reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError as error:
                if not error.partial:
                    raise NoResponse from error
                raise
            except ConnectionError as error:
                raise NoResponse from error
            status_line, *lines = head[:-4].decode("latin-1").split("\r\n")
            version, status, *_ = [*status_line.split(" ", 2), ""]
            if not version.startswith("HTTP/1.") or not (status.isdigit() and len(status) == 3):
                raise ValueError(status_line[:80])
            headers = {
                name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
            }
            if int(status) >= 200:
                await self._skip_body(int(status), version, headers)
                return HttpResponse(int(status), headers)

    async def _skip_body(self, status: int, version: str, headers: Mapping[str, str]) -> None:
        """Read the body, so that the connection can be reused; close the connection if the body is too long."""
        keep = version != "HTTP/1.0" and "close" not in headers.get("connection", "").lower()
        length = headers.get("content-length", "0" if status in (204, 304) else "")
        if keep and "transfer-encoding" not in headers and length.isdigit() and int(length) <= MAX_BODY_BYTES:
            await self._reader.readexactly(int(length))
        else:
            self.close()

    def close(self) -> None:
        self.is_open = False
        with suppress(RuntimeError):  # the loop is closed
            self._writer.transport.abort()
