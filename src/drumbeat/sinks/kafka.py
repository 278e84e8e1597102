"""Sends messages to a Kafka topic with librdkafka's idempotent producer, which batches and retries by itself.

A thread polls the producer for delivery reports and wakes the event loop once for each batch.
"""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from drumbeat.clock import Clock
from drumbeat.durations import Duration
from drumbeat.errors import ConfigError
from drumbeat.sinks import sink

_POLL_INTERVAL = 0.2
_FLUSH_TIMEOUT = 5.0
_CONTENT_TYPE = ("content-type", sink.CONTENT_TYPE)


class KafkaSink:
    def __init__(
        self,
        *,
        topic: str,
        servers: str,
        config: Mapping[str, Any] | None = None,
        timeout: Duration = 10,
        batch: int = 500,
    ) -> None:
        """`servers`: "host:9092,host:9092". `config`: more options of librdkafka. `timeout`: of one message."""
        self.topic = sink.check_text(topic, "topic")
        timeout_ms = max(1, round(1000 * sink.check_positive(timeout, "timeout")))
        self._config = {
            "client.id": "drumbeat",
            "linger.ms": 5,
            **(config or {}),
            "bootstrap.servers": sink.check_text(servers, "servers"),
            "enable.idempotence": True,
            "message.timeout.ms": timeout_ms,
        }
        self.batch = batch

    def connect(self, clock: Clock) -> sink.Outlet:
        try:
            import confluent_kafka
        except ImportError as error:
            raise sink.missing_driver_error("KafkaSink", "kafka") from error
        try:
            return KafkaOutlet(self.topic, self._config)
        except confluent_kafka.KafkaException as error:
            raise ConfigError(f"KafkaSink: {error.args[0]}", "config") from error

    def __repr__(self) -> str:
        return f"KafkaSink(topic={self.topic!r}, servers={self._config['bootstrap.servers']!r})"


class _Batch:
    """The delivery reports of one batch, counted on the producer's thread. All messages share one callback, because a function
    for each would cost more than the message."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._accepted: int | None = None
        self._reported = 0
        self.failed: list[tuple[Any, bytes]] = []
        """The error and the body of each undelivered message."""
        self.done: asyncio.Future[None] = self._loop.create_future()

    def report(self, error: Any, record: Any) -> None:
        """On the producer's thread, for each message."""
        if error is not None:
            self.failed.append((error, record.value() or b""))
        self._reported += 1
        # Of the two threads, the one that writes its number last sees the other's; both seeing it is harmless.
        if self._reported == self._accepted:
            try:
                self._loop.call_soon_threadsafe(self._finish)
            except RuntimeError:  # the loop is closed: no task waits
                pass

    def expect(self, accepted: int) -> None:
        """On the loop: the number of messages that the producer accepted in total."""
        self._accepted = accepted
        if self._reported == accepted:
            self._finish()

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class _ProducerThread:
    """A producer with the thread that polls it."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        import confluent_kafka

        self.producer = confluent_kafka.Producer(dict(config))
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._serve, name="kafka sink", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while not self._stop.is_set():
            self.producer.poll(_POLL_INTERVAL)
        self.producer.flush(_FLUSH_TIMEOUT)
        try:
            self._loop.call_soon_threadsafe(self._ended.set)
        except RuntimeError:  # the loop is closed
            pass

    def stop(self) -> None:
        self._stop.set()

    async def end(self) -> None:
        self.stop()
        await self._ended.wait()


class KafkaOutlet:
    def __init__(self, topic: str, config: Mapping[str, Any]) -> None:
        import confluent_kafka

        self._kafka_exception = confluent_kafka.KafkaException
        self._topic = topic
        self._config = config
        self._thread = _ProducerThread(config)

    async def send(self, messages: Sequence[sink.Message]) -> list[Exception | None]:
        thread = self._thread
        batch = _Batch()
        errors: dict[int, Any] = {}
        for number, message in enumerate(messages):
            error = self._produce(thread.producer, batch, message)
            if error is not None:
                errors[number] = error
        batch.expect(len(messages) - len(errors))
        await batch.done
        if not errors and not batch.failed:
            return [None] * len(messages)
        _match_failures(batch.failed, messages, errors)
        if thread is self._thread and any(_is_fatal(error) for error in errors.values()):
            # After a fatal error an idempotent producer cannot be used again.
            thread.stop()
            self._thread = _ProducerThread(self._config)
        return [_to_exception(errors.get(number)) for number in range(len(messages))]

    def _produce(self, producer: Any, batch: _Batch, message: sink.Message) -> Any:
        """None, or why the producer did not accept it."""
        try:
            producer.produce(
                self._topic,
                value=message.body,
                key=message.key or message.id,
                headers=[_CONTENT_TYPE, ("ce_id", message.id)],
                on_delivery=batch.report,
            )
        except BufferError as error:
            return sink.SinkUnavailable(f"the producer's queue is full: {error}")
        except self._kafka_exception as error:
            return error.args[0]
        return None

    async def close(self) -> None:
        await self._thread.end()


def _match_failures(failed: list[tuple[Any, bytes]], messages: Sequence[sink.Message], errors: dict[int, Any]) -> None:
    """Add the delivery errors under the numbers of their messages. A report has the body of its message, and each body has
    its own id; if the same message is there twice, either may be meant."""
    numbers: dict[bytes, list[int]] = {}
    for number, message in enumerate(messages):
        if number not in errors:
            numbers.setdefault(message.body, []).append(number)
    for error, body in failed:
        errors[numbers[body].pop()] = error


def _is_fatal(error: Any) -> bool:
    return not isinstance(error, Exception) and bool(error.fatal())


def _to_exception(error: Any) -> Exception | None:
    """A KafkaError is no exception."""
    if error is None or isinstance(error, sink.SinkUnavailable):
        return error
    from confluent_kafka import KafkaError

    permanent = (
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_RECORD,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.RECORD_LIST_TOO_LARGE,
    )
    return sink.DeliveryFailed(error.str()) if error.code() in permanent else sink.SinkUnavailable(error.str())
