"""What all forwarded tasks have in common, with a sink of the test's own."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from drumbeat import Backoff, Drumbeat, JobState, SkipRetry
from drumbeat.errors import ConfigError
from drumbeat.sinks import Clock, Message, RedisStreamSink, SinkUnavailable
from tests.waiting import until
from tests.worker.worker_harness import run_worker


class Box:
    """A sink and its only outlet: keeps what is sent while it is open."""

    batch = 50

    def __init__(self) -> None:
        self.is_open = True
        self.tries = 0
        self.closed = 0
        self.events: list[dict[str, Any]] = []
        self.refusals: dict[int, Exception] = {}
        """By the data of a message, which is a number here."""

    def connect(self, clock: Clock) -> "Box":
        return self

    async def send(self, messages: Sequence[Message]) -> list[Exception | None]:
        self.tries += 1
        if not self.is_open:
            raise SinkUnavailable("the box is shut")
        events = [msgspec.json.decode(message.body) for message in messages]
        answers = [self.refusals.get(event["data"]) for event in events]
        self.events += [event for event, answer in zip(events, answers, strict=True) if answer is None]
        return answers

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture
def box() -> Box:
    return Box()


async def test_a_schedule_may_send(app: Drumbeat, box: Box) -> None:
    tick = app.forward("tick", to=box)
    app.every(0.2, grid=True, args=(7,), name="ticks")(tick)
    async with run_worker(app):
        await until(lambda: len(box.events) >= 2)
    assert {(event["type"], event["data"]) for event in box.events} == {("tick", 7)}
    assert len({event["time"] for event in box.events}) == len(box.events)


async def test_a_part_of_a_batch_is_retried_alone_and_what_is_given_up_is_a_dead_letter(
    app: Drumbeat, box: Box
) -> None:
    send = app.forward("send", to=box, retries=5, backoff=Backoff(base=0.01, cap=0.02))
    box.refusals = {3: ValueError("not yet"), 4: SkipRetry("never"), 5: SinkUnavailable("not now")}
    jobs = await app.enqueue_many([send.bind(n) for n in range(10)])
    async with run_worker(app):
        await until(lambda: len(box.events) == 7)
        box.refusals = {4: SkipRetry("never")}
        await until(lambda: len(box.events) == 9)
        await until(lambda: _is_dead(app, jobs[4].id))
    records = [await app.jobs.show(job.id) for job in jobs]
    assert sorted(event["data"] for event in box.events) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert records[3].failures >= 1 and records[5].failures == 0
    assert records[4].error is not None and records[4].error.message == "never"


async def _is_dead(app: Drumbeat, id: str) -> bool:
    return (await app.jobs.show(id)).state is JobState.DEAD


async def test_a_queue_whose_sink_is_away_is_left_alone(app: Drumbeat, box: Box) -> None:
    """Jobs that nobody can send now are not claimed and put back again and again."""
    send = app.forward("send", to=box, queue="sending", retries=0)

    @app.task
    async def other(n: int) -> int:
        return n

    box.is_open = False
    jobs = await app.enqueue_many([send.bind(n) for n in range(2000)])
    async with run_worker(app):
        await until(lambda: box.tries >= 3, deadline=30, what="some tries")
        assert await (await other.enqueue(1)).result(timeout=5) == 1
        tries, box.is_open = box.tries, True
        await until(lambda: len(box.events) == 2000, deadline=60)

        async def have_all_succeeded() -> bool:
            return (await app.jobs.counts(task="send")).succeeded == 2000

        await until(have_all_succeeded, deadline=30)
    store = await app._internals.store()
    attempts = await store.inspect.get_attempts([job.id for job in jobs])
    assert len(attempts) == 2000
    # With each try comes what two lanes of claims have for the slots that are free.
    assert sum(len(each) - 1 for each in attempts.values()) <= tries * 1500
    assert {(await app.jobs.show(job.id)).failures for job in jobs[:500]} == {0}


async def test_a_sink_is_closed_when_its_last_worker_leaves_and_opened_by_the_next(app: Drumbeat, box: Box) -> None:
    send = app.forward("send", to=box)
    for n in (1, 2):
        async with run_worker(app), run_worker(app):
            await (await send.enqueue(n)).result(timeout=10)
            assert box.closed == n - 1
        assert box.closed == n


async def test_a_dead_letter_may_be_replayed_and_keeps_its_id(app: Drumbeat, box: Box) -> None:
    send = app.forward("send", to=box, retries=0)
    box.refusals = {1: ValueError("full")}
    job = await send.enqueue(1)
    async with run_worker(app):
        await until(lambda: _is_dead(app, job.id))
        box.refusals = {}
        await app.dead.replay(job.id)
        await until(lambda: box.events)
    assert [event["id"] for event in box.events] == [job.id]


def test_what_is_no_sink_or_no_option_is_told_where_it_is_written(box: Box) -> None:
    app = Drumbeat()
    sink: Any = "redis://localhost"
    with pytest.raises(ConfigError, match="to= must be a sink"):
        app.forward("send", to=sink)
    with pytest.raises(ConfigError, match="to= must be a sink"):
        app.forward("send", to=Box)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="no option 'pool'"):
        app.forward("send", to=box, pool="thread")  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="is not a valid name"):
        app.forward("a name with spaces", to=box)
    with pytest.raises(ConfigError, match="batch must be"):
        app.forward("send", to=box, batch=0)
    assert not app._internals.registry


def test_a_forwarded_job_runs_no_user_code_so_no_crash_is_blamed_on_it(box: Box) -> None:
    app = Drumbeat()
    forwarded = app.forward("send", to=box)

    @app.task
    async def handled() -> None: ...

    assert (forwarded.runs_user_code, handled.runs_user_code) == (False, True)


def test_a_second_task_of_the_name_is_told_with_both_places(box: Box) -> None:
    app = Drumbeat()
    app.forward("send", to=box)
    with pytest.raises(ConfigError, match=r"two tasks named 'send': one at .*test_forwarding.py:\d+, one at .*py:\d+"):
        app.forward("send", to=box)


def test_a_sink_does_not_show_a_password() -> None:
    assert "secret" not in repr(RedisStreamSink(stream="s", url="redis://:secret@localhost"))
