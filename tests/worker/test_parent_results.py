"""Results of parents as arguments, and children of parents that have ended, in a real worker."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from drumbeat import Drumbeat, JobState, Results, chain, chord, current_job, group
from drumbeat.core.dependencies import Binding, ParentResult
from drumbeat.core.job import Failure
from drumbeat.errors import JobFailed, WrongContext
from drumbeat.ids import JobId
from drumbeat.tasks import Call
from drumbeat.worker import Worker
from drumbeat.worker.parent_results import value_of
from drumbeat.worker.result import ParentResultUnusable
from tests.apps import finishing
from tests.conftest import fresh_url
from tests.faults import FaultyStore
from tests.waiting import until
from tests.worker.worker_harness import run_worker


@pytest.fixture(params=["sqlite", "postgres", "valkey"])
def app_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_url(request.param, tmp_path)


async def result_of(app: Drumbeat, *parts: Any) -> Any:
    return await (await app.workflow("w", *parts).enqueue()).result(timeout=20)


async def failure_of(app: Drumbeat, *parts: Any) -> tuple[str, str]:
    with pytest.raises(JobFailed) as told:
        await result_of(app, *parts)
    return told.value.type, told.value.message


async def test_a_result_of_another_type_is_a_dead_letter_at_once_that_names_both_tasks(app: Drumbeat) -> None:
    ran: list[Any] = []

    @app.task(name="fetch")
    async def fetch() -> Any:
        return {"no": "number"}

    @app.task(name="add", retries=5)
    async def add(number: int) -> int:
        ran.append(number)
        return number

    @app.task(name="total", retries=5)
    async def total(parts: Results[int]) -> int:
        return sum([part async for part in parts])

    @app.task(name="total_list", retries=5)
    async def total_list(parts: list[int]) -> int:
        return sum(parts)

    async with run_worker(app):
        for name, part in (
            ("add: argument 'number'", chain(fetch.bind(), add)),
            ("total: argument 'parts'", chord(group([fetch.bind()]), total)),
            ("total_list: argument 'parts'", chord(group([fetch.bind()]), total_list)),
        ):
            kind, message = await failure_of(app, part)
            assert kind == "ParentResultMismatch" and message.startswith(name) and "(task fetch) is not" in message
    assert ran == []
    dead = await app.dead.list()
    assert [job.failures for job in dead] == [1, 1, 1]


async def test_a_result_that_could_not_be_kept_is_lost_for_those_who_bind_it(app: Drumbeat) -> None:
    @app.task(name="fetch")
    async def fetch() -> Any:
        return float("nan")

    @app.task(name="add", retries=5)
    async def add(number: float) -> float:
        return number

    @app.task
    async def after() -> str:
        return "ran"

    async with run_worker(app):
        kind, message = await failure_of(app, chain(fetch.bind(), add))
        assert kind == "ParentResultLost" and message.startswith("add: argument 'number': the result of its parent ")
        assert "was not kept" in message
        flow = app.workflow("only waits")
        flow.add(after.bind(), after=[flow.add(fetch.bind())])
        assert await (await flow.enqueue()).result(timeout=10) == "ran"


async def test_a_job_that_returned_nothing_gives_none(app: Drumbeat) -> None:
    @app.task
    async def fetch() -> None: ...

    @app.task
    async def read(value: None, other: str = "x") -> str:
        return f"{value} {other}"

    async with run_worker(app):
        assert await result_of(app, chain(fetch.bind(), read)) == "None x"


async def test_results_together_have_a_limit(app: Drumbeat) -> None:
    @app.task
    async def fetch() -> str:
        return "x" * 250_000

    @app.task(name="lengths", retries=0)
    async def lengths(parts: Results[str]) -> int:
        return sum([len(part) async for part in parts])

    @app.task(name="length_of_list", retries=0)
    async def length_of_list(parts: list[str]) -> int:
        return sum(map(len, parts))

    async with run_worker(app):
        assert await result_of(app, chord([fetch.bind() for _ in range(20)], lengths)) == 5_000_000
        assert await result_of(app, chord([fetch.bind() for _ in range(4)], length_of_list)) == 1_000_000
        kind, message = await failure_of(app, chord([fetch.bind() for _ in range(5)], length_of_list))
        assert kind == "ParentResultLost" and "annotate it Results[...]" in message


async def test_many_arguments_together_have_a_limit(app: Drumbeat) -> None:
    @app.task
    async def fetch() -> str:
        return "x" * 250_000

    names = [f"part{number}" for number in range(18)]
    taken: dict[str, Any] = {}
    exec(f"async def join({', '.join(f'{name}: str' for name in names)}) -> int: return 1", taken)
    join = app.task(name="join", retries=0)(taken["join"])
    flow = app.workflow("large")
    flow.add(join.bind(*[flow.add(fetch.bind()).result for _ in names]))
    async with run_worker(app):
        with pytest.raises(JobFailed, match=r"ParentResultLost: join: .* are more than 4 MiB together"):
            await (await flow.enqueue()).result(timeout=20)


async def test_a_dead_letter_of_on_dead_has_the_stored_arguments(app: Drumbeat) -> None:
    args: list[str] = []

    @app.task
    async def fetch() -> str:
        return "secret"

    @app.task(retries=0, name="fails")
    async def fails(text: str, other: int) -> None:
        raise ValueError(text)

    @fails.on_dead
    async def mourn(job: Any, error: Any) -> None:
        args.append(job.args)

    flow = app.workflow("dies")
    flow.add(fails.bind(flow.add(fetch.bind()).result, 3))
    async with run_worker(app):
        with pytest.raises(JobFailed, match="secret"):
            await (await flow.enqueue()).result(timeout=10)
        await until(lambda: args, what="on_dead")
    assert args == ['{"other":3}']


async def test_jobs_of_a_batch_get_results_each(app: Drumbeat) -> None:
    @app.task
    async def fetch(number: int) -> int:
        return number

    @app.task(batch=10)
    async def store(calls: list[Call[int]]) -> list[int | Exception]:
        return [10 * call.value for call in calls]

    flow = app.workflow("batch")
    for number in range(5):
        flow.add(store.bind(flow.add(fetch.bind(number)).result))
    async with run_worker(app):
        handle = await flow.enqueue()
        stored = [await job.result(timeout=10) for job in handle.jobs]
    assert stored == [0, 0, 1, 10, 2, 20, 3, 30, 4, 40]


async def test_results_are_read_on_the_loop_by_async_for_only(app: Drumbeat) -> None:
    @app.task
    async def fetch() -> int:
        return 1

    @app.task(retries=0)
    async def total(parts: Results[int]) -> int:
        return sum(parts)

    async with run_worker(app):
        with pytest.raises(JobFailed, match=r"use async for"):
            await result_of(app, chord([fetch.bind()], total))
    assert sum(Results([1, 2])) == 3
    assert [part async for part in Results([1, 2])] == [1, 2]
    assert issubclass(WrongContext, RuntimeError)


async def test_an_outage_while_results_are_loaded_is_waited_out(app: Drumbeat) -> None:
    @app.task
    async def fetch() -> int:
        return 20

    @app.task(retries=0)
    async def add(number: int) -> int:
        return number + 1

    stores: list[FaultyStore] = []

    def wrap(store: Any) -> Any:
        stores.append(FaultyStore(store))
        stores[-1].fail_before.update({"dependencies.load_results": 2, "dependencies.advance": 1})
        return stores[-1]

    app._internals.client.wrap_store = wrap
    async with run_worker(app):
        assert await result_of(app, chain(fetch.bind(), add)) == 21
    assert sum(store.calls["dependencies.load_results"] for store in stores) == 3


async def test_what_is_claimed_together_is_loaded_together(app: Drumbeat) -> None:
    """However few slots there are."""

    @app.task
    async def fetch(number: int) -> int:
        return number

    @app.task
    async def add(number: int) -> int:
        return number + 1

    stores: list[FaultyStore] = []

    def wrap(store: Any) -> Any:
        stores.append(FaultyStore(store))
        return stores[-1]

    flow = app.workflow("many")
    parents = [flow.add(fetch.bind(number)) for number in range(40)]
    children = [flow.add(add.bind(parent.result)) for parent in parents]
    app._internals.client.wrap_store = wrap
    workflow = await flow.enqueue()
    async with run_worker(app, concurrency=1):
        results = [await job.result(timeout=10) for job in workflow.jobs if job.id in {child.id for child in children}]
    assert results == [number + 1 for number in range(40)]
    assert 1 <= sum(store.calls["dependencies.load_results"] for store in stores) <= 20


async def test_jobs_without_parents_load_nothing(app: Drumbeat) -> None:
    @app.task
    async def plain(number: int) -> int:
        return number

    stores: list[FaultyStore] = []

    def wrap(store: Any) -> Any:
        stores.append(FaultyStore(store))
        return stores[-1]

    app._internals.client.wrap_store = wrap
    async with run_worker(app):
        handles = await app.enqueue_many([plain.bind(number) for number in range(50)])
        assert [await handle.result(timeout=10) for handle in handles] == list(range(50))
    for call in ("add", "load_results", "page_results"):
        assert sum(store.calls[f"dependencies.{call}"] for store in stores) == 0


@pytest.mark.parametrize("app_url", ["sqlite", "postgres"], indirect=True)
async def test_the_children_of_a_job_that_completed_in_its_transaction_follow(app: Drumbeat) -> None:
    @app.task(transactional=True)
    async def book() -> int:
        async with current_job().transaction() as conn:
            await current_job().complete(conn=conn, result=7)
        return 0

    @app.task
    async def add(number: int) -> int:
        return number + 1

    async with run_worker(app):
        assert await result_of(app, chain(book.bind(), add)) == 8


async def test_a_wide_fan_out_follows_its_parent(app: Drumbeat) -> None:
    @app.task
    async def first() -> int:
        return 1

    @app.task
    async def child(number: int) -> int:
        return number

    parent = first.bind()
    children = [child.using(after=[parent]).bind(number) for number in range(2_500)]
    async with run_worker(app, concurrency=50):
        handles = await app.enqueue_many([parent, *children])

        async def are_done() -> bool:
            return (await app.jobs.counts()).succeeded >= 2_501

        await until(are_done, what="the end of all children", deadline=30)
    assert len(handles) == 2_501


@pytest.mark.parametrize("app_url", ["postgres"], indirect=True)
async def test_a_sweep_follows_what_nobody_followed(app: Drumbeat, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the worker had died after the commit of the handler's own transaction, before it could follow the edges. On
    PostgreSQL, where no other call of this worker follows them."""
    monkeypatch.setattr("drumbeat.controller.release_sweeper.RUN_INTERVAL", 0.1)
    monkeypatch.setattr("drumbeat.worker.release_follower.ReleaseFollower.wake", lambda self: None)

    @app.task
    async def book() -> int:
        async with current_job().transaction() as conn:
            await current_job().complete(conn=conn, result=7)
        return 0

    @app.task
    async def add(number: int) -> int:
        return number + 1

    async with run_worker(app):
        assert await result_of(app, chain(book.bind(), add)) == 8


async def test_a_burst_ends_when_the_last_child_has_ended(app: Drumbeat) -> None:
    @app.task
    async def step(number: int) -> int:
        return number + 1

    part = chain(step.bind(0), step, step, step)
    [*_, last] = await app.enqueue_many(part.jobs)
    worker = Worker(app._internals, app.configure({"burst": True, "heartbeat": 0.05, "poll": 0.2}), may_exit=True)
    await asyncio.wait_for(worker.run(), 20)
    assert await last.result(timeout=0) == 4


@pytest.fixture
async def shop(app_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Drumbeat]:
    """A worker with child processes, and its program in this process."""
    monkeypatch.setenv("DRUMBEAT_URL", app_url)
    app = finishing.app
    settings = app.configure({"url": app_url, "heartbeat": 0.1, "poll": 0.2})
    async with app:
        worker = Worker(app._internals, settings, ref="tests.apps.finishing:app")
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(worker.run())
            yield app
            worker.request_stop()
            await asyncio.wait([running])


async def test_child_processes_get_results_through_their_worker(shop: Drumbeat) -> None:
    double, me = finishing.double, os.getpid()
    number, pid = await result_of(shop, chain(double.bind(2), finishing.where))
    assert number == 4 and pid != me
    count, total, pid = await result_of(shop, double.map(range(250), then=finishing.total))
    assert (count, total) == (250, 250 * 249) and pid != me
    assert await result_of(shop, double.map([4, 5], then=finishing.first_of)) == 8
    flow = shop.workflow("outcome")
    parent = flow.add(finishing.fail.using(retries=0).bind())
    flow.add(finishing.judge.bind(parent.outcome), if_parent_fails="run")
    assert await (await flow.enqueue()).result(timeout=30) == "dead no"


async def test_child_processes_add_jobs_once_and_see_refusals(shop: Drumbeat) -> None:
    job = await finishing.add.enqueue(3)
    ids = await job.result(timeout=30)
    jobs = await shop.jobs.list(task="double")
    assert sorted(job.id for job in jobs) == sorted(ids) and len(ids) == 3
    flow = shop.workflow("late")
    flow.add(finishing.add_late.using(delay=0.3).bind())
    handle = await flow.enqueue()
    store = await shop._internals.store()
    assert await store.workflows.mark_cancelled(handle.id)  # not its job, which was due anyway
    assert await handle.jobs[0].result(timeout=30) == f"refused: {handle.id}"


def given(**changes: Any) -> ParentResult:
    fields: dict[str, Any] = {"binding": Binding.RESULT, "argument": "a", "place": 0, "state": JobState.SUCCEEDED}
    fields |= changes
    return ParentResult(parent=JobId("p"), task="fetch", **fields)


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (given(state=None), "nothing is kept of its parent p (task fetch): its history was pruned"),
        (given(state=JobState.DEAD), "its parent p (task fetch) ended as dead, and has no result"),
        (given(result_error="too large"), "the result of its parent p (task fetch) was not kept: too large"),
    ],
)
def test_what_a_lost_result_says(result: ParentResult, problem: str) -> None:
    with pytest.raises(ParentResultUnusable) as told:
        value_of("add", "a", result, as_outcome=False)
    assert told.value.failure == Failure("ParentResultLost", f"add: argument 'a': {problem}")


def test_what_an_outcome_is() -> None:
    def outcome(**changes: Any) -> str:
        return value_of("add", "a", given(**changes), as_outcome=True).decode()

    assert outcome(result="7") == '{"id":"p","task":"fetch","state":"succeeded","error":null,"value":7}'
    assert '"type":"ResultNotKept","message":"too large"' in outcome(result_error="too large")
    assert '"state":"cancelled"' in outcome(state=JobState.CANCELLED)
    with pytest.raises(ParentResultUnusable):
        outcome(state=None)
