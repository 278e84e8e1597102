"""Adds messages to a Redis stream, with fields `id` and `event`. A batch is one script, which skips known ids."""

import asyncio
import hashlib
import re
from collections.abc import Sequence
from importlib import resources
from typing import Any
from urllib.parse import parse_qsl, urlencode

from drumbeat.clock import Clock
from drumbeat.durations import Duration
from drumbeat.errors import ConfigError
from drumbeat.names import check_number, short_repr
from drumbeat.sinks import sink

_LUA = resources.files(__package__).joinpath("lua/stream_add.lua").read_text("utf-8")
_SHA = hashlib.sha1(_LUA.encode(), usedforsecurity=False).hexdigest()
_TAG = re.compile(r"[^{]*\{[^}]+\}")
# Error codes that concern the message or the stream; any other error may pass.
_PERMANENT_ERRORS = frozenset({"WRONGTYPE", "ERR"})


class RedisStreamSink:
    """Redis 6.2 or newer, or Valkey; one server (or a primary with replicas), or with `?cluster=true` a cluster, where the
    stream is on the node of its slot, also when that moves."""

    def __init__(
        self,
        *,
        stream: str,
        url: str,
        maxlen: int | None = None,
        remember: Duration = "10m",
        timeout: Duration = 5,
        batch: int = 500,
    ) -> None:
        """`maxlen`: about how many entries the stream keeps. `remember`: how long ids are remembered, to skip repetitions."""
        self.stream = sink.check_text(stream, "stream")
        self._url, self._is_cluster = _split_cluster_option(sink.check_text(url, "url"))
        self._maxlen = 0 if maxlen is None else check_number("maxlen", maxlen, 1, 2**53, ConfigError)
        self._remember = max(1, round(sink.check_positive(remember, "remember")))
        self._timeout = sink.check_positive(timeout, "timeout")
        self.batch = batch

        if self._is_cluster and "}" in stream and not _TAG.match(stream):
            raise ConfigError(
                f"stream must have {{...}} or no }} at all in a cluster, not {short_repr(stream)}", "stream"
            )

    def connect(self, clock: Clock) -> sink.Outlet:
        try:
            import redis.asyncio as driver
            from redis import exceptions
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff
        except ImportError as error:
            raise sink.missing_driver_error("RedisStreamSink", "redis") from error
        options: dict[str, Any] = {
            "socket_timeout": self._timeout,
            "socket_connect_timeout": self._timeout,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
        }
        client: Any
        try:
            if self._is_cluster:
                # Only the stream's own slot needs a node.
                client = driver.RedisCluster.from_url(self._url, require_full_coverage=False, **options)
            else:
                client = driver.Redis.from_url(self._url, **options)
        except (ValueError, TypeError, exceptions.RedisClusterException) as error:
            raise ConfigError(f"RedisStreamSink: {error}", "url") from error
        return RedisStreamOutlet(
            client, [self.stream, self._dedup_key()], [self._remember, self._maxlen], self._timeout
        )

    def _dedup_key(self) -> str:
        """The key of the known ids, in the stream's own slot."""
        return f"{self.stream}:sent" if _TAG.match(self.stream) else f"{{{self.stream}}}:sent"

    def __repr__(self) -> str:
        return f"RedisStreamSink(stream={self.stream!r})"


def _split_cluster_option(url: str) -> tuple[str, bool]:
    """The URL for the driver, and whether it names a cluster."""
    base, _, query = url.partition("?")
    given = parse_qsl(query, keep_blank_values=True)
    values = [value for name, value in given if name == "cluster"]
    if any(value not in ("true", "false") for value in values):
        raise ConfigError("url: cluster= may be true or false", "url")
    rest = urlencode([(name, value) for name, value in given if name != "cluster"])
    return (f"{base}?{rest}" if rest else base), "true" in values


class RedisStreamOutlet:
    def __init__(self, client: Any, keys: list[str], options: list[int], timeout: float) -> None:
        self._client = client
        self._head = [len(keys), *keys, *options]
        self._timeout = timeout

    async def send(self, messages: Sequence[sink.Message]) -> list[Exception | None]:
        from redis import exceptions

        pairs = [part for message in messages for part in (message.id, message.body)]
        try:
            async with asyncio.timeout(2 * self._timeout):
                await self._run(pairs)
        except exceptions.MovedError as error:
            # Only a cluster client follows redirections between nodes.
            raise sink.SinkUnavailable(
                "the server is a node of a cluster: the URL must end in ?cluster=true"
            ) from error
        except exceptions.ResponseError as error:
            if isinstance(error, exceptions.OutOfMemoryError) or str(error).partition(" ")[0] not in _PERMANENT_ERRORS:
                raise sink.SinkUnavailable(str(error)) from error
            return [sink.DeliveryFailed(str(error))] * len(messages)
        except (OSError, exceptions.RedisError, exceptions.RedisClusterException) as error:
            raise sink.SinkUnavailable(str(error) or type(error).__name__) from error
        return [None] * len(messages)

    async def _run(self, pairs: list[str | bytes]) -> None:
        from redis import exceptions

        try:
            await self._client.execute_command("EVALSHA", _SHA, *self._head, *pairs)
        except exceptions.NoScriptError:
            # First use on this server, or its scripts were flushed; EVAL caches it again.
            await self._client.execute_command("EVAL", _LUA, *self._head, *pairs)

    async def close(self) -> None:
        await self._client.aclose()
