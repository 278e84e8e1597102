"""Start-up calls: before the first claim, once for all where that is asked for, with the retries and time-out of their task."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from drumbeat.app import Drumbeat
from drumbeat.clock import SYSTEM
from drumbeat.context import AbortReason, abort_signal
from drumbeat.controller import startup
from drumbeat.controller.startup import StartupRunner
from drumbeat.core.schedule import OnceState
from drumbeat.errors import NotInJob, StartFailed
from drumbeat.ids import InstanceId
from drumbeat.retry import Backoff, RetryLater, SkipRetry, Snooze
from drumbeat.settings import Settings
from drumbeat.store.protocol import Store
from drumbeat.tasks import Task
from drumbeat.tasks.schedule_decorators import DeclaredStartupCall
from tests.conftest import fresh_store
from tests.contract.making import worker
from tests.controller.factories import ME, make_backoff
from tests.faults import FaultyStore
from tests.waiting import until, within

AT_ONCE = Backoff(base=0.001, cap=0.001)


def start_call(task: Task[..., Any], **options: Any) -> DeclaredStartupCall:
    return DeclaredStartupCall(name=task.name, task=task, **({"role": "worker"} | options))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with fresh_store("sqlite", tmp_path) as store:
        yield store


@pytest.fixture
def app() -> Drumbeat:
    return Drumbeat()


def start_up(*calls: DeclaredStartupCall, me: InstanceId = ME, **settings: Any) -> StartupRunner:
    return StartupRunner(
        calls,
        Settings(**settings),
        SYSTEM,
        make_backoff(SYSTEM),
        in_thread=asyncio.to_thread,
        acquire_lock=lambda name: asyncio.timeout(None),
        identity=lambda: me,
    )


async def test_all_are_called_in_order_with_their_arguments_also_in_threads(app: Drumbeat, store: Store) -> None:
    called: list[Any] = []

    @app.task
    async def first(number: int) -> None:
        called.append(number)

    @app.task
    def second(*, word: str) -> None:
        called.append((word, threading.current_thread() is threading.main_thread()))

    await start_up(start_call(first, args=(7,)), start_call(second, kwargs={"word": "hey"})).run(store.schedules)
    assert called == [7, ("hey", False)]


@pytest.mark.parametrize(
    ("wanted", "role", "called"),
    [("worker", "worker", 1), ("worker", "both", 1), ("worker", "controller", 0), ("controller", "worker", 0)],
)
async def test_each_is_for_its_role(app: Drumbeat, store: Store, wanted: str, role: str, called: int) -> None:
    calls: list[int] = []

    @app.task
    async def warm() -> None:
        calls.append(1)

    await start_up(start_call(warm, role=wanted), role=role).run(store.schedules)
    assert len(calls) == called


async def test_a_failing_one_is_tried_again_as_its_task_says(app: Drumbeat, store: Store) -> None:
    calls: list[int] = []

    @app.task(retries=2, backoff=AT_ONCE)
    async def flaky() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise Snooze(0.001)
        if len(calls) == 2:
            raise RetryLater(0.001)
        if len(calls) == 3:
            raise ValueError("not yet")

    await start_up(start_call(flaky)).run(store.schedules)
    assert len(calls) == 4


@pytest.mark.parametrize(
    ("error", "tries"), [(ValueError("no such table"), 3), (SkipRetry("hopeless"), 1), (KeyError(5), 1)]
)
async def test_one_that_fails_for_good_says_so(app: Drumbeat, store: Store, error: Exception, tries: int) -> None:
    calls: list[int] = []

    @app.task(retries=2, backoff=AT_ONCE, no_retry_on=LookupError)
    async def warm() -> None:
        calls.append(1)
        raise error

    with pytest.raises(StartFailed, match=f"start-up task 'warm' failed: {type(error).__name__}: {error}"):
        await start_up(start_call(warm)).run(store.schedules)
    assert len(calls) == tries


async def test_one_that_takes_too_long_is_timed_out(app: Drumbeat, store: Store) -> None:
    @app.task(retries=0, timeout=0.05)
    async def endless() -> None:
        await asyncio.Event().wait()

    with pytest.raises(StartFailed, match="timed out after 50ms"):
        await start_up(start_call(endless)).run(store.schedules)


async def test_the_lock_is_held_while_it_runs(app: Drumbeat, store: Store) -> None:
    told: list[str] = []

    @app.task
    async def warm() -> None:
        told.append("warm")

    @asynccontextmanager
    async def locked(name: str) -> AsyncIterator[None]:
        told.append(f"enter {name}")
        yield
        told.append(f"leave {name}")

    call = start_up(start_call(warm, lock="schema"))
    call.acquire_lock = locked
    await call.run(store.schedules)
    assert told == ["enter schema", "warm", "leave schema"]


async def test_once_is_one_call_for_all_instances_and_the_others_wait_for_its_end(app: Drumbeat, store: Store) -> None:
    gate, calls = asyncio.Event(), list[int]()

    @app.task
    async def seed() -> None:
        calls.append(1)
        await gate.wait()

    instances = [await worker(store) for _ in range(3)]
    async with asyncio.TaskGroup() as group:
        waiting = [
            group.create_task(start_up(start_call(seed, once=True), me=me).run(store.schedules)) for me in instances
        ]
        await until(lambda: calls, what="the first call")
        done, _ = await asyncio.wait(waiting, timeout=0.6)  # longer than the pause between two looks
        assert not done
        gate.set()
    assert calls == [1]
    await start_up(start_call(seed, once=True), me=await worker(store)).run(store.schedules)
    assert calls == [1]


async def test_once_is_for_each_version_of_the_app(app: Drumbeat, store: Store) -> None:
    calls: list[int] = []

    @app.task
    async def seed() -> None:
        calls.append(1)

    for version in ("1", "2", "2"):
        declared = start_call(seed, once=True)
        await start_up(declared, me=await worker(store), version=version).run(store.schedules)
    assert len(calls) == 2


@pytest.mark.parametrize("end", ["leaves", "dies"])
async def test_when_its_runner_is_gone_another_takes_it_up(app: Drumbeat, store: Store, end: str) -> None:
    gate, calls = asyncio.Event(), list[int]()

    @app.task
    async def seed() -> None:
        calls.append(1)
        if len(calls) == 1:
            await gate.wait()

    first, second = await worker(store), await worker(store)
    async with asyncio.TaskGroup() as group:
        stuck = group.create_task(start_up(start_call(seed, once=True), me=first).run(store.schedules))
        await until(lambda: calls, what="the first call")
        other = group.create_task(start_up(start_call(seed, once=True), me=second).run(store.schedules))
        if end == "leaves":
            await store.instances.deregister(first, "left")
        else:
            await store.instances.declare_dead(first, beat=None, started=None, reason="gone")
        await other
        gate.set()
        # The first was taken for dead, and finds it done by another.
        await stuck
    assert len(calls) == 2


async def test_a_store_that_is_away_is_waited_for(app: Drumbeat, store: Store) -> None:
    calls: list[int] = []

    @app.task
    async def seed() -> None:
        calls.append(1)

    faulty = FaultyStore(store)
    faulty.fail_before["schedules.claim_once"] = 2
    faulty.fail_after["schedules.complete_once"] = 1
    await start_up(start_call(seed, once=True), me=await worker(store)).run(faulty.schedules)
    assert calls == [1]


async def test_an_async_call_is_signalled_on_stop_and_cancelled_soon_after(
    app: Drumbeat, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(startup, "CANCEL_DELAY", 0.05)
    told: list[Any] = []

    @app.task(retries=5)
    async def deaf() -> None:
        try:
            told.append(await abort_signal())
            await asyncio.Event().wait()
        finally:
            told.append("ended")

    @app.task
    async def never() -> None:
        told.append("never")

    calls = start_up(start_call(deaf), start_call(never))
    async with asyncio.TaskGroup() as group:
        running = group.create_task(calls.run(store.schedules))
        await until(lambda: calls._signal is not None, what="the call")
        calls.stop()
    assert not running.cancelled()
    assert told == [AbortReason.DRAINING, "ended"]


async def test_a_call_in_a_thread_is_signalled_on_stop_and_waited_for(app: Drumbeat, store: Store) -> None:
    told: list[Any] = []

    @app.task
    def warm() -> None:
        told.append("begun")
        told.append(abort_signal().wait(20))
        abort_signal().check()

    first, second = await worker(store), await worker(store)
    calls = start_up(start_call(warm, once=True), me=first)
    async with asyncio.TaskGroup() as group:
        group.create_task(calls.run(store.schedules))
        await until(lambda: told, what="the call")
        calls.stop()
    assert told == ["begun", True]
    # It has not ended by itself, so it is not done.
    await store.instances.deregister(first, "left")
    key = f"{Settings().name}:{Settings().version}:warm"
    assert await store.schedules.claim_once(key, second) is OnceState.YOURS


async def test_a_call_that_returns_although_it_should_stop_is_done(app: Drumbeat, store: Store) -> None:
    begun = threading.Event()

    @app.task
    def warm() -> None:
        begun.set()
        abort_signal().wait(20)

    calls = start_up(start_call(warm, once=True), me=await worker(store))
    async with asyncio.TaskGroup() as group:
        group.create_task(calls.run(store.schedules))
        await until(begun.is_set, what="the call")
        calls.stop()
    key = f"{Settings().name}:{Settings().version}:warm"
    assert await store.schedules.claim_once(key, await worker(store)) is OnceState.DONE


async def test_a_retry_is_not_waited_for_when_the_process_stops(app: Drumbeat, store: Store) -> None:
    failed = asyncio.Event()

    @app.task(retries=5, backoff=Backoff(base=60, cap=60))
    async def flaky() -> None:
        failed.set()
        raise ValueError("not yet")

    calls = start_up(start_call(flaky))
    with within(2.0):
        async with asyncio.TaskGroup() as group:
            running = group.create_task(calls.run(store.schedules))
            await failed.wait()
            await until(lambda: calls._signal is None, what="the pause")
            calls.stop()
    assert not running.cancelled()


def test_there_is_no_signal_outside() -> None:
    with pytest.raises(NotInJob, match=r"abort_signal\(\) works only inside"):
        abort_signal()
