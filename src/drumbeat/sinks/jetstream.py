"""Publishes messages to a NATS subject of a JetStream stream, which acknowledges them and drops repeated ids."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from drumbeat.clock import Clock
from drumbeat.durations import Duration
from drumbeat.errors import ConfigError
from drumbeat.names import short_repr
from drumbeat.sinks import sink

log = logging.getLogger(__name__)


class NatsSink:
    def __init__(
        self,
        *,
        subject: str,
        servers: str | Sequence[str],
        stream: str | None = None,
        options: Mapping[str, Any] | None = None,
        timeout: Duration = 5,
        batch: int = 500,
    ) -> None:
        """`stream`: refuse if another stream has the subject. `options`: more options of nats.connect."""
        self.subject = sink.check_text(subject, "subject")
        if any(char in subject for char in "*> "):
            raise ConfigError(f"subject must be one that can be published to, not {short_repr(subject)}", "subject")
        self._servers = [
            sink.check_text(each, "servers") for each in ([servers] if isinstance(servers, str) else servers)
        ]
        self._stream = None if stream is None else sink.check_text(stream, "stream")
        self._options = dict(options or {})
        self._timeout = sink.check_positive(timeout, "timeout")
        self.batch = batch

    def connect(self, clock: Clock) -> sink.Outlet:
        try:
            import nats  # noqa: F401 - checks that it is installed
        except ImportError as error:
            raise sink.missing_driver_error("NatsSink", "nats") from error
        options = {
            "name": "drumbeat",
            **self._options,
            "servers": self._servers,
            # The circuit breaker decides when to reconnect.
            "allow_reconnect": False,
            "connect_timeout": self._timeout,
        }
        return NatsOutlet(self.subject, self._stream, options, self._timeout)

    def __repr__(self) -> str:
        return f"NatsSink(subject={self.subject!r})"


class NatsOutlet:
    def __init__(self, subject: str, stream: str | None, options: dict[str, Any], timeout: float) -> None:
        self._subject = subject
        self._stream = stream
        self._options = options | {"error_cb": _log_error}
        self._timeout = timeout
        self._opening = asyncio.Lock()
        self._client: Any = None
        self._stream_context: Any = None

    async def send(self, messages: Sequence[sink.Message]) -> list[Exception | None]:
        from nats import errors

        try:
            async with asyncio.timeout(self._timeout):
                context = await self._ensure_connected()
        except (OSError, errors.Error) as error:  # TimeoutError as well
            raise sink.SinkUnavailable(str(error) or "no connection in time") from error
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._publish(context, each), name="nats message") for each in messages]
        return [task.result() for task in tasks]

    async def _publish(self, context: Any, message: sink.Message) -> Exception | None:
        from nats import errors
        from nats.js.errors import APIError

        headers = {"Nats-Msg-Id": message.id, "Content-Type": sink.CONTENT_TYPE}
        try:
            await context.publish(
                self._subject, message.body, timeout=self._timeout, stream=self._stream, headers=headers
            )
        except errors.MaxPayloadError:
            return sink.DeliveryFailed("the message is larger than the server takes")
        except APIError as error:
            # The stream refuses this message; a code of 500 or more means that the stream is unavailable.
            is_refused = error.code is not None and error.code < 500
            return sink.DeliveryFailed(str(error)) if is_refused else sink.SinkUnavailable(str(error))
        except (OSError, errors.Error) as error:  # TimeoutError as well
            return sink.SinkUnavailable(str(error) or "no acknowledgement in time")
        return None

    async def _ensure_connected(self) -> Any:
        import nats

        async with self._opening:
            if self._client is None or not self._client.is_connected:
                await self.close()
                self._client = await nats.connect(**self._options)
                self._stream_context = self._client.jetstream()
            return self._stream_context

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None and not client.is_closed:
            await client.close()


async def _log_error(error: Exception) -> None:
    """The sender gets the error as well."""
    log.debug("nats: %s", error)
