"""Sends messages as signed POST requests. 2xx acknowledges; 410 makes a dead letter; 429 and 503 delay the next try.

Redirects are not followed, and private addresses are refused unless allowed.
"""

import asyncio
import ipaddress
import re
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC
from email.utils import parsedate_to_datetime

import msgspec

from drumbeat.clock import Clock
from drumbeat.durations import Duration, format_length, to_us
from drumbeat.errors import ConfigError
from drumbeat.names import check_number, short_repr
from drumbeat.retry import SkipRetry
from drumbeat.sinks import sink
from drumbeat.sinks.addresses import is_public, resolve
from drumbeat.sinks.http_client import (
    BadResponse,
    HttpConnection,
    HttpResponse,
    NoResponse,
    WebhookTarget,
    parse_target,
)
from drumbeat.sinks.webhook_signature import parse_keys, sign_headers

MAX_RETRY_AFTER_S = 3600.0
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_RESERVED_HEADERS = frozenset(
    {"host", "content-length", "content-type", "transfer-encoding", "connection", "idempotency-key"}
)


class WebhookOptions(msgspec.Struct, frozen=True, kw_only=True):
    target: WebhookTarget
    keys: list[bytes]
    headers: dict[str, str]
    allow_private: bool
    timeout: float
    connections: int


class WebhookSink:
    def __init__(
        self,
        *,
        url: str,
        secret: str | Sequence[str],
        headers: Mapping[str, str] | None = None,
        allow_private: bool = False,
        timeout: Duration = 10,
        connections: int = 16,
        batch: int = 64,
    ) -> None:
        """`secret`: one, or several during a rotation. `connections`: the maximum of concurrent requests per worker process."""
        self._options = WebhookOptions(
            target=parse_target(url),
            keys=parse_keys(secret),
            headers=_check_headers(headers or {}),
            allow_private=allow_private,
            timeout=sink.check_positive(timeout, "timeout"),
            connections=check_number("connections", connections, 1, 1000, ConfigError),
        )
        self.batch = batch
        if not allow_private and not _may_be_public(host := self._options.target.host):
            raise ConfigError(f"{host} is a private address: allow_private=True allows it", "url")

    def connect(self, clock: Clock) -> sink.Outlet:
        return WebhookOutlet(self._options, clock)

    def __repr__(self) -> str:
        return f"WebhookSink(url={self._options.target.display_url!r})"


def _may_be_public(host: str) -> bool:
    try:
        return is_public(ipaddress.ip_address(host))
    except ValueError:  # a name: resolved when it is needed
        return host != "localhost"


def _check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name) or name.lower() in _RESERVED_HEADERS or name.lower().startswith("webhook-"):
            raise ConfigError(f"headers must not have {short_repr(name)}", "headers")
        if not value.isascii() or not value.isprintable():
            raise ConfigError(f"headers must have printable ASCII for {name}", "headers")
    return dict(headers)


class WebhookOutlet:
    def __init__(self, options: WebhookOptions, clock: Clock) -> None:
        self._options = options
        self._target = options.target
        self._headers = {"User-Agent": "drumbeat", **options.headers, "Content-Type": sink.CONTENT_TYPE}
        self._clock = clock
        self._slots = asyncio.Semaphore(options.connections)
        self._idle: list[HttpConnection] = []
        self._context = ssl.create_default_context() if self._target.secure else None

    async def send(self, messages: Sequence[sink.Message]) -> list[Exception | None]:
        results: list[Exception | None] = [None] * len(messages)
        pending = iter(enumerate(messages))
        async with asyncio.TaskGroup() as group:
            for number in range(min(self._options.connections, len(messages))):
                group.create_task(self._send_from(pending, results), name=f"webhook sender {number}")
        return results

    async def _send_from(self, pending: Iterator[tuple[int, sink.Message]], results: list[Exception | None]) -> None:
        """Send message after message. Once the receiver is unavailable, the rest of the batch is not tried."""
        for number, message in pending:
            unavailable = next((result for result in results if isinstance(result, sink.SinkUnavailable)), None)
            if unavailable is not None:
                results[number] = unavailable
                continue
            try:
                async with self._slots:
                    self._check_response(await self._post(message))
            except (sink.SinkUnavailable, sink.DeliveryFailed, SkipRetry) as error:
                results[number] = error

    async def _post(self, message: sink.Message) -> HttpResponse:
        headers = self._headers | {"Idempotency-Key": message.id}
        headers |= sign_headers(self._options.keys, message.id, self._clock.now_us() // 1_000_000, message.body)
        while True:
            connection = self._idle.pop() if self._idle else await self._open_connection()
            was_used = connection.is_used
            try:
                async with asyncio.timeout(self._options.timeout):
                    response = await connection.post(headers, message.body)
                if connection.is_open:
                    self._idle.append(connection)
                return response
            except NoResponse as error:
                # A reused connection may have been closed while idle; that says nothing about this message.
                if not was_used:
                    raise sink.DeliveryFailed("the connection was closed without an answer") from error
            except TimeoutError as error:
                raise sink.DeliveryFailed(
                    f"no answer within {format_length(round(self._options.timeout * 1e6))}"
                ) from error
            except (OSError, BadResponse) as error:
                raise sink.DeliveryFailed(f"no answer: {error}") from error
            finally:
                if connection not in self._idle:
                    connection.close()

    async def _open_connection(self) -> HttpConnection:
        try:
            async with asyncio.timeout(self._options.timeout):
                addresses = await resolve(
                    self._target.host, self._target.port, allow_private=self._options.allow_private
                )
                return await self._connect_first(addresses)
        except OSError as error:  # TimeoutError as well
            raise sink.SinkUnavailable(
                f"{self._target.display_url}: no connection: {str(error) or 'no answer in time'}"
            ) from error

    async def _connect_first(self, addresses: Sequence[str]) -> HttpConnection:
        """A connection to the first address that accepts one."""
        for address in addresses[:-1]:
            with suppress(OSError):
                return await HttpConnection.open(self._target, address, self._context)
        return await HttpConnection.open(self._target, addresses[-1], self._context)

    def _check_response(self, response: HttpResponse) -> None:
        status = response.status
        if 200 <= status < 300:
            return
        if status in (429, 503):
            raise sink.SinkUnavailable(
                f"{self._target.display_url}: answered {status}",
                self._parse_retry_after(response.headers.get("retry-after", "")),
            )
        if status == 410:
            raise SkipRetry(f"{self._target.display_url} is gone: answered 410")
        hint = ": redirects are not followed" if 300 <= status < 400 else ""
        raise sink.DeliveryFailed(f"{self._target.display_url}: answered {status}{hint}")

    def _parse_retry_after(self, value: str) -> float | None:
        """Retry-After in seconds: a number, or a date."""
        if value.isascii() and value.isdigit() and len(value) < 10:
            return min(float(value), MAX_RETRY_AFTER_S)
        try:
            at = parsedate_to_datetime(value)
        except ValueError:
            return None
        aware = at if at.tzinfo else at.replace(tzinfo=UTC)
        return min(max(0.0, (to_us(aware) - self._clock.now_us()) / 1e6), MAX_RETRY_AFTER_S)

    async def close(self) -> None:
        while self._idle:
            self._idle.pop().close()
