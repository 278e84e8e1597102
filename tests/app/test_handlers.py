"""What handlers may do with the app that runs them, with a real worker beside the test."""

from pathlib import Path

import pytest

from drumbeat import Drumbeat
from drumbeat.errors import WrongContext
from tests.worker.worker_harness import run_worker


async def test_an_async_handler_enqueues_and_waits_on_the_workers_own_loop(app: Drumbeat) -> None:
    @app.task
    async def double(number: int) -> int:
        return 2 * number

    @app.task
    async def quadruple(number: int) -> int:
        half = await (await double.enqueue(number)).result(timeout=10)
        return await (await double.enqueue(half)).result(timeout=10)

    async with run_worker(app):
        assert await (await quadruple.enqueue(3)).result(timeout=20) == 12


async def test_a_def_handler_enqueues_and_waits_from_its_thread(app: Drumbeat) -> None:
    @app.task
    def double(number: int) -> int:
        return 2 * number

    @app.task
    def quadruple(number: int) -> int:
        half = double.enqueue_sync(number).result(timeout=10)
        [handle] = app.sync.enqueue_many([double.bind(half)])
        return app.sync.jobs.handle(handle.id).result(timeout=10)  # type: ignore[no-any-return]

    async with run_worker(app):
        assert await (await quadruple.enqueue(3)).result(timeout=20) == 12


async def test_an_async_handler_that_calls_sync_is_told_so_instead_of_hanging(app: Drumbeat) -> None:
    @app.task
    async def hasty() -> str:
        with pytest.raises(WrongContext) as told:
            hasty.enqueue_sync()
        return str(told.value)

    async with run_worker(app):
        said = await (await hasty.enqueue()).result(timeout=10)
    assert said == "hasty.enqueue_sync was called on the thread of a running event loop: use await hasty.enqueue"


async def test_arguments_and_results_may_be_as_large_as_the_settings_say(tmp_path: Path) -> None:
    app = Drumbeat(f"sqlite:///{tmp_path}/large.db", payload_limit=2_000_000)

    @app.task
    async def echo(text: str) -> str:
        return text

    async with app, run_worker(app):
        assert await (await echo.enqueue("x" * 1_000_000)).result(timeout=10) == "x" * 1_000_000


async def test_a_worker_reads_what_a_program_with_a_higher_limit_has_enqueued(app: Drumbeat, app_url: str) -> None:
    generous = Drumbeat(app_url, payload_limit=2_000_000)

    async def size(text: str) -> int:
        return len(text)

    enqueued, _ = generous.task(size), app.task(size)
    async with generous, run_worker(app):
        assert await (await enqueued.enqueue("x" * 1_000_000)).result(timeout=10) == 1_000_000
