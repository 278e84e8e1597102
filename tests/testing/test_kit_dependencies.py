"""Jobs that wait for others, and workflows, in a kit."""

import pytest

from drumbeat import Drumbeat, JobState, Results, chain, chord, current_job
from drumbeat.errors import InvalidArguments
from drumbeat.testing import Kit


@pytest.fixture
def app() -> Drumbeat:
    return Drumbeat("sqlite:////nowhere/jobs.db")


async def test_children_run_until_the_kit_is_idle(app: Drumbeat) -> None:
    @app.task
    async def double(number: int) -> int:
        return 2 * number

    @app.task
    async def total(parts: Results[int]) -> int:
        return sum([part async for part in parts])

    async with Kit(app) as kit:
        handle = await app.workflow("sum", chain(double.map(range(30), then=total), double)).enqueue()
        await kit.run_until_idle()
        assert await kit.result(handle.jobs[-1]) == 2 * 870
        assert kit.ran(double) == 31


async def test_a_child_of_a_delayed_job_runs_after_it(app: Drumbeat) -> None:
    @app.task
    async def step(name: str) -> str:
        return name + "!"

    async with Kit(app) as kit:
        first = await step.using(delay="2h").enqueue("a")
        child = await step.using(after=[first]).enqueue("b")
        kit.assert_enqueued(step, count=2)
        await kit.run_until_idle()
        assert kit.ran(step) == 0
        await kit.advance("1h")
        assert (await kit.job(child)).state is JobState.PENDING
        await kit.advance("1h")
        assert await kit.result(child) == "b!"


async def test_a_fan_out_is_followed_to_its_end(app: Drumbeat) -> None:
    @app.task
    async def step(number: int) -> int:
        return number

    async with Kit(app) as kit:
        parent = step.bind(0)
        await app.enqueue_many([parent, *(step.using(after=[parent]).bind(number) for number in range(2_500))])
        await kit.run_until_idle(max_jobs=3_000)
        assert kit.ran(step) == 2_501


async def test_added_jobs_run_too(app: Drumbeat) -> None:
    @app.task
    async def page(number: int) -> int:
        return number

    @app.task
    async def crawl() -> int:
        return len(await current_job().add("pages", [page.bind(number) for number in range(3)]))

    async with Kit(app) as kit:
        await crawl.enqueue()
        await kit.run_until_idle()
        assert kit.ran(page) == 3


async def test_perform_refuses_results_of_other_jobs_in_words(app: Drumbeat) -> None:
    @app.task
    async def double(number: int) -> int:
        return 2 * number

    @app.task
    async def total(parts: Results[int]) -> int:
        return sum([part async for part in parts])

    async with Kit(app) as kit:
        [_, child] = chain(double.bind(1), double).jobs
        for call in (child, chord([double.bind(1)], total).last):
            with pytest.raises(InvalidArguments, match="no parents whose results it could pass"):
                await kit.perform(call)
        assert await kit.perform(double.using(after=[double.bind(1)]).bind(4)) == 8
        assert await total(Results([1, 2])) == 3
