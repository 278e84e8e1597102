"""Messages become entries of a Redis stream: fields `id` and `event`. A batch is one script, which leaves out known ids."""

import asyncio
from collections.abc import Sequence
from importlib import resources
from typing import Any

from drumbeat.clock import Clock
from drumbeat.durations import Duration
from drumbeat.errors import ConfigError
from drumbeat.sinks.sink import Away, DeliveryFailed, Message, Outlet, count, filled, missing_driver, positive

_LUA = resources.files(__package__).joinpath("lua/stream_add.lua").read_text("utf-8")
# First words of answers that are about the message or the stream; whatever else a server says, it may say otherwise later.
_LASTING = frozenset({"WRONGTYPE", "ERR"})


class RedisStreamSink:
    """Redis 6.2 or newer, Valkey; one server (or a primary with replicas), not a cluster."""

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
        """`maxlen`: about how many entries the stream keeps. `remember`: how long an id that comes again is left out."""
        self.stream = filled(stream, "stream")
        self._url = filled(url, "url")
        self._maxlen = 0 if maxlen is None else count(maxlen, "maxlen", 2**53)
        self._remember = max(1, round(positive(remember, "remember")))
        self._timeout = positive(timeout, "timeout")
        self.batch = batch

    def connect(self, clock: Clock) -> Outlet:
        try:
            import redis.asyncio as driver
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff
        except ImportError as error:
            raise missing_driver("RedisStreamSink", "redis") from error
        try:
            client = driver.Redis.from_url(
                self._url,
                socket_timeout=self._timeout,
                socket_connect_timeout=self._timeout,
                retry=Retry(NoBackoff(), 0),
                protocol=2,
            )
        except ValueError as error:
            raise ConfigError(f"RedisStreamSink: {error}", "url") from error
        return StreamOutlet(client, [self.stream, self._memory()], [self._remember, self._maxlen], self._timeout)

    def _memory(self) -> str:
        """The key of the ids, in the stream's own slot."""
        return f"{self.stream}:sent" if "{" in self.stream else f"{{{self.stream}}}:sent"

    def __repr__(self) -> str:
        return f"RedisStreamSink(stream={self.stream!r})"


class StreamOutlet:
    def __init__(self, client: Any, keys: list[str], options: list[int], timeout: float) -> None:
        self._client = client
        self._script = client.register_script(_LUA)
        self._keys = keys
        self._options = options
        self._timeout = timeout

    async def send(self, messages: Sequence[Message]) -> list[Exception | None]:
        from redis import exceptions

        pairs = [part for message in messages for part in (message.id, message.body)]
        try:
            async with asyncio.timeout(2 * self._timeout):
                await self._script(keys=self._keys, args=[*self._options, *pairs])
        except exceptions.ResponseError as error:
            if isinstance(error, exceptions.OutOfMemoryError) or str(error).partition(" ")[0] not in _LASTING:
                raise Away(str(error)) from error
            return [DeliveryFailed(str(error))] * len(messages)
        except (OSError, exceptions.RedisError) as error:
            raise Away(str(error) or type(error).__name__) from error
        return [None] * len(messages)

    async def close(self) -> None:
        await self._client.aclose()
