"""Kafka brokers that speak its wire protocol: librdkafka's own mock cluster, in this process."""

from typing import Any
from uuid import uuid4

import confluent_kafka
import msgspec

from tests.waiting import until_sync


class KafkaCluster:
    """It lives as long as this object; consumers and producers of any process reach it by `servers`."""

    def __init__(self, brokers: int = 3) -> None:
        self._home = confluent_kafka.Producer(
            {"bootstrap.servers": "unused", "test.mock.num.brokers": brokers, "log_level": 0}
        )
        found = self._home.list_topics(timeout=10).brokers.values()
        self.servers = ",".join(f"{broker.host}:{broker.port}" for broker in found)


class Reader:
    """Reads a topic from its beginning. Without a group: those take seconds to come together."""

    def __init__(self, cluster: KafkaCluster, topic: str) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": cluster.servers,
                "group.id": uuid4().hex,
                "log_level": 0,
                "allow.auto.create.topics": True,
            }
        )
        found = until_sync(lambda: self._partitions(topic), what="the topic", deadline=20)
        self._consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in found])
        self.records: list[Any] = []

    def _partitions(self, topic: str) -> list[int]:
        """Asking for a topic makes it."""
        return list(self._consumer.list_topics(topic, timeout=10).topics[topic].partitions)

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
