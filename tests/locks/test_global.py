"""`app.lock`: turns over several programs, lost locks, lost answers, threads."""

import asyncio
import gc
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from drumbeat import Drumbeat, current_job
from drumbeat.core.lock import LockInfo
from drumbeat.errors import (
    InvalidArguments,
    LockError,
    LockLost,
    LockReentered,
    LockTimeout,
    StoreUnavailable,
    WrongContext,
)
from drumbeat.locks.ticket import TicketStage
from tests.locks.conftest import QUICK_LEASES, FaultyApp
from tests.waiting import Stalls, until, within
from tests.worker.worker_harness import run_worker


def beside(work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
    """In another task."""
    return asyncio.get_running_loop().create_task(work)


async def line(app: Drumbeat, name: str = "x") -> LockInfo | None:
    return await (await app._internals.client.store()).locks.get(name)


async def waits(app: Drumbeat, count: int, name: str = "x") -> LockInfo:
    """Until so many stand in line."""

    async def so_many() -> LockInfo | None:
        found = await line(app, name)
        return found if found is not None and found.waiting == count else None

    return await until(so_many, what=f"a line of {count}")  # type: ignore[no-any-return]


async def nobody_is_there(app: Drumbeat, name: str = "x") -> None:
    async def is_empty() -> bool:
        found = await line(app, name)
        return found is None or found.holding + found.waiting == 0

    await until(is_empty, what="an empty line", deadline=5)


class Holder:
    """A task that holds a lock until it is let go."""

    def __init__(self, app: Drumbeat, name: str = "x", **options: Any) -> None:
        self.let_go = asyncio.Event()
        self.entered = asyncio.Event()
        self.lock: Any = None
        self.task = beside(self._hold(app.lock(name, **options)))

    async def _hold(self, wanted: Any) -> int:
        async with wanted as self.lock:
            self.entered.set()
            await self.let_go.wait()
            return self.lock.token  # type: ignore[no-any-return]

    async def holds(self) -> None:
        async with asyncio.timeout(10):
            await self.entered.wait()

    async def end(self) -> Any:
        self.let_go.set()
        return await self.task


async def test_programs_exclude_each_other_in_the_order_of_coming(app: Drumbeat, other: Drumbeat) -> None:
    log: list[int] = []

    async def enter(program: Drumbeat, number: int) -> int:
        async with program.lock("x") as lock:
            log.append(number)
            return lock.token

    first = Holder(app)
    await first.holds()
    tasks = []
    for number in range(6):
        tasks.append(beside(enter((app, other)[number % 2], number)))
        await waits(app, number + 1)
    tokens = [await first.end(), *[await task for task in tasks]]
    assert log == list(range(6))
    assert tokens == sorted(set(tokens))


async def test_a_handoff_takes_milliseconds_because_the_next_is_called(app: Drumbeat, other: Drumbeat) -> None:
    for program in (app, other):
        first = Holder(app)
        await first.holds()
        second = Holder(program)
        await waits(app, 1)
        first.let_go.set()
        async with asyncio.timeout(2):  # without a call it would be the renewal, after 5 s
            await second.entered.wait()
        await first.end()
        await second.end()


async def test_at_most_limit_hold_it_over_all_programs(app: Drumbeat, other: Drumbeat) -> None:
    inside = most = 0
    two = asyncio.Event()

    async def enter(program: Drumbeat) -> None:
        nonlocal inside, most
        async with program.lock("x", limit=2):
            inside += 1
            most = max(most, inside)
            if inside == 2:
                two.set()
            # The first stays until it has company: the second may be told later than the first needs.
            await two.wait()
            await program.instances.list()
            inside -= 1

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        for number in range(12):
            group.create_task(enter((app, other)[number % 2]))
    assert most == 2


async def test_a_rate_window_is_kept_and_used_over_all_programs(app: Drumbeat, other: Drumbeat) -> None:
    moments: list[int] = []

    async def call(program: Drumbeat) -> None:
        async with program.lock("x", limit=5, per=0.3) as lock:
            moments.append(lock.granted_at)

    with Stalls() as stalls:
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(call((app, other)[number % 2]))
    moments.sort()
    assert [pair for pair in zip(moments, moments[5:], strict=False) if pair[1] - pair[0] < 299_500] == []
    # 0.9 s would be perfect; whatever holds one window up holds up the three behind it.
    assert moments[-1] - moments[0] < 2_000_000 + 4e6 * stalls.seconds


async def test_cancellation_leaves_the_line_at_once(app: Drumbeat) -> None:
    first = Holder(app)
    await first.holds()
    second = Holder(app)
    await waits(app, 1)
    third = Holder(app)
    await waits(app, 2)
    second.task.cancel()
    found = await waits(app, 1)
    assert (await line(app)) is not None and len(found.waiters) == 1
    await first.end()
    await third.holds()
    await third.end()
    await nobody_is_there(app)


async def test_a_timeout_is_told_and_leaves_the_line(app: Drumbeat) -> None:
    first = Holder(app)
    await first.holds()
    with pytest.raises(LockTimeout, match=r"lock 'x' was not free within 0\.05 s"):
        await Holder(app, timeout=0.05).task
    with pytest.raises(LockTimeout):
        await Holder(app, timeout=0).task
    await waits(app, 0)
    await first.end()
    await nobody_is_there(app)


async def test_reentrance_is_refused_and_harms_nothing(app: Drumbeat) -> None:
    async with app.lock("x", limit=2) as lock:
        with pytest.raises(LockReentered):
            await app.lock("x", limit=2).__aenter__()
        lock.check()
    async with app.lock("x"):
        pass


async def test_what_a_lock_gives_can_be_kept_and_entered_by_many(app: Drumbeat) -> None:
    shared = app.lock("x", limit=3)

    async def enter() -> int:
        async with shared as lock:
            return lock.token

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(enter()) for _ in range(8)]
    assert len({task.result() for task in tasks}) == 8
    with pytest.raises(LockError, match="is not held by this task"):
        await shared.__aexit__(None, None, None)


@pytest.mark.parametrize("options", [{"limit": 0}, {"per": 0}, {"lease": 0.1}, {"timeout": -1}, {"speed": 9}])
async def test_impossible_options_are_refused_where_they_are_written(app: Drumbeat, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments, match=next(iter(options))):
        app.lock("x", **options)


async def test_a_body_that_fails_leaves_the_lock(app: Drumbeat) -> None:
    with pytest.raises(ZeroDivisionError):
        async with app.lock("x"):
            raise ZeroDivisionError
    await nobody_is_there(app)


# Lost locks.


async def test_a_lock_released_by_force_cancels_its_body_and_is_told(app: Drumbeat, other: Drumbeat) -> None:
    first = Holder(app)
    await first.holds()
    second = Holder(other)
    await waits(app, 1)
    assert await other.locks.release("x", reason="stuck", by="ada") == 1
    with pytest.raises(LockLost, match="lock 'x' was lost: released by ada: stuck"):
        await first.task
    await second.holds()
    assert first.task.cancelling() == 0
    await second.end()


async def test_whoever_leaves_a_lost_lock_does_not_wait_for_the_store(faulty: FaultyApp, other: Drumbeat) -> None:
    held = Holder(faulty)
    await held.holds()
    assert await other.locks.release("x", reason="stuck", by="ada") == 1
    with pytest.raises(LockLost):
        await held.task
    assert faulty.tasks_store is not None and faulty.tasks_store.calls["locks.release"] == 0


async def test_a_body_may_choose_to_go_on(app: Drumbeat) -> None:
    first = Holder(app, cancel_on_loss=False)
    await first.holds()
    assert not first.lock.lost.is_set()
    waiter = beside(_until_lost(first.lock))
    await app.locks.release("x", reason="stuck", by="ada")
    assert await waiter == "released by ada: stuck"
    with pytest.raises(LockLost):
        first.lock.check()
    assert await first.end() == first.lock.token


async def _until_lost(lock: Any) -> str:
    reason: str = await lock.lost
    return reason


async def test_a_body_that_ends_just_after_the_loss_is_told_as_well(app: Drumbeat) -> None:
    async def body() -> None:
        async with app.lock("x") as lock:
            lock._ticket.lost.set("for this test")

    task = beside(body())
    with pytest.raises(LockLost, match="for this test"):
        await task
    await nobody_is_there(app)


async def test_a_cancellation_from_outside_is_not_turned_into_a_loss(app: Drumbeat) -> None:
    first = Holder(app)
    await first.holds()
    first.lock._ticket.lost.set("for this test")
    first.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first.task


async def test_silence_of_the_store_is_enough_to_lose_a_lock(faulty: FaultyApp) -> None:
    held = Holder(faulty)
    await held.holds()
    faulty.keeper_store.is_down = True
    with pytest.raises(LockLost, match="its lease ended before a renewal was answered"):
        await asyncio.wait_for(held.task, 10)
    faulty.keeper_store.is_down = False
    await nobody_is_there(faulty)


async def test_an_outage_shorter_than_the_lease_loses_nothing(faulty: FaultyApp) -> None:
    held = Holder(faulty)
    await held.holds()
    faulty.keeper_store.is_down = True
    before = faulty.keeper_store.calls["locks.ticket_status"]
    await until(lambda: faulty.keeper_store.calls["locks.ticket_status"] > before)
    faulty.keeper_store.is_down = False
    after = faulty.keeper_store.calls["locks.ticket_status"]
    await until(lambda: faulty.keeper_store.calls["locks.ticket_status"] > after + 5)
    held.lock.check()
    await held.end()


async def test_a_blocked_loop_loses_no_lock(app_url: str) -> None:
    async with Drumbeat(app_url, **QUICK_LEASES) as app, app.lock("x") as lock:
        threading.Event().wait(2 * QUICK_LEASES["lock_lease"])
        lock.check()


async def test_all_tickets_of_a_process_are_renewed_in_one_call(faulty: FaultyApp) -> None:
    async with asyncio.TaskGroup() as group:
        holders = [Holder(faulty, name) for name in ("a", "b", "c") for _ in range(5)]
        for name in ("a", "b", "c"):
            await waits(faulty, 4, name)
        first = (await line(faulty, "a")).waiters[-1]  # type: ignore[union-attr]
        before = faulty.keeper_store.calls["locks.ticket_status"]

        async def renewed_twice() -> bool:
            return faulty.keeper_store.calls["locks.ticket_status"] >= before + 2

        await until(renewed_twice)
        found = await line(faulty, "a")
        assert found is not None and found.waiters[-1].lease_left > first.lease_left - QUICK_LEASES["lock_lease"] / 2
        group.create_task(_end_all(holders))
    # A call for each renewal, and one for each handoff, at most.
    assert faulty.keeper_store.calls["locks.ticket_status"] - before < 40


async def _end_all(holders: list[Holder]) -> None:
    for holder in holders:
        holder.let_go.set()
    for holder in holders:
        await holder.task


async def test_a_waiter_that_was_forgotten_stands_in_line_again(faulty: FaultyApp) -> None:
    first = Holder(faulty)
    await first.holds()
    second = Holder(faulty)
    found = await waits(faulty, 1)
    await faulty.locks.release("x", found.waiters[0].id, reason="for this test")
    await waits(faulty, 1)
    await first.end()
    await second.holds()
    await second.end()


async def test_a_waiter_that_leaves_while_it_is_put_in_line_again_leaves_nothing_behind(app_url: str) -> None:
    async with FaultyApp(app_url, lock_lease=60, lock_renew=0.2) as faulty:
        first = Holder(faulty)
        await first.holds()
        second = Holder(faulty)
        found = await waits(faulty, 1)
        keeper, gate = faulty.keeper_store, threading.Event()
        keeper.late_requests["locks.acquire"] = lambda: until(gate.is_set)
        await faulty.locks.release("x", found.waiters[0].id, reason="for this test")
        await until(lambda: keeper.calls["locks.acquire"], what="the request, which is on its way for long")
        second.task.cancel()
        await until(lambda: "locks.release" in keeper.done_at, what="its release, which overtakes it")
        gate.set()
        await until(lambda: "locks.acquire" in keeper.done_at, what="the ticket that nobody wants")
        await waits(faulty, 0)
        await first.end()


# Lost answers.


async def test_an_enter_whose_answer_is_lost_leaves_nobody_in_line(faulty: FaultyApp) -> None:
    (await faulty._internals.store()).fail_after["locks.acquire"] = 1  # type: ignore[attr-defined]
    with pytest.raises(StoreUnavailable):
        await faulty.lock("x").__aenter__()
    await nobody_is_there(faulty)
    async with faulty.lock("x"):
        pass


async def test_a_grant_whose_answer_comes_after_its_lease_is_waited_for_again(
    faulty: FaultyApp, other: Drumbeat
) -> None:
    answered = asyncio.Event()
    (await faulty._internals.store()).late_answers["locks.acquire"] = answered.wait  # type: ignore[attr-defined]
    late = Holder(faulty)
    await until(lambda: line(other), what="the late one's grant")
    rival = Holder(other)
    await rival.holds()  # the lease of the late one has ended
    answered.set()
    await waits(other, 1)
    assert not late.entered.is_set()
    await rival.end()
    await late.holds()
    assert late.lock.token > rival.lock.token
    late.lock.check()
    await late.end()


async def test_a_leave_without_a_store_is_made_later(faulty: FaultyApp) -> None:
    async with faulty.lock("x"):
        (await faulty._internals.store()).is_down = True  # type: ignore[attr-defined]
    faulty.tasks_store.is_down = False  # type: ignore[union-attr]
    await nobody_is_there(faulty)


async def test_looks_whose_answers_are_lost_are_made_again(faulty: FaultyApp) -> None:
    first = Holder(faulty)
    await first.holds()
    second = Holder(faulty)
    await waits(faulty, 1)
    faulty.keeper_store.fail_after["locks.ticket_status"] = 2
    await first.end()
    await second.holds()
    second.lock.check()
    await second.end()


async def test_a_store_that_cannot_be_opened_is_told_to_whoever_wants_a_lock(app_url: str) -> None:
    app = Drumbeat(app_url)

    async def broken() -> Any:
        raise StoreUnavailable("down on purpose")

    app._internals.keeper._open_store = broken
    with pytest.raises(StoreUnavailable, match="down on purpose"):
        await app.lock("x").__aenter__()
    del app._internals.keeper._open_store
    app._internals.keeper._open_store = app._internals.open_store
    async with app.lock("x"):
        pass
    await app.close()


async def test_an_error_that_was_told_is_not_logged_again_as_one_that_nobody_took(app_url: str) -> None:
    app, heard = Drumbeat(app_url), list[str]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context["message"]))

    async def broken() -> Any:
        raise StoreUnavailable("down on purpose")

    app._internals.keeper._open_store = broken
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await app.lock("x").__aenter__()
    await app.close()
    gc.collect()
    assert heard == []


# Threads.


async def in_thread(work: Callable[[], Any]) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, work)


async def test_threads_and_tasks_exclude_each_other(app: Drumbeat) -> None:
    inside, most, tokens = 0, 0, list[int]()

    def thread() -> None:
        nonlocal inside, most
        for _ in range(3):
            with app.sync.lock("x") as lock:
                inside += 1
                most = max(most, inside)
                tokens.append(lock.token)
                inside -= 1

    async def task() -> None:
        nonlocal inside, most
        for _ in range(3):
            async with app.lock("x") as lock:
                inside += 1
                most = max(most, inside)
                tokens.append(lock.token)
                await app.instances.list()
                inside -= 1

    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(in_thread(thread))
            group.create_task(task())
    assert most == 1
    assert tokens == sorted(set(tokens)) and len(tokens) == 12
    await in_thread(app.sync.close)


async def test_a_thread_hears_of_its_loss_and_is_told_at_the_end(app: Drumbeat) -> None:
    entered = threading.Event()
    heard: list[str | None] = []

    def thread() -> None:
        with app.sync.lock("x") as lock:
            entered.set()
            assert lock.lost.wait(10)
            heard.append(lock.lost.reason)

    running = beside(in_thread(thread))
    await in_thread(lambda: entered.wait(10))
    await app.locks.release("x", reason="stuck", by="ada")
    with pytest.raises(LockLost):
        await running
    assert heard == ["released by ada: stuck"]
    await in_thread(app.sync.close)


async def test_a_thread_cannot_enter_twice_and_a_loop_not_at_all(app: Drumbeat) -> None:
    def thread() -> None:
        with app.sync.lock("x"), pytest.raises(LockReentered):
            app.sync.lock("x").__enter__()

    await in_thread(thread)
    with pytest.raises(WrongContext):
        app.sync.lock("x").__enter__()
    await in_thread(app.sync.close)


# Lives.


async def test_the_keeper_ends_with_the_app(app_url: str) -> None:
    async with Drumbeat(app_url) as app:
        async with app.lock("x"):
            assert _keepers() == 1
    # Not only when nobody has asked it for anything for a while.
    with within(1.0):
        await until(lambda: _keepers() == 0, what="the end of the thread")


def _keepers() -> int:
    return sum(thread.name == "drumbeat locks" for thread in threading.enumerate())


async def test_a_task_left_behind_by_a_closed_loop_holds_nothing_for_ever(app_url: str) -> None:
    app = Drumbeat(app_url, **QUICK_LEASES)

    def careless() -> None:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(app.lock("x").__aenter__())
        loop.close()

    await in_thread(careless)
    await nobody_is_there(app)
    await app.close()


async def test_a_handler_may_use_locks_and_the_line_shows_its_job(app: Drumbeat) -> None:
    let_go = asyncio.Event()

    @app.task
    async def sweep() -> str:
        async with app.lock("x"):
            await let_go.wait()
            return f"job {current_job().id}"

    async with run_worker(app):
        job = await sweep.enqueue()

        async def held() -> LockInfo | None:
            found = await line(app)
            return found if found is not None and found.holding else None

        found = await until(held)
        let_go.set()
        assert await job.result(timeout=10) == found.holders[0].what
        assert found.holders[0].owner.startswith("one ")


async def test_a_worker_that_stops_waits_for_what_is_held(app: Drumbeat) -> None:
    @app.task
    async def nothing() -> None:
        pass

    async with run_worker(app, drain=10) as worker:
        await (await nothing.enqueue()).result(timeout=10)
        held = Holder(app)
        await held.holds()
        worker.request_stop()
        await until(lambda: app._internals.keeper.table._free_callbacks, what="the worker's wish to hear of the end")
        assert held.lock._ticket.stage is TicketStage.HELD
        await held.end()
    assert app._internals.keeper.table._free_callbacks == []


async def test_the_wrong_with_is_told_the_right_one_on_a_loop() -> None:
    app: Any = Drumbeat("sqlite:////nowhere/x.db")
    wrong = []
    for lock in (app.lock("x"), app.sync.lock("x")):
        with pytest.raises(WrongContext) as told:
            with lock:
                pass
        wrong.append(str(told.value))
    with pytest.raises(WrongContext) as told:
        async with app.sync.lock("x"):
            pass
    wrong.append(str(told.value))
    where = "was called on the thread of a running event loop: use `async with app.lock`"
    assert wrong == [
        f"`with app.lock` {where}",
        f"`with app.sync.lock` {where}",
        f"`async with app.sync.lock` {where}",
    ]


def test_the_wrong_with_is_told_the_right_one_without_a_loop() -> None:
    app: Any = Drumbeat("sqlite:////nowhere/x.db")
    with pytest.raises(WrongContext) as told:
        with app.lock("x"):
            pass
    assert str(told.value) == "`with app.lock` was called where no event loop runs: use `with app.sync.lock`"
