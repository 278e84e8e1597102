"""No queue is starved, no job is held back from idle workers, nothing leaks from job to job."""

import asyncio
import threading
import time
from collections import Counter
from contextvars import ContextVar
from itertools import pairwise

import pytest

from drumbeat.app import Drumbeat
from drumbeat.core.claim import ClaimRequest
from drumbeat.core.job import JobState
from drumbeat.events import JobStarted, LoopBlocked
from drumbeat.worker import slots, store_loop
from tests.waiting import until, until_sync
from tests.worker.worker_harness import EventRecorder, run_worker


async def test_queues_are_served_by_weight_and_none_starves(app: Drumbeat) -> None:
    order: list[str] = []

    @app.task(queue="critical")
    async def critical() -> None:
        order.append("critical")

    @app.task(queue="default")
    async def default() -> None:
        order.append("default")

    @app.task(queue="low")
    async def low() -> None:
        order.append("low")

    async with app:
        await app.enqueue_many([task.bind() for task in (low, default, critical) for _ in range(300)])
        async with run_worker(app, concurrency=1, batch=1):
            await until(lambda: len(order) >= 200, deadline=30)
    share = Counter(order[:200])
    assert abs(share["critical"] - 120) <= 3 and abs(share["default"] - 60) <= 3 and abs(share["low"] - 20) <= 3


@pytest.mark.parametrize("weights", [{"a": 3, "b": 1}, {"a": 1, "b": 1}])
async def test_shares_hold_while_a_heavier_queue_is_empty(store_url: str, weights: dict[str, int]) -> None:
    app = Drumbeat(store_url, queues=weights | {"empty": 6})
    order: list[str] = []

    @app.task
    async def work(queue: str) -> None:
        order.append(queue)

    async with app:
        await app.enqueue_many([work.using(queue=queue).bind(queue) for queue in weights for _ in range(300)])
        async with run_worker(app, concurrency=10, batch=10):
            await until(lambda: len(order) >= 240, deadline=30)
    share = Counter(order[:240])
    assert abs(share["a"] / weights["a"] - share["b"] / weights["b"]) <= 10


async def test_strict_order_empties_the_heavier_queue_first(app: Drumbeat) -> None:
    order: list[str] = []

    @app.task(queue="critical")
    async def critical() -> None:
        order.append("critical")

    @app.task(queue="low")
    async def low() -> None:
        order.append("low")

    async with app:
        await app.enqueue_many([task.bind() for task in (low, critical) for _ in range(50)])
        async with run_worker(app, concurrency=1, strict=True):
            await until(lambda: len(order) == 100)
    assert order == ["critical"] * 50 + ["low"] * 50


async def test_urgent_jobs_go_first_and_equals_by_age(app: Drumbeat) -> None:
    order: list[int] = []

    @app.task
    async def work(n: int) -> None:
        order.append(n)

    async with app:
        for n, priority in enumerate([5, 9, 0, 5, 0]):
            await work.using(priority=priority).enqueue(n)
        async with run_worker(app, concurrency=1):
            await until(lambda: len(order) == 5)
    assert order == [2, 4, 0, 3, 1]


async def test_slow_jobs_are_not_prefetched_while_another_worker_is_idle(app: Drumbeat, app_url: str) -> None:
    go_on = asyncio.Event()
    runners: set[str] = set()
    other = Drumbeat(app_url)

    for each, name in ((app, "first"), (other, "second")):

        async def slow(n: int, name: str = name) -> None:
            runners.add(name)
            await go_on.wait()

        each.task(name="slow")(slow)

    async with app, other:
        slow_task = app._internals.registry["slow"]
        await app.enqueue_many([slow_task.bind(n) for n in range(6)])
        async with run_worker(app, concurrency=3), run_worker(other, concurrency=3):
            await until(lambda: runners == {"first", "second"})
            running = await app.jobs.list(state=JobState.RUNNING)
            assert len(running) <= 6
            go_on.set()
            await until(lambda: _none_live(app))


async def _none_live(app: Drumbeat) -> bool:
    return not await app.jobs.list(state=JobState.RUNNING) and not await app.jobs.list(state=JobState.PENDING)


async def test_fast_jobs_held_behind_one_that_turned_slow_go_back(app: Drumbeat) -> None:
    go_on = asyncio.Event()

    @app.task
    async def work(n: int) -> None:
        if n == 400:
            await go_on.wait()

    async with app:
        await app.enqueue_many([work.bind(n) for n in range(1000)])
        async with run_worker(app, concurrency=1):
            await until(lambda: _only_one_is_held(app), what="hoarded jobs going back")
            go_on.set()
            await until(lambda: _none_live(app))


async def _only_one_is_held(app: Drumbeat) -> bool:
    running = await app.jobs.list(state=JobState.RUNNING)
    return len(running) == 1 and '"n":400' in running[0].args


LEAKY: ContextVar[str] = ContextVar("leaky", default="clean")


async def test_a_context_variable_set_by_one_job_is_not_seen_by_the_next(app: Drumbeat) -> None:
    seen: list[str] = []

    @app.task
    async def stain(n: int) -> None:
        seen.append(LEAKY.get())
        LEAKY.set(f"stained by {n}")

    async with app, run_worker(app, concurrency=1):
        for n in range(5):
            await (await stain.enqueue(n)).result(timeout=5)
    assert seen == ["clean"] * 5


async def test_a_handler_that_blocks_the_loop_is_named(app: Drumbeat, recorder: EventRecorder) -> None:
    @app.task
    async def innocent() -> None:
        await asyncio.Event().wait()

    @app.task
    async def blocks() -> None:
        end = time.monotonic() + 1.6
        while time.monotonic() < end:
            pass

    async with app, run_worker(app, dead_after=10, drain=0.1):
        await innocent.enqueue()
        await blocks.enqueue()
        told = await recorder.next(LoopBlocked)
    assert told.tasks == ("blocks",)
    assert told.where.startswith("test_fairness.py:")


async def test_the_heartbeat_goes_on_while_a_handler_blocks_the_loop(app: Drumbeat) -> None:
    other = Drumbeat(app.settings.url)
    has_ten_beats = threading.Event()

    def watch(before: int) -> None:
        until_sync(lambda: other.sync.instances.list()[0].beat >= before + 10, deadline=20, what="ten heartbeats")
        has_ten_beats.set()
        other.sync.close()

    @app.task(retries=0)
    async def blocks() -> bool:
        return has_ten_beats.wait(20)

    async with app, run_worker(app, heartbeat=0.05, dead_after=0.5):
        before = (await until(app.instances.list))[0].beat
        watcher = threading.Thread(target=watch, args=(before,))
        watcher.start()
        assert await (await blocks.enqueue()).result(timeout=30)
        await asyncio.to_thread(watcher.join)


async def test_a_paused_queue_gives_nothing_until_it_is_resumed(app: Drumbeat) -> None:
    @app.task(queue="mail")
    async def send() -> str:
        return "sent"

    @app.task
    async def other() -> str:
        return "other"

    async with app, run_worker(app):
        await app.queues.pause("mail", reason="provider down", by="ada")
        mail = await send.enqueue()
        assert await (await other.enqueue()).result(timeout=5) == "other"
        assert (await app.jobs.show(mail.id)).state is JobState.PENDING
        await app.queues.resume("mail")
        assert await mail.result(timeout=5) == "sent"


async def test_what_a_full_worker_is_given_too_much_goes_back_at_once(
    app: Drumbeat, recorder: EventRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that stands may be answered while the next one is under way: together they can be more than there are slots."""
    monkeypatch.setattr(
        store_loop, "TICK_INTERVAL", 60.0
    )  # so that it is not the look for what is hoarded that finds it
    gate = asyncio.Event()

    @app.task
    async def hold() -> None:
        await gate.wait()

    async with app, run_worker(app, concurrency=1) as worker:
        first = await hold.enqueue()
        await recorder.next(JobStarted, lambda event: event.job.id == first.id)
        second = await hold.enqueue()
        store = await app._internals.store()
        me = worker._identity()
        answer = await store.jobs.report_and_claim(me, [], ClaimRequest(queues=(("default", 1),), limit=1))
        assert [job.id for job in answer.jobs] == [second.id]
        worker._parts.store_loop.on_parked_answer(me, answer)

        async def is_back() -> bool:
            return (await second.job()).state is JobState.PENDING

        await until(is_back, deadline=3, what="the job that is too many, pending again")
        gate.set()
        await second.result(timeout=5)
        assert (await second.job()).failures == 0


async def test_the_loop_turns_between_jobs_that_never_wait(app: Drumbeat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "TURN_SECONDS", 0.0)
    loop, seen = asyncio.get_running_loop(), list[str]()

    @app.task
    async def never_waits() -> None:
        seen.append("job")

    def turn() -> None:
        seen.append("turn")
        if seen.count("job") < 300:
            loop.call_soon(turn)

    async with app:
        await app.enqueue_many([never_waits.bind() for _ in range(300)])
        async with run_worker(app, concurrency=1):
            turn()
            await until(lambda: seen.count("job") == 300, what="all jobs")
    assert ("job", "job") not in set(pairwise(seen))


async def test_what_is_prefetched_because_jobs_are_short_does_not_go_back(
    app: Drumbeat, recorder: EventRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_loop, "TICK_INTERVAL", 60.0)
    gate = asyncio.Event()

    @app.task
    async def short() -> None: ...

    @app.task
    async def hold() -> None:
        await gate.wait()

    async with app, run_worker(app, concurrency=1) as worker:
        for job in await app.enqueue_many([short.bind() for _ in range(20)]):
            await job.result(timeout=10)
        assert worker._parts.fetcher.capacity.prefetch_limit
        first = await hold.enqueue()
        await recorder.next(JobStarted, lambda event: event.job.id == first.id)
        second = await short.enqueue()
        await until(lambda: len(worker._parts.buffer), what="the second in the buffer")
        worker._parts.store_loop._release_surplus()
        assert len(worker._parts.buffer) == 1
        gate.set()
        await second.result(timeout=5)
