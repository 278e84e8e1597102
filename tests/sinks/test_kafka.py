"""Jobs that become records of a Kafka topic, with librdkafka's own mock cluster."""

from collections.abc import Iterator
from typing import Any

import pytest

from drumbeat import Drumbeat, JobHandle, JobState
from drumbeat.clock import SYSTEM
from drumbeat.errors import ConfigError
from drumbeat.sinks import DeliveryFailed, KafkaSink, Message, SinkUnavailable
from tests.servers.kafka import KafkaCluster, Reader
from tests.servers.ports import free_port
from tests.waiting import until
from tests.worker.worker_harness import run_worker


@pytest.fixture(scope="module")
def cluster() -> KafkaCluster:
    return KafkaCluster()


@pytest.fixture
def reader(cluster: KafkaCluster, request: pytest.FixtureRequest) -> Iterator[Reader]:
    reader = Reader(cluster, request.node.name[:60])
    yield reader
    reader.close()


@pytest.fixture
def sink(cluster: KafkaCluster, request: pytest.FixtureRequest) -> KafkaSink:
    return KafkaSink(topic=request.node.name[:60], servers=cluster.servers)


async def test_a_job_is_sent_with_its_key_and_its_id(app: Drumbeat, sink: KafkaSink, reader: Reader) -> None:
    remind = app.forward("order.reminder", to=sink)
    job = await remind.using(key="order:7").enqueue({"number": 7})
    plain = await remind.enqueue("no key")
    async with run_worker(app):
        await job.result(timeout=20)
        await plain.result(timeout=20)
    await until(lambda: len(reader.read()) == 2, deadline=20)
    records = {dict(record.headers())["ce_id"].decode(): record for record in reader.records}
    assert {id: record.key().decode() for id, record in records.items()} == {job.id: "order:7", plain.id: plain.id}
    events = {event["id"]: event for event in reader.events()}
    assert (events[job.id]["subject"], events[job.id]["data"]) == ("order:7", {"number": 7})
    assert dict(records[job.id].headers())["content-type"].startswith(b"application/cloudevents+json")


async def test_many_jobs_arrive_once_each(app: Drumbeat, sink: KafkaSink, reader: Reader) -> None:
    remind = app.forward("remind", to=sink)
    jobs = await app.enqueue_many([remind.bind(n) for n in range(3000)])
    async with run_worker(app):
        for job in jobs:
            await job.result(timeout=30)
    await until(lambda: len(reader.read()) >= 3000, deadline=20)
    assert sorted(event["id"] for event in reader.events()) == sorted(job.id for job in jobs)


async def test_a_message_that_is_too_large_fails_alone(
    app: Drumbeat, cluster: KafkaCluster, reader: Reader, request: pytest.FixtureRequest
) -> None:
    sink = KafkaSink(topic=request.node.name[:60], servers=cluster.servers, config={"message.max.bytes": 2000})
    remind = app.forward("remind", to=sink, retries=0)
    jobs = await app.enqueue_many([remind.bind("x" * size) for size in (10, 5000, 20)])
    async with run_worker(app):
        await until(lambda: _have_ended(app, jobs), deadline=30)
    records = [await app.jobs.show(job.id) for job in jobs]
    assert [record.state for record in records] == [JobState.SUCCEEDED, JobState.DEAD, JobState.SUCCEEDED]
    await until(lambda: len(reader.read()) == 2, deadline=20)


async def _have_ended(app: Drumbeat, jobs: list[JobHandle[Any]]) -> bool:
    return all([(await app.jobs.show(job.id)).state in (JobState.SUCCEEDED, JobState.DEAD) for job in jobs])


async def test_brokers_that_are_away_are_waited_for_without_charge(app: Drumbeat) -> None:
    sink = KafkaSink(topic="remind", servers=f"127.0.0.1:{free_port()}", timeout=0.3)
    remind = app.forward("remind", to=sink, queue="reminders", retries=0)

    @app.task
    async def other() -> None: ...

    jobs = await app.enqueue_many([remind.bind(n) for n in range(20)])
    async with run_worker(app, concurrency=2):
        await until(lambda: _were_tried(app, jobs), deadline=20)
        await (await other.enqueue()).result(timeout=10)
    records = [await app.jobs.show(job.id) for job in jobs]
    assert {(record.state, record.failures) for record in records} == {(JobState.PENDING, 0)}


async def _were_tried(app: Drumbeat, jobs: list[JobHandle[Any]]) -> bool:
    records = [await app.jobs.show(job.id) for job in jobs]
    return all(record.state is JobState.PENDING and record.token for record in records)


async def test_an_outlet_answers_each_message(cluster: KafkaCluster) -> None:
    sink = KafkaSink(topic="each", servers=cluster.servers, config={"message.max.bytes": 2000})
    outlet = sink.connect(SYSTEM)
    small, large = (Message(id=id, key=None, body=b"x" * size) for id, size in (("a", 10), ("b", 5000)))
    first, second, third = await outlet.send([small, large, small])
    await outlet.close()
    assert (first, third) == (None, None)
    assert isinstance(second, DeliveryFailed)


async def test_no_broker_is_away(cluster: KafkaCluster) -> None:
    outlet = KafkaSink(topic="away", servers=f"127.0.0.1:{free_port()}", timeout=0.2).connect(SYSTEM)
    answers = await outlet.send([Message(id=id, key=None, body=b"{}") for id in "ab"])
    await outlet.close()
    assert [type(answer) for answer in answers] == [SinkUnavailable, SinkUnavailable]


async def test_what_is_refused_and_what_is_not_delivered_keep_their_places(cluster: KafkaCluster) -> None:
    """The one is told when it is handed over, the other by a report much later; one message is there twice."""
    sink = KafkaSink(
        topic="away",
        servers=f"127.0.0.1:{free_port()}",
        timeout=0.2,
        config={"message.max.bytes": 2000, "log_level": 0},
    )
    outlet = sink.connect(SYSTEM)
    sizes = {"a": 10, "b": 5000, "c": 20}
    answers = await outlet.send([Message(id=id, key=None, body=id.encode() * sizes[id]) for id in "abacb"])
    await outlet.close()
    assert [type(answer) for answer in answers] == [
        SinkUnavailable,
        DeliveryFailed,
        SinkUnavailable,
        SinkUnavailable,
        DeliveryFailed,
    ]


async def test_an_option_that_librdkafka_does_not_know_is_told(cluster: KafkaCluster) -> None:
    sink = KafkaSink(topic="wrong", servers=cluster.servers, config={"no.such.option": 1})
    with pytest.raises(ConfigError, match=r"no\.such\.option"):
        sink.connect(SYSTEM)
