"""`@app.around`: what surrounds each run of a handler, where it runs, and what its exceptions mean."""

import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from drumbeat import Call, Drumbeat, SkipRetry, current_job
from drumbeat.errors import ConfigError, NotInJob
from drumbeat.settings import Settings
from drumbeat.testing import Kit
from drumbeat.worker.around_call import surround
from drumbeat.worker.child_pool import ChildPool
from drumbeat.worker.task_spec import build_task_specs
from tests.worker.test_child_pool import claimed, run, value

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


async def test_they_nest_in_order_in_the_task_or_thread_of_the_handler() -> None:
    app, story = Drumbeat(name="nested"), list[str]()

    def tell(text: str) -> None:
        story.append(f"{text}, {tenant.get()}" + ("" if threading.current_thread() is main else ", thread"))

    @app.around
    def outer() -> Iterator[None]:
        tenant.set("acme")
        tell("outer")
        yield
        tell("outer ends")

    @app.around(handlers="async")
    @contextlib.asynccontextmanager
    async def inner() -> AsyncIterator[None]:
        token = tenant.set(f"{tenant.get()} {current_job().task}")
        tell("inner")
        yield
        tell("inner ends")
        tenant.reset(token)

    @app.task
    async def work() -> None:
        tell("work")

    @app.task
    def compute() -> None:
        tell("compute")

    async with Kit(app) as kit:
        main = threading.current_thread()
        await work.enqueue()
        await kit.run_until_idle()
        around_async, story[:] = story[:], []
        await compute.enqueue()
        await kit.run_until_idle()
        around_def, story[:] = story[:], []
        await kit.perform(work.bind())
        assert story == around_async
        story.clear()
        await kit.perform(compute.bind())
        assert story == around_def
    assert around_async == [
        "outer, acme",
        "inner, acme work",
        "work, acme work",
        "inner ends, acme work",
        "outer ends, acme",
    ]
    assert around_def == ["outer, acme, thread", "compute, acme, thread", "outer ends, acme, thread"]
    assert tenant.get() == "nobody"


async def test_what_they_raise_is_the_failure_and_what_they_swallow_is_not_forgotten() -> None:
    app, seen = Drumbeat(name="failing"), list[str]()
    trouble = ""

    @app.around
    def scope() -> Iterator[None]:
        if trouble == "before":
            raise ConnectionError("no connection")
        try:
            yield
        except ValueError as error:
            seen.append(str(error))
            if trouble == "replace":
                raise SkipRetry("no use") from error
            if trouble == "raise":
                raise
        if trouble == "after":
            raise ConnectionError("not committed")

    @app.task(retries=0)
    async def work(fails: bool) -> str:
        if fails:
            raise ValueError("of the handler")
        return "done"

    @app.task(retries=0)
    def compute(fails: bool) -> str:
        if fails:
            raise ValueError("of the handler")
        return "done"

    async with Kit(app) as kit:
        for task in (work, compute):
            for trouble, fails, error in (
                ("before", False, "no connection"),
                ("after", False, "not committed"),
                ("raise", True, "of the handler"),
                ("swallow", True, "of the handler"),
                ("replace", True, "no use"),
            ):
                handle = await task.enqueue(fails)
                await kit.run_until_idle()
                job = await app.jobs.show(handle.id)
                assert job.error is not None, trouble
                assert (job.state, job.error.message) == ("dead", error), trouble
                assert ("around_call.py" in job.error.traceback) is True
            trouble = "swallow"
            with pytest.raises(ValueError, match="of the handler"):
                await kit.perform(task.bind(True))
            assert await kit.perform(task.bind(False)) == "done"
    assert seen == ["of the handler"] * 8


async def test_a_batch_is_surrounded_once_and_has_no_current_job() -> None:
    app, opened = Drumbeat(name="batched"), list[int]()

    @app.around
    def scope() -> Iterator[None]:
        with pytest.raises(NotInJob):
            current_job()
        opened.append(1)
        yield

    @app.task(batch=10)
    async def publish(calls: list[Call[int]]) -> None:
        opened.append(len(calls))

    async with Kit(app) as kit:
        await app.enqueue_many([publish.bind(number) for number in range(3)])
        await kit.run_until_idle()
    assert opened == [1, 3]


async def test_in_a_child_process_they_run_where_the_handler_runs() -> None:
    pool = ChildPool("tests.apps.surrounded:app", Settings(url="sqlite:////nowhere/jobs.db"), limit=1)
    try:
        found = [value(await run(pool, claimed(task))) for task in ("in_process", "on_loop", "in_thread")]
    finally:
        await pool.close()
    assert found == [
        ["in_process in MainThread", "MainThread"],
        ["session of on_loop in MainThread", "MainThread", "in_process"],
        ["in_thread in drumbeat-handler-1", "drumbeat-handler-1", "in_process", "on_loop"],
    ]


@contextlib.contextmanager
def never_yields() -> Iterator[None]:
    if tenant.get() == "":
        yield


def yields_twice() -> Iterator[None]:
    try:
        yield
    finally:
        yield


async def never_yields_async() -> AsyncIterator[None]:
    if tenant.get() == "":
        yield


@contextlib.asynccontextmanager
async def yields_twice_async() -> AsyncIterator[None]:
    try:
        yield
    finally:
        yield


ONCE = "a function that surrounds jobs yields exactly once in each run"


@pytest.mark.parametrize("fails", [False, True], ids=["handler succeeds", "handler fails"])
@pytest.mark.parametrize(
    ("function", "fault", "runs"),
    [
        (never_yields, "never_yields ended without a `yield`", 0),
        (never_yields_async, "never_yields_async ended without a `yield`", 0),
        (yields_twice, "yields_twice yielded a second time", 1),
        (yields_twice_async, "yields_twice_async yielded a second time", 1),
    ],
)
async def test_one_that_does_not_yield_once_fails_the_attempt_with_one_clear_message(
    function: Any, fault: str, runs: int, fails: bool
) -> None:
    app, ran = Drumbeat(name="yields"), list[int]()
    app.around(function)

    @app.task(retries=0)
    async def work() -> None:
        ran.append(1)
        if fails:
            raise ValueError("of the handler")

    async with Kit(app) as kit:
        job = await work.enqueue()
        await kit.run_until_idle()
        error = (await app.jobs.show(job.id)).error
    assert len(ran) == runs
    assert error is not None and error.type == "drumbeat.errors.ConfigError"
    assert error.message.endswith(f": {fault}: {ONCE}") and "test_around.py:" in error.message


async def test_a_context_manager_of_the_program_that_does_not_yield_is_its_own_matter() -> None:
    app = Drumbeat(name="its own")

    @app.around
    def scope() -> Iterator[None]:
        with never_yields():
            yield

    @app.task(retries=0)
    def work() -> None: ...

    async with Kit(app) as kit:
        job = await work.enqueue()
        await kit.run_until_idle()
        error = (await app.jobs.show(job.id)).error
    assert error is not None and error.message == "generator didn't yield"


def test_an_async_one_is_refused_where_it_would_surround_a_def_handler() -> None:
    app = Drumbeat()

    @app.task
    def compute() -> None: ...

    async def session() -> AsyncIterator[None]:
        yield

    with pytest.raises(ConfigError, match=r"task 'compute' is a `def`, and .*session .* is async.*handlers=\"async\""):
        app.around(session)
    app.around(handlers="async")(session)

    later = Drumbeat()
    later.around(session)
    with pytest.raises(ConfigError, match="task 'compute' is a `def`"):
        later.task(compute.function)


@pytest.mark.parametrize(
    ("wrong", "options", "message"),
    [
        (lambda: None, {}, "a function with one `yield`"),
        (3, {}, "a function with one `yield`.*not 3"),
        ("with argument", {}, "takes no arguments: ask drumbeat.current_job"),
        ("async", {"handlers": "def"}, "has no event loop"),
        ("async", {"handlers": "sync"}, "not 'sync'"),
    ],
)
def test_what_cannot_surround_a_job_is_refused(wrong: object, options: dict[str, str], message: str) -> None:
    def with_argument(job: object) -> Iterator[None]:
        yield

    async def asynchronous() -> AsyncIterator[None]:
        yield

    app: Any = Drumbeat()
    function = {"with argument": with_argument, "async": asynchronous}.get(wrong, wrong)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match=message):
        app.around(**options)(function) if options else app.around(function)


def test_without_any_the_handler_itself_is_called() -> None:
    app = Drumbeat()

    @app.task
    async def work() -> None: ...

    assert build_task_specs(app._internals.registry, app._internals.settings)["work"].function is work.function

    def scope() -> Iterator[None]:
        yield

    for _ in range(2):
        app.around(scope)
    assert len(app._internals.registry.arounds) == 1
    assert surround(work, app._internals.registry.arounds) is not work.function
