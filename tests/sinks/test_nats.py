"""Jobs that become messages of a JetStream stream, with a real NATS server that goes away and comes back."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import nats
import pytest

from drumbeat import Drumbeat, JobState
from drumbeat.clock import SYSTEM
from drumbeat.errors import ConfigError
from drumbeat.sinks import DeliveryFailed, Message, NatsSink, SinkUnavailable
from tests.servers.nats import NatsServer
from tests.waiting import until
from tests.worker.worker_harness import run_worker


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with NatsServer() as server:
        yield server


@pytest.fixture
async def stream(server: NatsServer) -> AsyncIterator[Any]:
    """A JetStream context; the stream ORDERS keeps orders.*."""
    client = await nats.connect(server.url, max_reconnect_attempts=-1, reconnect_time_wait=0.1, error_cb=_quiet)
    context = client.jetstream()
    await context.add_stream(name="ORDERS", subjects=["orders.*"])
    yield context
    await client.close()


async def _quiet(error: Exception) -> None:
    """The server is killed on purpose."""


async def events(stream: Any) -> list[dict[str, Any]]:
    count = (await stream.stream_info("ORDERS")).state.messages
    found = [await stream.get_msg("ORDERS", number) for number in range(1, count + 1)]
    for each in found:
        assert each.headers["Nats-Msg-Id"] == msgspec.json.decode(each.data)["id"]
    return [msgspec.json.decode(each.data) for each in found]


async def test_a_job_is_kept_by_the_stream_with_its_id(app: Drumbeat, server: NatsServer, stream: Any) -> None:
    remind = app.forward("order.reminder", to=NatsSink(subject="orders.due", servers=server.url, stream="ORDERS"))
    job = await remind.using(key="order:7").enqueue({"number": 7})
    many = await app.enqueue_many([remind.bind(n) for n in range(300)])
    async with run_worker(app):
        for each in [job, *many]:
            await each.result(timeout=20)
    found = {event["id"]: event for event in await events(stream)}
    assert found.keys() == {each.id for each in [job, *many]}
    assert (found[job.id]["subject"], found[job.id]["data"]) == ("order:7", {"number": 7})


async def test_an_id_that_is_sent_again_is_acknowledged_and_kept_once(server: NatsServer, stream: Any) -> None:
    outlet = NatsSink(subject="orders.due", servers=[server.url]).connect(SYSTEM)
    message = Message(id="a", key=None, body=b'{"id":"a"}')
    assert await outlet.send([message]) == [None]
    assert await outlet.send([message, message]) == [None, None]
    await outlet.close()
    assert len(await events(stream)) == 1


async def test_a_message_that_the_stream_refuses_fails_and_one_without_a_stream_waits(
    server: NatsServer, stream: Any
) -> None:
    message = Message(id="a", key=None, body=b"{}")
    for options, kind in (
        ({"subject": "orders.due", "stream": "OTHERS"}, DeliveryFailed),
        ({"subject": "nobody.listens"}, SinkUnavailable),
    ):
        outlet = NatsSink(servers=server.url, timeout=2, **options).connect(SYSTEM)  # type: ignore[arg-type]
        [answer] = await outlet.send([message])
        await outlet.close()
        assert isinstance(answer, kind), answer


async def test_a_message_that_is_too_large_fails_alone(server: NatsServer, stream: Any) -> None:
    outlet = NatsSink(subject="orders.due", servers=server.url).connect(SYSTEM)
    large = Message(id="b", key=None, body=b"x" * 2_000_000)
    first, second = await outlet.send([Message(id="a", key=None, body=b'{"id":"a"}'), large])
    await outlet.close()
    assert first is None and isinstance(second, DeliveryFailed)


async def test_a_server_that_is_away_costs_time_and_no_failures(app: Drumbeat, server: NatsServer, stream: Any) -> None:
    remind = app.forward("remind", to=NatsSink(subject="orders.due", servers=server.url), retries=0)
    before = await remind.enqueue("before")
    async with run_worker(app):
        await before.result(timeout=20)
        server.kill()
        jobs = await app.enqueue_many([remind.bind(n) for n in range(50)])
        await until(lambda: _were_tried(app, jobs), deadline=20)
        server.start()
        for job in jobs:
            await job.result(timeout=30)
    assert {(await app.jobs.show(job.id)).failures for job in jobs} == {0}
    assert sorted(event["id"] for event in await events(stream)) == sorted(job.id for job in [before, *jobs])


async def _were_tried(app: Drumbeat, jobs: list[Any]) -> bool:
    records = [await app.jobs.show(job.id) for job in jobs]
    return all(record.state is JobState.PENDING and record.token for record in records)


def test_a_subject_that_cannot_be_published_to_is_refused() -> None:
    with pytest.raises(ConfigError, match="subject must be one"):
        NatsSink(subject="orders.*", servers="nats://localhost")
