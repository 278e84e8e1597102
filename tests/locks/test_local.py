"""`local_lock`: turns within one process, in tasks, in several loops and in threads."""

import asyncio
import multiprocessing
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from drumbeat import local_lock
from drumbeat.errors import InvalidArguments, LockError, LockReentered, LockTimeout, WrongContext
from drumbeat.locks.local_queue import LOCAL_QUEUES
from tests.waiting import Stalls, until, until_sync


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    assert [line.name for line in LOCAL_QUEUES.by_name.values() if not line.is_idle() and not line.starts] == []
    LOCAL_QUEUES.by_name.clear()


def waiting(name: str) -> int:
    line = LOCAL_QUEUES.by_name.get(name)
    return 0 if line is None else len(line.waiters)


async def holding(name: str, log: list[Any], who: Any, leave: asyncio.Event, **options: Any) -> None:
    async with local_lock(name, **options):
        log.append(who)
        await leave.wait()


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


async def test_turns_are_given_in_the_order_of_coming() -> None:
    log: list[int] = []
    leave = asyncio.Event()
    leave.set()
    async with asyncio.TaskGroup() as group, local_lock("x"):
        for number in range(20):
            group.create_task(holding("x", log, number, leave))
            await until(lambda number=number: waiting("x") == number + 1)
        assert log == []
    assert log == list(range(20))


async def test_at_most_limit_hold_it_at_the_same_time() -> None:
    inside = most = 0

    async def enter() -> None:
        nonlocal inside, most
        async with local_lock("x", limit=3):
            inside += 1
            most = max(most, inside)
            for _ in range(3):
                await asyncio.get_running_loop().run_in_executor(None, int)
            inside -= 1

    async with asyncio.TaskGroup() as group:
        for _ in range(30):
            group.create_task(enter())
    assert most == 3


async def test_a_newcomer_does_not_overtake_whoever_was_told_to_go_on() -> None:
    log: list[str] = []
    first = local_lock("x")
    await first.__aenter__()
    async with asyncio.TaskGroup() as group:
        leave = asyncio.Event()
        leave.set()
        group.create_task(holding("x", log, "waiter", leave))
        await until(lambda: waiting("x") == 1)
        await first.__aexit__(None, None, None)
        async with local_lock("x"):  # the waiter holds it, but has not run yet
            log.append("newcomer")
    assert log == ["waiter", "newcomer"]


async def test_the_newest_limit_counts() -> None:
    leave = asyncio.Event()
    log: list[int] = []
    async with asyncio.TaskGroup() as group:
        group.create_task(holding("x", log, 1, leave, limit=1))
        group.create_task(holding("x", log, 2, leave, limit=2))
        await until(lambda: log == [1, 2])
        with pytest.raises(LockTimeout):
            await local_lock("x", limit=2, timeout=0).__aenter__()
        leave.set()


async def test_cancellation_leaves_the_line_at_once() -> None:
    log: list[str] = []
    leave = asyncio.Event()
    leave.set()
    async with asyncio.TaskGroup() as group, local_lock("x"):
        gone = group.create_task(holding("x", log, "cancelled", leave))
        group.create_task(holding("x", log, "next", leave))
        await until(lambda: waiting("x") == 2)
        gone.cancel()
        await until(lambda: waiting("x") == 1)
    assert log == ["next"]


async def test_whoever_is_cancelled_between_grant_and_start_hands_over() -> None:
    log: list[str] = []
    leave = asyncio.Event()
    leave.set()
    first = local_lock("x")
    await first.__aenter__()
    async with asyncio.TaskGroup() as group:
        gone = group.create_task(holding("x", log, "cancelled", leave))
        group.create_task(holding("x", log, "next", leave))
        await until(lambda: waiting("x") == 2)
        await first.__aexit__(None, None, None)
        assert waiting("x") == 1
        gone.cancel()
    assert log == ["next"]


async def elsewhere(work: Coroutine[Any, Any, Any]) -> Any:
    """In another task."""
    return await asyncio.get_running_loop().create_task(work)


async def test_a_timeout_is_told_and_leaves_the_line() -> None:
    async with local_lock("x"):
        with pytest.raises(LockTimeout, match=r"lock 'x' was not free within 0\.02 s"):
            await elsewhere(local_lock("x", timeout=0.02).__aenter__())
        assert waiting("x") == 0


async def test_no_time_at_all_means_now_or_never() -> None:
    async def attempt() -> str:
        async with local_lock("x", timeout=0):
            return "got it"

    assert await attempt() == "got it"
    async with local_lock("x"):
        with pytest.raises(LockTimeout):
            await elsewhere(attempt())


async def test_reentrance_is_refused() -> None:
    async with local_lock("x", limit=2):
        with pytest.raises(LockReentered, match="lock 'x' is held by this very task"):
            await local_lock("x", limit=2).__aenter__()


def test_reentrance_of_a_thread_is_refused() -> None:
    with local_lock("x"), pytest.raises(LockReentered):
        local_lock("x").__enter__()


async def test_the_same_lock_can_be_kept_and_entered_by_many() -> None:
    shared = local_lock("x", limit=2)
    most = 0

    async def enter() -> None:
        nonlocal most
        async with shared:
            most = max(most, len(LOCAL_QUEUES.by_name["x"].holders))
            await asyncio.get_running_loop().run_in_executor(None, int)

    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(enter())
    assert most == 2


async def test_another_task_may_leave_it_where_only_one_can_be_meant() -> None:
    lock = local_lock("x")
    async with asyncio.TaskGroup() as group:
        await group.create_task(lock.__aenter__())
        await group.create_task(lock.__aexit__(None, None, None))
    with pytest.raises(LockError, match="is not held by this task or thread"):
        await lock.__aexit__(None, None, None)


async def test_a_plain_with_is_refused_on_a_loop() -> None:
    with pytest.raises(WrongContext, match="async with"):
        local_lock("x").__enter__()


@pytest.mark.parametrize(
    ("options", "word"),
    [({"limit": 0}, "limit"), ({"limit": True}, "limit"), ({"per": 0}, "per"), ({"timeout": -1}, "timeout")],
)
def test_impossible_options_are_refused(options: dict[str, Any], word: str) -> None:
    with pytest.raises(InvalidArguments, match=word):
        local_lock("x", **options)


def test_an_impossible_name_is_refused() -> None:
    with pytest.raises(InvalidArguments, match="is not a valid name"):
        local_lock("no spaces")


def test_threads_and_loops_exclude_each_other_and_none_is_forgotten() -> None:
    inside: list[object] = []
    most = count = 0

    def touch() -> None:
        nonlocal most, count
        inside.append(None)
        most = max(most, len(inside))
        count += 1
        inside.pop()

    def in_threads() -> None:
        for _ in range(100):
            with local_lock("x"):
                touch()

    async def task() -> None:
        for _ in range(25):
            async with local_lock("x"):
                touch()
                await asyncio.get_running_loop().run_in_executor(None, int)

    async def tasks() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(task())

    threads = [in_thread(in_threads) for _ in range(3)] + [in_thread(lambda: asyncio.run(tasks())) for _ in range(2)]
    for thread in threads:
        thread.join(60)
    assert (most, count) == (1, 500)


def test_turns_are_given_in_order_across_threads_and_loops() -> None:
    log: list[int] = []

    def thread(number: int) -> None:
        with local_lock("x"):
            log.append(number)

    async def task(number: int) -> None:
        async with local_lock("x"):
            log.append(number)

    with local_lock("x"):
        for number in range(10):
            work = (lambda n=number: thread(n)) if number % 2 else (lambda n=number: asyncio.run(task(n)))
            in_thread(work)
            until_sync(lambda number=number: waiting("x") == number + 1)  # type: ignore[misc]
    until_sync(lambda: len(log) == 10)
    assert log == list(range(10))


def test_a_thread_that_waits_too_long_leaves_the_line() -> None:
    told: list[Exception] = []

    def attempt() -> None:
        try:
            with local_lock("x", timeout=0.02):
                pass
        except LockTimeout as error:
            told.append(error)

    with local_lock("x"):
        in_thread(attempt).join(10)
        assert len(told) == 1 and waiting("x") == 0


def exceeded(starts: list[float], limit: int, per: float) -> list[tuple[float, float]]:
    """Pairs of starts that are `limit` apart and yet within one window."""
    ordered = sorted(starts)
    return [pair for pair in zip(ordered, ordered[limit:], strict=False) if pair[1] - pair[0] < per]


class Starts:
    """The moments at which holders of a lock have gone on, as the line itself has written them down: what a test would look at
    its watch for is later, by however long it was kept waiting."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._noted: dict[int, Any] = {}
        self.count = 0

    def note(self) -> None:
        """Called by each holder."""
        self.count += 1
        self._noted.update({id(start): start for start in tuple(LOCAL_QUEUES.by_name[self._name].starts)})

    @property
    def moments(self) -> list[float]:
        return [start.at for start in self._noted.values()]


async def test_no_window_has_more_than_limit_starts_and_little_is_wasted() -> None:
    starts = Starts("x")

    async def call() -> None:
        async with local_lock("x", limit=5, per=0.1):
            starts.note()

    with Stalls() as stalls:
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for _ in range(30):
                group.create_task(call())
        took = time.monotonic() - began
        # Whatever holds one window up holds up those behind it.
        assert 0.5 <= took < 1.0 + 6 * stalls.seconds
    assert (starts.count, len(starts.moments)) == (30, 30)
    assert exceeded(starts.moments, 5, 0.1 - 1e-6) == []


def test_a_window_holds_over_threads_and_loops() -> None:
    starts = Starts("x")
    line = local_lock("x", limit=10, per=0.1)

    def in_threads() -> None:
        for _ in range(10):
            with line:
                starts.note()

    async def tasks() -> None:
        for _ in range(10):
            async with line:
                starts.note()

    threads = [in_thread(in_threads) for _ in range(3)] + [in_thread(lambda: asyncio.run(tasks())) for _ in range(3)]
    for thread in threads:
        thread.join(30)
    assert starts.count == 60
    assert exceeded(starts.moments, 10, 0.1 - 1e-6) == []


async def test_the_window_stays_closed_after_the_last_has_left() -> None:
    async def attempt() -> None:
        async with local_lock("x", limit=1, per=60, timeout=0):
            pass

    await attempt()
    with pytest.raises(LockTimeout):
        await attempt()


async def test_a_start_that_never_came_leaves_room_in_the_window() -> None:
    lock = local_lock("x", limit=2, per=60)
    log: list[str] = []
    leave = asyncio.Event()
    leave.set()
    holder = local_lock("x", limit=1, per=60)
    await holder.__aenter__()
    async with asyncio.TaskGroup() as group:
        gone = group.create_task(holding("x", log, "cancelled", leave, limit=1, per=60))
        await until(lambda: waiting("x") == 1)
        LOCAL_QUEUES.by_name["x"].limit = 2
        await holder.__aexit__(None, None, None)
        gone.cancel()
    async with asyncio.timeout(5), lock:
        log.append("next")
    assert log == ["next"]


def test_lines_of_many_names_do_not_pile_up() -> None:
    for number in range(2_000):
        with local_lock(f"plain-{number}"):
            pass
        with local_lock(f"window-{number}", per=0.001):
            pass
    assert len(LOCAL_QUEUES.by_name) < 1_000


def _child(answers: Any) -> None:
    with local_lock("other", timeout=1):
        answers.put(sorted(name for name, line in LOCAL_QUEUES.by_name.items() if line.holders))


def test_a_forked_child_keeps_only_what_it_holds_itself() -> None:
    release = threading.Event()

    def hold() -> None:
        with local_lock("other"):
            release.wait(30)

    thread = in_thread(hold)
    until_sync(lambda: "other" in LOCAL_QUEUES.by_name)
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    try:
        with local_lock("own"):
            child = context.Process(target=_child, args=(answers,))
            child.start()
            child.join(30)
        assert answers.get() == ["other", "own"]
    finally:
        release.set()
        thread.join(10)


async def test_uncontended_it_takes_microseconds() -> None:
    async def lap(count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            async with local_lock("x"):
                pass
        return (time.perf_counter() - began) / count

    best = min([await lap(2_000) for _ in range(5)])
    assert best < 50e-6  # 2 µs on an idle machine; a test must not fail on a busy one
