"""Jobs that become entries of a Redis stream, with a real server that goes away and comes back."""

from datetime import datetime
from typing import Any

import msgspec
import pytest

from drumbeat import CancelAnswer, Cancelled, Drumbeat, JobState
from drumbeat.clock import SYSTEM
from drumbeat.errors import InvalidArguments
from drumbeat.sinks import Message, RedisStreamSink
from tests.servers.redis import RedisServer
from tests.waiting import until
from tests.worker.worker_harness import run_worker


class Order(msgspec.Struct):
    number: int
    cents: int


def entries(broker: RedisServer, stream: str = "reminders") -> list[tuple[str, dict[str, Any]]]:
    """(id, event) of each."""
    found = broker.ask("XRANGE", stream, "-", "+")
    return [(fields[b"id"].decode(), msgspec.json.decode(fields[b"event"])) for _, fields in found]


async def test_a_job_is_sent_as_a_cloud_event_with_its_own_id(app: Drumbeat, broker: RedisServer) -> None:
    remind = app.forward("order.reminder", to=RedisStreamSink(stream="reminders", url=broker.url), type=Order)
    job = await remind.using(key="order:7").enqueue(Order(7, 990))
    plain = await remind.enqueue(Order(8, 1))
    async with run_worker(app):
        assert await job.result(timeout=10) is None  # type: ignore[func-returns-value]
        await plain.result(timeout=10)
    record = await app.jobs.show(job.id)
    sent = dict(entries(broker))
    assert datetime.fromisoformat(sent[job.id].pop("time")) == record.due_at
    assert sent[job.id] == {
        "specversion": "1.0",
        "id": job.id,
        "source": "shop",
        "type": "order.reminder",
        "subject": "order:7",
        "datacontenttype": "application/json",
        "data": {"number": 7, "cents": 990},
    }
    assert "subject" not in sent[plain.id]


async def test_a_value_of_another_type_is_refused_where_it_is_enqueued(app: Drumbeat, broker: RedisServer) -> None:
    sink = RedisStreamSink(stream="reminders", url=broker.url)
    typed = app.forward("typed", to=sink, type=Order)
    free = app.forward("free", to=sink)
    with pytest.raises(InvalidArguments):
        typed.enqueue({"number": "seven"})  # type: ignore[arg-type, unused-coroutine]
    async with run_worker(app):
        await (await free.enqueue([1, "two", None])).result(timeout=10)
    assert [event["data"] for _, event in entries(broker)] == [[1, "two", None]]


async def test_many_jobs_go_in_batches_and_each_once(app: Drumbeat, broker: RedisServer) -> None:
    remind = app.forward("remind", to=RedisStreamSink(stream="reminders", url=broker.url))
    jobs = await app.enqueue_many([remind.bind(n) for n in range(3000)])
    async with run_worker(app):
        for job in jobs:
            await job.result(timeout=30)
    sent = entries(broker)
    assert sorted(id for id, _ in sent) == sorted(job.id for job in jobs)
    calls = broker.ask("INFO", "commandstats")["cmdstat_evalsha"]["calls"]
    assert calls <= 100, "batches stayed small"


async def test_an_id_that_is_sent_again_is_acknowledged_and_not_added_again(broker: RedisServer) -> None:
    outlet = RedisStreamSink(stream="reminders", url=broker.url).connect(SYSTEM)
    first, second = (Message(id=id, key=None, body=b"{}") for id in ("a", "b"))
    assert await outlet.send([first]) == [None]
    assert await outlet.send([first, second, second]) == [None, None, None]
    await outlet.close()
    assert [id for id, _ in entries(broker)] == ["a", "b"]


async def test_ids_are_forgotten_after_a_while(broker: RedisServer) -> None:
    outlet = RedisStreamSink(stream="reminders", url=broker.url, remember=1).connect(SYSTEM)
    message = Message(id="a", key=None, body=b"{}")
    await outlet.send([message])
    await until(lambda: broker.ask("EXISTS", "{reminders}:sent") == 0, what="forgetting")
    await outlet.send([message])
    await outlet.close()
    assert [id for id, _ in entries(broker)] == ["a", "a"]


async def test_a_stream_is_kept_short_if_that_is_wanted(broker: RedisServer) -> None:
    outlet = RedisStreamSink(stream="short", url=broker.url, maxlen=100).connect(SYSTEM)
    for start in range(0, 2000, 500):
        await outlet.send([Message(id=str(n), key=None, body=b"{}") for n in range(start, start + 500)])
    await outlet.close()
    assert 100 <= broker.ask("XLEN", "short") < 500


async def test_a_broker_that_is_away_costs_time_and_no_failures_and_other_queues_go_on(
    app: Drumbeat, broker: RedisServer
) -> None:
    remind = app.forward("remind", to=RedisStreamSink(stream="reminders", url=broker.url), queue="reminders", retries=0)

    @app.task
    async def other(n: int) -> int:
        return n

    broker.kill()
    jobs = await app.enqueue_many([remind.bind(n) for n in range(50)])
    async with run_worker(app, concurrency=2):
        await until(lambda: _are_snoozed(app, jobs), what="all to wait")
        for n in range(20):
            assert await (await other.enqueue(n)).result(timeout=5) == n
        broker.start()
        for job in jobs:
            await job.result(timeout=30)
    records = [await app.jobs.show(job.id) for job in jobs]
    assert {(record.state, record.failures, record.crashes) for record in records} == {(JobState.SUCCEEDED, 0, 0)}
    assert sorted(id for id, _ in entries(broker)) == sorted(job.id for job in jobs)


async def _are_snoozed(app: Drumbeat, jobs: list[Any]) -> bool:
    return all([(await app.jobs.show(job.id)).token for job in jobs])


async def test_a_broker_that_hangs_does_not_hold_up_other_queues_for_long(app: Drumbeat, broker: RedisServer) -> None:
    sink = RedisStreamSink(stream="reminders", url=broker.url, timeout=0.3)
    remind = app.forward("remind", to=sink, queue="reminders", batch=1, retries=0)

    @app.task
    async def other() -> None: ...

    broker.pause()
    jobs = await app.enqueue_many([remind.bind(n) for n in range(30)])
    async with run_worker(app, concurrency=2):
        await (await other.enqueue()).result(timeout=10)
        broker.go_on()
        for job in jobs:
            await job.result(timeout=30)
    assert {(await app.jobs.show(job.id)).failures for job in jobs} == {0}
    assert sorted(id for id, _ in entries(broker)) == sorted(job.id for job in jobs)


async def test_a_full_broker_is_waited_for(app: Drumbeat, broker: RedisServer) -> None:
    remind = app.forward("remind", to=RedisStreamSink(stream="reminders", url=broker.url), retries=0)
    broker.ask("SET", "large", "x" * 1_000_000)
    broker.ask("CONFIG", "SET", "maxmemory", "1000")
    job = await remind.enqueue(1)
    async with run_worker(app):
        await until(lambda: _are_snoozed(app, [job]), what="the job to wait")
        broker.ask("CONFIG", "SET", "maxmemory", "0")
        await job.result(timeout=20)
    assert len(entries(broker)) == 1


async def test_a_key_that_is_no_stream_is_a_failure_of_the_job(app: Drumbeat, broker: RedisServer) -> None:
    broker.ask("SET", "reminders", "text")
    remind = app.forward("remind", to=RedisStreamSink(stream="reminders", url=broker.url), retries=0)
    job = await remind.enqueue(1)
    async with run_worker(app):
        await until(lambda: _is_dead(app, job), what="the dead letter")
    error = (await app.dead.show(job.id)).error
    assert error is not None and "WRONGTYPE" in error.message


async def _is_dead(app: Drumbeat, job: Any) -> bool:
    return (await app.jobs.show(job.id)).state is JobState.DEAD


async def test_what_was_told_cancelled_is_never_sent(store_url: str, broker: RedisServer) -> None:
    """Cancelled one by one while they are being sent: each is either sent or told cancelled, and never both."""
    async with Drumbeat(store_url) as app:
        await _cancel_against_sending(app, broker)


async def _cancel_against_sending(app: Drumbeat, broker: RedisServer) -> None:
    """Again, if one of the two was done before the other had begun."""
    remind = app.forward("remind", to=RedisStreamSink(stream="reminders", url=broker.url), batch=20)
    for _ in range(10):
        jobs = await app.enqueue_many([remind.using(key=f"order:{n}").bind(n) for n in range(1000)])
        told = {}
        async with run_worker(app):
            for job in reversed(jobs):
                told[job.id] = await job.cancel()
            await until(lambda: _none_is_left(app), deadline=30, what="all to end")
        sent = {id for id, _ in entries(broker)} & told.keys()
        cancelled = {id for id, answer in told.items() if answer is CancelAnswer.CANCELLED}
        assert sent & cancelled == set()
        states = {job.id: (await app.jobs.show(job.id)).state for job in jobs}
        assert {id for id, state in states.items() if state is JobState.SUCCEEDED} == sent
        if sent and cancelled:
            return
    pytest.fail("the two did not meet")


async def _none_is_left(app: Drumbeat) -> bool:
    return not any([await app.jobs.list(state=state, limit=1) for state in (JobState.PENDING, JobState.RUNNING)])


async def test_a_key_is_cancelled_until_the_last_moment(app: Drumbeat, broker: RedisServer) -> None:
    remind = app.forward("remind", to=RedisStreamSink(stream="reminders", url=broker.url))
    kept = await remind.using(key="order:1", delay=0.3).enqueue(1)
    await remind.using(key="order:2", delay=0.3).enqueue(2)
    async with run_worker(app):
        assert await app.cancel(task="remind", key="order:2") == Cancelled(cancelled=1, requested=0)
        await kept.result(timeout=10)
    assert [event["subject"] for _, event in entries(broker)] == ["order:1"]
