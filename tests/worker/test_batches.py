import asyncio

import pytest

from drumbeat import errors
from drumbeat.app import Drumbeat
from drumbeat.retry import Snooze
from drumbeat.tasks import Call
from tests.waiting import until
from tests.worker.worker_harness import run_worker


async def test_a_batch_handler_gets_many_calls_at_once_and_answers_each(app: Drumbeat) -> None:
    sizes: list[int] = []

    @app.task(batch=100)
    async def double(calls: list[Call[int]]) -> list[int | Exception]:
        sizes.append(len(calls))
        return [call.value * 2 for call in calls]

    async with app:
        jobs = await app.enqueue_many([double.bind(n) for n in range(1000)])
        async with run_worker(app, concurrency=2):
            assert [await job.result(timeout=10) for job in jobs] == [2 * n for n in range(1000)]
    assert sum(sizes) == 1000 and max(sizes) <= 100
    assert len(sizes) <= 100, "groups stayed small"


async def test_a_part_of_a_batch_may_fail_and_only_that_part_is_retried(app: Drumbeat) -> None:
    seen: list[tuple[int, int]] = []

    @app.task(batch=10, retries=0)
    def store(calls: list[Call[int]]) -> list[Exception | None]:
        seen.extend((call.value, call.attempt) for call in calls)
        return [
            ValueError("odd") if call.value == 3 else Snooze(0.01) if call.value == 4 and _first(seen, 4) else None
            for call in calls
        ]

    async with app:
        jobs = await app.enqueue_many([store.bind(n) for n in range(6)])
        async with run_worker(app):
            for n, job in enumerate(jobs):
                if n == 3:
                    with pytest.raises(errors.JobFailed, match="odd"):
                        await job.result(timeout=5)
                else:
                    assert await job.result(timeout=5) is None
    assert sorted(seen) == [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (4, 1), (5, 1)]


def _first(seen: list[tuple[int, int]], value: int) -> bool:
    return sum(1 for each, _ in seen if each == value) == 1


async def test_a_batch_handler_that_raises_fails_all_its_calls(app: Drumbeat) -> None:
    @app.task(batch=10, retries=0)
    async def broken(calls: list[Call[int]]) -> None:
        raise ConnectionError("no broker")

    @app.task(batch=10, retries=0)
    async def wrong(calls: list[Call[int]]) -> list[int | Exception]:
        return [1] * (len(calls) + 1)

    async with app, run_worker(app):
        for job in await app.enqueue_many([broken.bind(1), broken.bind(2)]):
            with pytest.raises(errors.JobFailed, match="no broker"):
                await job.result(timeout=5)
        for job in await app.enqueue_many([wrong.bind(1), wrong.bind(2)]):
            with pytest.raises(errors.JobFailed, match="must return None or a list of"):
                await job.result(timeout=5)


async def test_call_says_which_job_it_is(app: Drumbeat) -> None:
    seen: list[Call[str]] = []
    done = asyncio.Event()

    @app.task(batch=10)
    async def note(calls: list[Call[str]]) -> None:
        seen.extend(calls)
        done.set()

    async with app, run_worker(app):
        job = await note.using(key="k").enqueue("v")
        await until(done.is_set)
    (call,) = seen
    assert (call.id, call.key, call.value, call.attempt) == (job.id, "k", "v", 1)
