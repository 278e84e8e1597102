"""Which failures are retried, and after which delay, as a worker does it."""

import asyncio

from drumbeat.app import Drumbeat
from drumbeat.core.job import Attempt, OutcomeKind
from drumbeat.retry import Backoff
from drumbeat.tasks import Call
from tests.worker.worker_harness import run_worker

AT_ONCE = Backoff(base=0.001, cap=0.001)


async def test_only_what_is_to_be_retried_is_retried_wherever_the_handler_runs(app: Drumbeat) -> None:
    @app.task(retries=1, backoff=AT_ONCE, retry_on=OSError, no_retry_on=ConnectionError)
    async def on_loop(kind: str) -> None:
        raise {"os": OSError, "connection": ConnectionResetError, "value": ValueError}[kind](kind)

    @app.task(retries=1, backoff=AT_ONCE, no_retry_on=ValueError)
    def in_thread(kind: str) -> None:
        raise OSError(kind) if kind == "os" else ValueError(kind)

    @app.task(retries=1, backoff=AT_ONCE, batch=10, no_retry_on=ValueError)
    async def in_batch(calls: list[Call[str]]) -> list[Exception | None]:
        return [OSError() if call.value == "os" else ValueError() for call in calls]

    @app.task(retries=1, backoff=AT_ONCE, timeout="1ms", retry_on=ValueError)
    async def too_long() -> None:
        await asyncio.Event().wait()

    calls = {
        "os": on_loop.bind("os"),
        "connection": on_loop.bind("connection"),
        "value": on_loop.bind("value"),
        "thread os": in_thread.bind("os"),
        "thread value": in_thread.bind("value"),
        "batch os": in_batch.bind("os"),
        "batch value": in_batch.bind("value"),
        "timeout": too_long.bind(),
    }
    async with app, run_worker(app):
        await app.enqueue_many(calls.values())
        for job in calls.values():
            await app.jobs.wait(job.id, timeout=10)
        runs = {name: kinds_of(await app.jobs.attempts(job.id)) for name, job in calls.items()}
    retried, at_once = [OutcomeKind.RETRY, OutcomeKind.DEAD], [OutcomeKind.DEAD]
    assert runs == {name: retried if name.endswith("os") else at_once for name in calls}


async def test_a_task_that_says_nothing_has_the_retries_and_delays_of_the_settings(app: Drumbeat) -> None:
    @app.task
    async def silent() -> None:
        raise ValueError

    @app.task(retries=2, backoff=[0])
    async def outspoken() -> None:
        raise ValueError

    async with app, run_worker(app, retries=1, backoff="1ms"):
        jobs = [await silent.enqueue(), await outspoken.enqueue()]
        for job in jobs:
            await app.jobs.wait(job.id, timeout=10)
        counts = [len(await app.jobs.attempts(job.id)) for job in jobs]
        infos = [await app.tasks.show(task.name) for task in (silent, outspoken)]
    assert counts == [2, 3]
    assert [(info.retries, info.backoff) for info in infos] == [(1, "1ms"), (2, "0s")]


def kinds_of(attempts: list[Attempt]) -> list[OutcomeKind]:
    return [attempt.outcome for attempt in attempts]
