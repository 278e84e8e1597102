"""`app.workflow`, its handle, and the short forms, with a real worker beside the test."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drumbeat import Drumbeat, JobOutcome, JobState, Results, chain, chord, current_job, group
from drumbeat.errors import (
    InvalidArguments,
    JobFailed,
    JobNotFound,
    UniqueConflict,
    WorkflowCancelled,
    WorkflowConflict,
    WorkflowError,
    WorkflowNotFound,
    WrongContext,
)
from drumbeat.ids import new_job_id
from tests.conftest import fresh_url
from tests.waiting import until
from tests.worker.worker_harness import run_worker


@pytest.fixture(params=["sqlite", "postgres", "valkey"])
def app_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_url(request.param, tmp_path)


async def test_results_go_from_job_to_job(app: Drumbeat) -> None:
    @app.task
    async def fetch(number: int) -> dict[str, int]:
        return {"page": number}

    @app.task
    def render(page: dict[str, int], size: int = 1) -> str:
        return f"{page['page']}x{size}"

    @app.task
    async def join(left: str, right: str, *, sep: str) -> str:
        return f"{left}{sep}{right}"

    flow = app.workflow("invoice-42", labels={"customer": "ann"})
    one, two = flow.add(fetch.bind(1)), flow.add(fetch.bind(2))
    left, right = flow.add(render.bind(one.result)), flow.add(render.bind(two.result, size=5))
    flow.add(join.bind(left.result, right.result, sep=" "), after=[one])
    handle = await flow.enqueue()
    assert handle.id == flow.id and len(handle.jobs) == 5
    record = await handle.get()
    assert (record.name, record.labels, record.is_live) == ("invoice-42", {"customer": "ann"}, True)
    assert record.counts == {"pending": 2, "waiting": 3}
    async with run_worker(app):
        assert await handle.result(timeout=10) == "1x1 2x5"
        assert await app.get_workflow(flow.id).result(timeout=10) == "1x1 2x5"
    assert (await handle.get()).counts == {"succeeded": 5}
    assert {(await job.job()).workflow for job in handle.jobs} == {flow.id}


async def test_a_repeated_enqueue_is_the_same_workflow(app: Drumbeat) -> None:
    @app.task
    async def step(number: int) -> int:
        return number

    flow = app.workflow("twice", chain(step.bind(1), step))
    first, second = await flow.enqueue(), await flow.enqueue()
    assert first.id == second.id and [job.id for job in first.jobs] == [job.id for job in second.jobs]
    assert [job.created for job in second.jobs] == [False, False]
    assert len(await app.jobs.list()) == 2
    with pytest.raises(InvalidArguments, match="has been enqueued"):
        flow.add(step.bind(3))


async def test_short_forms(app: Drumbeat) -> None:
    @app.task
    async def double(number: int) -> int:
        return 2 * number

    @app.task
    async def total(parts: Results[int], start: int = 0) -> int:
        assert len(parts) in (3, 250)
        return sum([part async for part in parts], start)

    @app.task
    def total_in_thread(parts: Results[int]) -> int:
        return sum(parts)

    @app.task
    async def total_of_list(parts: list[int]) -> list[int]:
        return parts

    numbers = [3, 1, 2]
    async with run_worker(app):

        async def run(*parts: Any) -> Any:
            return await (await app.workflow("short", *parts).enqueue()).result(timeout=20)

        assert await run(chain(double.bind(1), double, double.using(priority=1))) == 8
        assert await run(chord(group([double.bind(number) for number in numbers]), total)) == 12
        assert await run(chord([double.bind(number) for number in numbers], total_of_list)) == [6, 2, 4]
        assert await run(double.map(range(250), then=total_in_thread)) == 250 * 249
        assert await run(double.map(range(250), then=total)) == 250 * 249
        assert await run(chain(double.map(numbers, then=total), double)) == 24


async def test_a_finaliser_may_run_although_some_failed(app: Drumbeat) -> None:
    @app.task(retries=0)
    async def halve(number: int) -> int:
        if number % 2:
            raise ValueError(f"{number} is odd")
        return number // 2

    @app.task
    async def report(halves: Results[JobOutcome[int]]) -> list[str]:
        return [half.error.message if half.error else str(half.value) async for half in halves]

    @app.task
    async def judge(half: JobOutcome[int]) -> str:
        return f"{half.state} {half.value} {half.error and half.error.type}"

    async with run_worker(app):
        part = chord(group([halve.bind(number) for number in range(4)]), report.using(if_parent_fails="run"))
        handle = await app.workflow("halves", part).enqueue()
        assert await handle.result(timeout=10) == ["0", "1 is odd", "1", "3 is odd"]
        for number, told in ((4, "succeeded 2 None"), (5, "dead None ValueError")):
            flow = app.workflow("half")
            flow.add(judge.bind(flow.add(halve.bind(number)).outcome), if_parent_fails="run")
            assert await (await flow.enqueue()).result(timeout=10) == told


async def test_a_workflow_is_cancelled_as_one(app: Drumbeat) -> None:
    ran: list[int] = []

    @app.task
    async def step(number: int) -> int:
        ran.append(number)
        return number

    handle = await app.workflow("cancelled", chain(step.using(delay=3600).bind(1), step, step)).enqueue()
    cancelled = await handle.cancel()
    assert (cancelled.cancelled, cancelled.requested) == (3, 0)
    record = await handle.get()
    assert record.cancelled_at is not None and not record.is_live
    assert record.counts == {"cancelled": 3}
    assert (await handle.cancel()).cancelled == 0
    assert ran == []


async def test_what_failed_is_replayed_and_the_rest_follows(app: Drumbeat) -> None:
    ran: list[str] = []
    is_mended = False

    @app.task(retries=0)
    async def step(text: str, name: str) -> str:
        ran.append(name)
        if name == "b" and not is_mended:
            raise ValueError("broken")
        return text + name

    flow = app.workflow("replayed")
    a = flow.add(step.bind("", "a"))
    b = flow.add(step.bind(a.result, "b"))
    flow.add(step.bind(b.result, "c"))
    handle = await flow.enqueue()
    async with run_worker(app):
        with pytest.raises(JobFailed):
            await handle.jobs[1].result(timeout=10)

        async def has_ended() -> bool:
            return not (await handle.get()).is_live

        await until(has_ended, what="the end of the workflow")
        is_mended = True
        assert [each.replayed for each in await handle.replay()] == [True]
        await until(has_ended, what="the end of its second life")
        assert await handle.result(timeout=10) == "abc"
    assert ran == ["a", "b", "b", "c"]


async def test_the_result_of_a_workflow_is_that_of_its_only_last_job(app: Drumbeat) -> None:
    @app.task
    async def step(number: int) -> int:
        return number

    handle = await app.workflow("two ends", group([step.bind(1), step.bind(2)])).enqueue()
    with pytest.raises(WorkflowError, match=r"ends in several jobs.*chord\(group\(calls\), finaliser\)"):
        await handle.result(timeout=1)


async def test_the_last_job_may_be_one_that_was_added_meanwhile(app: Drumbeat) -> None:
    @app.task
    async def step(number: int) -> int:
        return number + 1

    @app.task(retries=0)
    async def grow(fails: bool) -> int:
        this = current_job().id
        await current_job().add("more", [step.using(after=[this], if_parent_fails="run").bind(5)])
        if fails:
            raise ValueError("after it has added")
        return 1

    for fails in (False, True):
        handle = await app.workflow("grows", grow.bind(fails)).enqueue()
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(handle.result(timeout=10))
            async with run_worker(app):
                assert await waiting == 6


async def test_a_refused_workflow_can_be_changed_and_stored(app: Drumbeat) -> None:
    @app.task
    async def step(number: int) -> int:
        return number

    missing = step.bind(0)
    flow = app.workflow("mended", step.using(after=[missing]).bind(1))
    with pytest.raises(JobNotFound, match="for which a call of"):
        await flow.enqueue()
    flow.add(missing)
    assert len((await flow.enqueue()).jobs) == 2
    with pytest.raises(InvalidArguments, match="has been enqueued"):
        flow.add(step.bind(2))


async def test_all_or_none(app: Drumbeat) -> None:
    @app.task
    async def step(number: int) -> int:
        return number

    holder = await step.using(key="k", unique=True).enqueue(1)
    flow = app.workflow("conflict", step.bind(1), step.using(key="k", unique=True).bind(2))
    with pytest.raises(UniqueConflict, match=holder.id):
        await flow.enqueue()
    assert [job.id for job in await app.jobs.list()] == [holder.id]
    with pytest.raises(WorkflowNotFound):
        await app.get_workflow(flow.id).get()


async def test_a_unique_workflow_is_the_only_live_one_of_its_name(app: Drumbeat) -> None:
    @app.task
    async def step(number: int) -> int:
        return number

    first = await app.workflow("nightly", step.bind(1), unique=True).enqueue()
    with pytest.raises(WorkflowConflict, match=first.id):
        await app.workflow("nightly", step.bind(2), unique=True).enqueue()
    await app.workflow("nightly", step.bind(3)).enqueue()
    assert len(await app.jobs.list()) == 2


async def test_unknown_workflows(app: Drumbeat) -> None:
    handle = app.get_workflow(new_job_id())
    for act in (handle.get, handle.cancel, handle.replay, handle.result):
        with pytest.raises(WorkflowNotFound, match=handle.id):
            await act()
    with pytest.raises(InvalidArguments, match="no id of a workflow"):
        app.get_workflow("invoice-42")


async def test_without_a_loop(app: Drumbeat) -> None:
    @app.task
    def double(number: int) -> int:
        return 2 * number

    flow = app.workflow("sync", chain(double.bind(1), double))

    def use() -> tuple[Any, Any, str]:
        handle = flow.enqueue_sync()
        again = app.sync.get_workflow(handle.id)
        return handle.result(timeout=10), again.result(timeout=10), handle.get().name

    async with run_worker(app):
        assert await asyncio.to_thread(use) == (4, 4, "sync")
    with pytest.raises(WrongContext, match=r"use await flow\.enqueue"):
        flow.enqueue_sync()


async def test_a_running_job_adds_to_its_workflow_once(app: Drumbeat) -> None:
    added: list[list[str]] = []

    @app.task
    async def page(number: int) -> int:
        return number

    @app.task(retries=3, backoff=[0.01])
    async def crawl(count: int) -> int:
        handles = await current_job().add("pages", [page.bind(number) for number in range(count)])
        added.append([handle.id for handle in handles])
        if current_job().attempt == 1:
            raise ValueError("again")
        return sum([await handle.result(timeout=10) for handle in handles])

    async with run_worker(app, concurrency=4):
        handle = await app.workflow("crawl", crawl.bind(3)).enqueue()
        assert await handle.jobs[0].result(timeout=10) == 3
    assert len(added) == 2 and added[0] == added[1]
    jobs = await app.jobs.list(task=page.name)
    assert {job.workflow for job in jobs} == {handle.id} and {job.parent for job in jobs} == {handle.jobs[0].id}
    assert len(jobs) == 3


async def test_nothing_is_added_to_a_cancelled_workflow(app: Drumbeat) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()
    told: list[str] = []

    @app.task
    async def page(number: int) -> int:
        return number

    @app.task(retries=0)
    async def crawl() -> None:
        started.set()
        await go_on.wait()
        try:
            await current_job().add("pages", [page.bind(1)])
        except WorkflowCancelled as error:
            told.append(error.workflow)
            raise

    async with run_worker(app):
        handle = await app.workflow("late", crawl.bind()).enqueue()
        await started.wait()
        store = await app._internals.store()
        assert await store.workflows.mark_cancelled(handle.id)  # without the jobs, which would be told to stop
        go_on.set()
        with pytest.raises(JobFailed, match="nothing can be added to it"):
            await handle.jobs[0].result(timeout=10)
    assert told == [handle.id]
    assert await app.jobs.list(task=page.name) == []


async def test_a_def_handler_adds_outside_of_workflows_too(app: Drumbeat) -> None:
    @app.task
    def page(number: int) -> int:
        return number

    @app.task
    def crawl() -> int:
        handles = current_job().add_sync("pages", [page.bind(1), page.bind(2)])
        return sum(handle.result(timeout=10) for handle in handles)

    async with run_worker(app, concurrency=4):
        job = await crawl.enqueue()
        assert await job.result(timeout=10) == 3
    assert (await app.jobs.list(task=page.name))[0].workflow is None


async def test_a_task_with_options_is_mapped_too(app: Drumbeat) -> None:
    @app.task
    async def step(number: int) -> int:
        return number

    @app.task
    async def add_up(numbers: Results[int]) -> int:
        return sum([number async for number in numbers])

    handle = await app.workflow("mapped", step.using(priority=2).map([1, 2], then=add_up.using(priority=1))).enqueue()
    assert [(await job.job()).priority for job in handle.jobs] == [2, 2, 1]
    async with run_worker(app):
        assert await handle.result(timeout=10) == 3


def test_what_a_workflow_cannot_be() -> None:
    app = Drumbeat("sqlite:////nowhere/jobs.db")

    @app.task
    async def step(number: int) -> int:
        return number

    def twins(name: str) -> Callable[[], object]:
        calls = [step.using(key="k", unique=True).bind(number) for number in range(2)]
        return lambda: app.workflow(name, *calls).enqueue()

    flow = app.workflow("refused")
    call = step.bind(1)
    flow.add(call)
    wrong: Any = step
    for add, problem in (
        (lambda: flow.add(call), "in the workflow already"),
        (lambda: flow.add(wrong), "takes what task.bind"),
        (lambda: app.workflow("empty").enqueue(), "has no jobs"),
        (lambda: app.workflow("a", labels={"a": "b\n"}), "must be a printable text"),
        (lambda: app.workflow("a", labels={"not a name": "b"}), "label"),
        (lambda: app.workflow("a", labels={"shop": 1}), "label 'shop' must be a printable text"),  # type: ignore[dict-item]
        (lambda: app.workflow(""), "workflow name '' is not valid"),
        (lambda: flow.add(step.bind(1), if_parent_fails="run"), "if_parent_fails needs parents"),
        (twins("live"), "two calls of .*step have the same unique key 'k'"),
        (lambda: group(call), "group takes a list of calls, such as"),  # type: ignore[arg-type]
        (lambda: chord(call, wrong), "chord takes a list of calls, such as"),  # type: ignore[call-overload]
        (lambda: chain(group([call]), step), "after a group comes chord"),  # type: ignore[call-overload]
        (lambda: app.sync.enqueue_many(call), "enqueue_many takes a list of calls"),  # type: ignore[arg-type]
        (lambda: chord([], wrong), "needs one call or more"),
        (lambda: chain(wrong, step), "takes what task.bind"),
        (lambda: chain(call, call), "takes tasks here"),  # type: ignore[call-overload]
        (lambda: step.map(["a"]), "must be int"),  # type: ignore[list-item]
    ):
        with pytest.raises(InvalidArguments, match=problem):
            add()


async def test_a_job_of_a_workflow_shows_it(app: Drumbeat) -> None:
    @app.task
    async def step(number: int) -> int:
        return number

    handle = await app.workflow("seen", step.bind(1)).enqueue()
    record = await handle.jobs[0].job()
    assert (record.workflow, record.state, record.open_parents) == (handle.id, JobState.PENDING, None)


async def test_an_added_call_must_be_one(app: Drumbeat) -> None:
    @app.task
    async def page(number: int) -> int:
        return number

    @app.task(retries=0)
    async def crawl() -> None:
        wrong: Any = page
        await current_job().add("pages", [wrong])

    async with run_worker(app):
        with pytest.raises(JobFailed, match=r"takes what task\.bind\(\.\.\.\) gives"):
            await (await crawl.enqueue()).result(timeout=10)


def test_a_map_of_100_000_items_has_room_for_its_finaliser() -> None:
    app = Drumbeat("sqlite:////nowhere/jobs.db")

    @app.task
    async def double(number: int) -> int:
        return 2 * number

    @app.task
    async def total(parts: Results[int]) -> int:
        return len(parts)

    check = app._internals.client.check_graph
    jobs, edges = check(double.map(range(100_000), then=total).jobs)
    assert (len(jobs), len(edges)) == (100_001, 100_000)
    with pytest.raises(InvalidArguments, match="a workflow takes at most 101,000 jobs in one call, not 101,001"):
        check(double.map(range(101_000), then=total).jobs)
