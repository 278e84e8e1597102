"""`after=` and results of other jobs as arguments, as programs use them; with a real worker beside the test."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from drumbeat import Drumbeat, JobOutcome, JobState, Results, chain, chord, group
from drumbeat.core.edge import Binding, IfParentFails
from drumbeat.core.job import NewJob
from drumbeat.errors import InvalidArguments, JobCancelled, JobNotFound, ParentResultMismatch
from drumbeat.handle import JobHandle, SyncJobHandle
from drumbeat.ids import new_job_id
from tests.conftest import fresh_url
from tests.waiting import until
from tests.worker.worker_harness import run_worker


@pytest.fixture(params=["sqlite", "postgres", "valkey"])
def app_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_url(request.param, tmp_path)


@pytest.fixture
def quiet() -> Drumbeat:
    """It opens no store: for what is refused before."""
    return Drumbeat("sqlite:////nowhere/jobs.db")


async def state_of(app: Drumbeat, id: str) -> JobState:
    return (await app.jobs.show(id)).state


async def test_a_job_waits_for_jobs_of_the_same_call_and_for_those_that_exist(app: Drumbeat) -> None:
    done: list[str] = []

    @app.task
    async def note(name: str) -> str:
        done.append(name)
        return name

    before = await note.enqueue("first")
    second = note.bind("second")
    third = note.using(after=[before, second]).bind("third")
    # The child is before its parent in the list.
    handles = await app.enqueue_many([third, second])
    assert [handle.id for handle in handles] == [third.id, second.id]
    record = await app.jobs.show(third.id)
    assert (record.state, record.blocked_on, record.open_parents) == (JobState.PENDING, "parents", 2)
    async with run_worker(app):
        assert await handles[0].result(timeout=10) == "third"
    assert done[-1] == "third" and sorted(done) == ["first", "second", "third"]


async def test_parents_may_be_ids_and_sync_handles_and_may_have_ended(app: Drumbeat) -> None:
    @app.task
    async def step() -> str:
        return "done"

    async with run_worker(app):
        first = await step.enqueue()
        await first.result(timeout=10)
        second = await asyncio.to_thread(step.using(after=[first.id]).enqueue_sync)
        third = await step.using(after=[first, second]).enqueue()
        assert await third.result(timeout=10) == "done"


async def test_the_child_of_a_job_that_dies_is_cancelled_runs_or_waits(app: Drumbeat) -> None:
    @app.task(retries=0)
    async def fail() -> None:
        raise ValueError("no")

    @app.task
    async def go_on() -> str:
        return "went on"

    async with run_worker(app):
        parent = await fail.enqueue()
        cancelled = await go_on.using(after=[parent]).enqueue()
        runs = await go_on.using(after=[parent], if_parent_fails="run").enqueue()
        waits = await go_on.using(after=[parent], if_parent_fails="wait").enqueue()
        with pytest.raises(JobCancelled, match=rf"its parent {parent.id} \(task .*fail\) died"):
            await cancelled.result(timeout=10)
        assert await runs.result(timeout=10) == "went on"
    assert await state_of(app, waits.id) is JobState.PENDING


async def test_a_cancelled_child_runs_after_the_replay_of_its_parent(app: Drumbeat) -> None:
    is_mended = False

    @app.task(retries=0)
    async def fail() -> str:
        if not is_mended:
            raise ValueError("no")
        return "x"

    @app.task
    async def go_on(text: str) -> str:
        return text + "y"

    part = chain(fail.bind(), go_on)
    async with run_worker(app):
        parent, child = await app.enqueue_many(part.jobs)
        with pytest.raises(JobCancelled):
            await child.result(timeout=10)
        is_mended = True
        await app.dead.replay(parent.id)

        async def is_done() -> bool:
            return await state_of(app, child.id) is JobState.SUCCEEDED

        await until(is_done, what="the end of the child")
        assert await child.result(timeout=10) == "xy"


async def test_an_unknown_parent_is_refused_and_nothing_is_stored(app: Drumbeat) -> None:
    @app.task
    async def step() -> None: ...

    unknown = new_job_id()
    with pytest.raises(
        JobNotFound, match=f"no job {unknown}, for which a call of {step.name} is to wait: a parent is stored"
    ):
        await app.enqueue_many([step.bind(), step.using(after=[unknown]).bind()])
    assert await app.jobs.list() == []


def test_what_after_cannot_be(quiet: Drumbeat) -> None:
    @quiet.task
    async def step(text: str = "") -> str:
        return text

    call = step.bind()
    cases: list[tuple[dict[str, Any], str]] = [
        ({"after": call.id}, "after must be a list of jobs"),
        ({"after": [call, call.id]}, f"after names job {call.id} twice"),
        ({"after": [step]}, "handles of jobs, their ids, and calls"),
        ({"after": [step.enqueue()]}, "await it first"),
        ({"after": ["job"]}, "handles of jobs, their ids, and calls"),
        ({"after": [call], "if_parent_fails": "retry"}, "must be 'cancel', 'run' or 'wait', not 'retry'"),
        ({"after": [call], "conn": object()}, "cannot be stored in your own transaction"),
    ]
    for options, problem in cases:
        with pytest.raises(InvalidArguments, match=problem):
            step.using(**options)
    with pytest.raises(InvalidArguments, match="if_parent_fails needs parents"):
        step.using(if_parent_fails="run").bind()
    assert step.using(after=[]).bind().after == ()


async def test_a_job_with_parents_is_refused_in_a_transaction(quiet: Drumbeat) -> None:
    @quiet.task
    async def step() -> None: ...

    first = step.bind()
    with pytest.raises(InvalidArguments, match="cannot be stored in your own transaction"):
        await quiet.enqueue_many([first, step.using(after=[first]).bind()], conn=object())


async def test_jobs_that_wait_for_each_other_are_refused(quiet: Drumbeat) -> None:
    @quiet.task
    async def step() -> None: ...

    flow = quiet.workflow("circle")
    first = step.bind()
    second = step.using(after=[first]).bind()
    third = step.using(after=[second]).bind()
    for call in (second, third):
        flow.add(call)
    flow.add(first, after=[third])
    with pytest.raises(InvalidArguments, match=rf"wait for each other: .*\({first.id}\) after .*\({third.id}\)"):
        await flow.enqueue()
    alone = quiet.workflow("alone")
    alone.add(first, after=[first])
    with pytest.raises(InvalidArguments, match=r"step \(.*\) waits for itself"):
        await alone.enqueue()


async def check(app: Drumbeat, *jobs: NewJob[Any]) -> None:
    """What `enqueue_many` refuses without its store."""
    app._internals.client.check_graph(jobs)


async def test_a_result_of_another_type_is_refused_at_enqueue(quiet: Drumbeat) -> None:
    @quiet.task
    async def fetch() -> str:
        return ""

    @quiet.task
    async def add(number: int, more: int | None = None) -> float:
        return number

    @quiet.task
    async def total(parts: Results[int]) -> None: ...

    @quiet.task
    async def total_list(parts: list[int]) -> None: ...

    @quiet.task
    async def anything(value: Any) -> None: ...

    wrong: Any = add
    takes_results: Any = total
    finalisers: list[Any] = [total, total_list]
    with pytest.raises(ParentResultMismatch, match=r"add: argument 'number' must be int, but .*fetch returns str"):
        await check(quiet, *chain(fetch.bind(), wrong).jobs)
    for finaliser in finalisers:
        with pytest.raises(ParentResultMismatch, match=r"argument 'parts' must be int, but .*fetch returns str"):
            await check(quiet, *chord(group([fetch.bind()]), finaliser).jobs)
    with pytest.raises(ParentResultMismatch, match=r"annotated Results\[...\], and gets the result of one job"):
        await check(quiet, *chain(add.bind(1), takes_results).jobs)
    with pytest.raises(ParentResultMismatch, match=r"annotate it Results\[...\] or list\[...\], not int"):
        await check(quiet, *chord(group([add.bind(1)]), wrong).jobs)
    await check(quiet, *chain(fetch.bind(), anything).jobs)
    await check(quiet, *chord([fetch.bind()], anything).jobs)


async def test_an_outcome_is_for_jobs_that_run_if_a_parent_fails_and_a_result_for_the_others(quiet: Drumbeat) -> None:
    @quiet.task
    async def fetch() -> str:
        return ""

    @quiet.task
    async def judge(outcome: JobOutcome[str]) -> None: ...

    @quiet.task
    async def read(text: str) -> None: ...

    @quiet.task
    async def read_all(texts: Results[str]) -> None: ...

    @quiet.task
    async def judge_all(outcomes: Results[JobOutcome[str]]) -> None: ...

    async def refused(name: str, add: Any) -> str:
        flow = quiet.workflow(name)
        node = flow.add(fetch.bind())
        add(flow, node)
        with pytest.raises(InvalidArguments) as told:
            await flow.enqueue()
        return str(told.value)

    assert 'only a job with if_parent_fails="run" gets' in await refused(
        "outcome", lambda flow, node: flow.add(judge.bind(node.outcome))
    )
    assert "bind the outcome" in await refused(
        "result", lambda flow, node: flow.add(read.bind(node.result), if_parent_fails="run")
    )
    assert "annotate it JobOutcome[...], not str" in await refused(
        "not annotated", lambda flow, node: flow.add(read.bind(node.outcome), if_parent_fails="run")
    )
    assert "Results[JobOutcome[...]]" in await refused(
        "results", lambda flow, node: flow.add(chord([fetch.bind()], read_all.using(if_parent_fails="run")))
    )
    flow = quiet.workflow("right")
    node = flow.add(fetch.bind())
    flow.add(judge.bind(node.outcome), if_parent_fails="run")
    flow.add(chord([fetch.bind()], judge_all.using(if_parent_fails="run")))
    flow._check_jobs()


def test_a_result_is_a_whole_argument(quiet: Drumbeat) -> None:
    @quiet.task
    async def fetch() -> str:
        return ""

    @quiet.task
    async def read(texts: list[str], by_name: dict[str, str] | None = None, *, other: Any = None) -> None: ...

    node: Any = quiet.workflow("nested").add(fetch.bind())
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        (([node.result],), {}),
        (([], {"a": node.result}), {}),
        (([],), {"other": [{"a": node.result}]}),
        (([node.result],), {"other": node.result}),
    ]
    for args, kwargs in calls:
        with pytest.raises(InvalidArguments, match="give it as a whole argument"):
            read.bind(*args, **kwargs)
    with pytest.raises(InvalidArguments, match="in two ways"):
        read.bind(node.result, other=node.outcome)
    with pytest.raises(InvalidArguments, match="argument 'texts' is missing"):
        read.bind(other=node.result)  # type: ignore[call-arg]
    with pytest.raises(InvalidArguments, match="after takes jobs, not their results"):
        read.using(after=[node.result])


def test_a_result_that_is_not_known_yet_is_used_for_nothing_else(quiet: Drumbeat) -> None:
    @quiet.task
    async def fetch() -> str:
        return ""

    result: Any = quiet.workflow("early").add(fetch.bind()).result
    for use in (str, "{}".format, bool, len, list, lambda text: text[0], lambda text: text + "!", lambda text: text()):
        with pytest.raises(InvalidArguments, match="not known yet: give it as a whole argument"):
            use(result)
    with pytest.raises(AttributeError, match="not known yet: give it as a whole argument"):
        _ = result.title
    assert repr(result).startswith("<result of ")


def test_a_job_is_no_argument(quiet: Drumbeat) -> None:
    @quiet.task
    async def fetch() -> str:
        return ""

    @quiet.task
    async def read(text: str, any: Any = None) -> None: ...

    handle: Any = JobHandle(quiet._internals.client, fetch.bind().id, True)
    for job in (quiet.workflow("nodes").add(fetch.bind()), fetch.bind(), handle, handle.result, SyncJobHandle(handle)):
        with pytest.raises(InvalidArguments, match="a job is no argument: give its result"):
            read.bind(job)  # type: ignore[arg-type]


def test_what_is_stored_of_an_argument_that_is_a_result(quiet: Drumbeat) -> None:
    @quiet.task
    async def fetch(number: int) -> str:
        return str(number)

    @quiet.task
    async def render(page: str, size: int, *, title: str = "") -> str:
        return page

    @quiet.task
    async def merge(pages: Results[str], sep: str) -> str:
        return sep

    flow = quiet.workflow("stored")
    one, two = flow.add(fetch.bind(1)), flow.add(fetch.bind(2))
    call = render.using(after=[two, one], if_parent_fails="wait").bind(one.result, 3, title=one.result)
    assert call.args == '{"size":3}'
    assert [(edge.parent, edge.if_fails, edge.binding, edge.argument) for edge in call.after] == [
        (one.id, IfParentFails.WAIT, Binding.RESULT, "page title"),
        (two.id, IfParentFails.WAIT, Binding.NONE, ""),
    ]
    pages = group([fetch.bind(number) for number in range(3)])
    call = merge.bind(pages.results, "-")
    assert call.args == '{"sep":"-","pages":3}'
    assert [edge.parent for edge in call.after] == [job.id for job in pages.jobs]


async def test_lists_of_results_have_a_limit(quiet: Drumbeat) -> None:
    @quiet.task
    async def double(number: int) -> int:
        return 2 * number

    @quiet.task
    async def total_list(parts: list[int]) -> None: ...

    @quiet.task
    async def total(parts: Results[int]) -> None: ...

    await check(quiet, *double.map(range(1_000), then=total_list).jobs)
    with pytest.raises(
        InvalidArguments, match=r"a list of 1,001 results, over the limit of 1,000: annotate it Results"
    ):
        await check(quiet, *double.map(range(1_001), then=total_list).jobs)
    await check(quiet, *double.map(range(1_001), then=total).jobs)
