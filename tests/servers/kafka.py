"""Kafka brokers that speak its wire protocol: librdkafka's own mock cluster, in this process."""

from typing import Any
from uuid import uuid4

import confluent_kafka
import msgspec


class KafkaCluster:
    """It lives as long as this object; consumers and producers of any process reach it by `servers`."""

    def __init__(self, brokers: int = 3) -> None:
        self._home = confluent_kafka.Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": brokers})
        found = self._home.list_topics(timeout=10).brokers.values()
        self.servers = ",".join(f"{broker.host}:{broker.port}" for broker in found)


class Reader:
    """Reads a topic from its beginning."""

    def __init__(self, cluster: KafkaCluster, topic: str) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": cluster.servers,
                "group.id": uuid4().hex,
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 200,
            }
        )
        self._consumer.subscribe([topic])
        self.records: list[Any] = []

    def read(self) -> list[Any]:
        """All records that have come so far."""
        for record in self._consumer.consume(10_000, timeout=0.05):
            if record.error() is None:
                self.records.append(record)
        return self.records

    def events(self) -> list[dict[str, Any]]:
        return [msgspec.json.decode(record.value()) for record in self.read()]

    def close(self) -> None:
        self._consumer.close()
