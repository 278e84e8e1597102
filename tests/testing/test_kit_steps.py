"""Handlers with steps, sleeps and signals under the testing kit: three days pass at once."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from drumbeat import Drumbeat, current_job
from drumbeat.errors import InvalidArguments
from drumbeat.testing import Kit


@pytest.fixture
def app() -> Drumbeat:
    return Drumbeat(name="shop")


async def test_a_sleep_of_three_days_passes_by_advance(app: Drumbeat) -> None:
    seen: list[tuple[str, datetime]] = []

    def note(what: str) -> int:
        seen.append((what, current_job().now()))
        return len(seen)

    @app.task
    async def remind(order: int) -> int:
        job = current_job()
        await job.step("first", note, "first")
        await job.sleep("3 days")
        return await job.step("second", note, "second")

    async with Kit(app) as kit:
        job = await remind.enqueue(1)
        await kit.run_until_idle()
        assert (await kit.job(job)).suspended == "sleep"
        await kit.advance("2d")
        assert [what for what, _ in seen] == ["first"]
        await kit.advance("2d")
        assert await kit.result(job) == 2
    (_, first), (_, second) = seen
    assert timedelta(days=3) <= second - first < timedelta(days=3, seconds=5)


async def test_sleeps_end_with_the_advance_that_is_as_long_as_they_are(app: Drumbeat) -> None:
    """What runs before a sleep takes a fraction of a millisecond of the kit's time, by which the sleep ends later."""

    @app.task
    async def remind() -> str:
        await current_job().sleep("1d")
        await current_job().sleep("1d", name="again")
        return "reminded"

    @app.task(retries=1, backoff=[60])
    async def fail() -> str:
        if current_job().attempt == 1:
            raise ValueError("again")
        return "done"

    async with Kit(app) as kit:
        job = await remind.enqueue()
        await kit.advance("1d")
        await kit.advance("1d")
        assert await kit.result(job) == "reminded"
        job = await remind.enqueue()
        await kit.advance("2d")
        assert await kit.result(job) == "reminded"
        retried = await fail.enqueue()
        await kit.advance("60s")
        assert await kit.result(retried) == "done"


def test_the_kit_takes_handles_of_code_without_a_loop(app: Drumbeat) -> None:
    @app.task
    def work() -> str:
        return "done"

    with Kit(app) as kit:
        job = work.enqueue_sync()
        kit.run_until_idle()
        assert (kit.job(job).id, kit.result(job)) == (job.id, "done")


async def test_a_def_handler_sleeps_under_the_kit_too(app: Drumbeat) -> None:
    @app.task
    def remind() -> str:
        current_job().sleep_sync("3d")
        return "reminded"

    async with Kit(app) as kit:
        job = await remind.enqueue()
        await kit.advance("4d")
        assert await kit.result(job) == "reminded"


async def test_perform_calls_steps_and_refuses_to_sleep(app: Drumbeat) -> None:
    async def double(number: int) -> int:
        return number * 2

    @app.task
    async def steps(number: int) -> Any:
        return await current_job().step("double", double, number)

    @app.task
    async def sleeps() -> None:
        await current_job().sleep("3d")

    async with Kit(app) as kit:
        assert await kit.perform(steps.bind(4)) == 8
        with pytest.raises(InvalidArguments, match=r"sleeps: perform\(\) runs a job once, and cannot suspend it"):
            await kit.perform(sleeps.bind())
