"""Messages become records of a Kafka topic, by an idempotent producer: librdkafka's, which batches and repeats by itself.

A thread of our own serves its reports; what they say is handed to the loop once for each batch.
"""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from drumbeat.clock import Clock
from drumbeat.durations import Duration
from drumbeat.errors import ConfigError
from drumbeat.sinks.sink import CONTENT_TYPE, Away, DeliveryFailed, Message, Outlet, filled, missing_driver, positive

_POLL = 0.2
_FLUSH = 5.0


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
        """`servers`: "host:9092,host:9092". `config`: more of librdkafka's own options. `timeout`: of one message."""
        self.topic = filled(topic, "topic")
        timeout_ms = max(1, round(1000 * positive(timeout, "timeout")))
        self._config = {
            "client.id": "drumbeat",
            "linger.ms": 5,
            **(config or {}),
            "bootstrap.servers": filled(servers, "servers"),
            "enable.idempotence": True,
            "message.timeout.ms": timeout_ms,
        }
        self.batch = batch

    def connect(self, clock: Clock) -> Outlet:
        try:
            import confluent_kafka
        except ImportError as error:
            raise missing_driver("KafkaSink", "kafka") from error
        try:
            return KafkaOutlet(self.topic, self._config)
        except confluent_kafka.KafkaException as error:
            raise ConfigError(f"KafkaSink: {error.args[0]}", "config") from error

    def __repr__(self) -> str:
        return f"KafkaSink(topic={self.topic!r}, servers={self._config['bootstrap.servers']!r})"


class _Batch:
    """Reports of one batch, collected on the producer's thread."""

    def __init__(self, size: int) -> None:
        self._loop = asyncio.get_running_loop()
        self.answers: list[Any] = [None] * size
        self._open = size
        self._counting = threading.Lock()
        self.done: asyncio.Future[None] = self._loop.create_future()

    def report(self, number: int, error: Any) -> None:
        """On the producer's thread, or, if it does not even take the message, on the loop's."""
        self.answers[number] = error
        with self._counting:
            self._open -= 1
            is_last = not self._open
        if is_last:
            try:
                self._loop.call_soon_threadsafe(self._finish)
            except RuntimeError:  # the loop is closed: nobody waits
                pass

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class _Producing:
    """A producer with the thread that serves it."""

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
            self.producer.poll(_POLL)
        self.producer.flush(_FLUSH)
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
        self._topic = topic
        self._config = config
        self._producing = _Producing(config)

    async def send(self, messages: Sequence[Message]) -> list[Exception | None]:
        producing = self._producing
        batch = _Batch(len(messages))
        for number, message in enumerate(messages):
            self._produce(producing.producer, batch, number, message)
        await batch.done
        answers = [_judged(error) for error in batch.answers]
        if producing is self._producing and any(_is_fatal(error) for error in batch.answers):
            # An idempotent producer that has lost count is of no more use.
            producing.stop()
            self._producing = _Producing(self._config)
        return answers

    def _produce(self, producer: Any, batch: _Batch, number: int, message: Message) -> None:
        import confluent_kafka

        def report(error: Any, _: Any) -> None:
            batch.report(number, error)

        try:
            producer.produce(
                self._topic,
                value=message.body,
                key=message.key or message.id,
                headers=[("content-type", CONTENT_TYPE), ("ce_id", message.id)],
                on_delivery=report,
            )
        except BufferError as error:
            batch.report(number, Away(f"the producer's queue is full: {error}"))
        except confluent_kafka.KafkaException as error:
            batch.report(number, error.args[0])

    async def close(self) -> None:
        await self._producing.end()


def _is_fatal(error: Any) -> bool:
    return error is not None and not isinstance(error, Exception) and bool(error.fatal())


def _judged(error: Any) -> Exception | None:
    """A KafkaError is no exception."""
    if error is None or isinstance(error, Away):
        return error
    from confluent_kafka import KafkaError

    lasting = (
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
    return DeliveryFailed(error.str()) if error.code() in lasting else Away(error.str())
