"""The thread behind a store, with a handler that does what a test asks: groups, errors, idle time, and its end."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from drumbeat.clock import SYSTEM
from drumbeat.errors import StoreFull, StoreUnavailable
from drumbeat.store.sqlite import database_thread
from drumbeat.store.sqlite.database_thread import DatabaseThread, GroupHandler, RequestGroup, RequestResult, TakeQueued
from tests.waiting import until, until_sync

FILE = Path("/x/jobs.db")


class RecordingHandler(GroupHandler[str]):
    """Runs each request with the context "db"; `gate` holds up the group under way."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        self.group_error: Exception | None = None
        self.idle_calls = 0
        self.timeout: float | None = None
        self.closed = threading.Event()
        self.interrupted = False

    def run_group(self, group: RequestGroup[str], take_queued: TakeQueued[str]) -> Sequence[RequestResult]:
        assert self.gate.wait(10)
        group += take_queued(group[0].weight)
        self.sizes.append(len(group))
        if self.group_error is not None:
            raise self.group_error
        return [(request.future, request.work("db", request.argument), None) for request in group]

    def idle_timeout(self) -> float | None:
        return self.timeout

    def on_idle(self) -> None:
        self.idle_calls += 1

    def close(self) -> None:
        self.closed.set()

    def interrupt(self) -> None:
        self.interrupted = True


@pytest.fixture
def handler() -> Iterator[RecordingHandler]:
    handler = RecordingHandler()
    yield handler
    handler.gate.set()


def new_thread(handler: RecordingHandler) -> DatabaseThread[str]:
    return DatabaseThread("test", FILE, asyncio.get_running_loop(), SYSTEM, handler)


def join(db: str, number: int) -> str:
    return f"{db} {number}"


async def test_requests_that_wait_are_one_group_and_each_gets_its_result(handler: RecordingHandler) -> None:
    thread = new_thread(handler)
    handler.gate.clear()
    futures = [thread.submit(join, number) for number in range(5)]
    handler.gate.set()
    assert [await future for future in futures] == [f"db {number}" for number in range(5)]
    assert handler.sizes == [5]
    await thread.close()
    assert handler.closed.is_set()
    assert handler.interrupted


async def test_a_heavy_request_ends_its_group(handler: RecordingHandler) -> None:
    thread = new_thread(handler)
    handler.gate.clear()
    futures = [thread.submit(join, number, weight=6_000) for number in range(5)]
    handler.gate.set()
    await asyncio.wait(futures)
    assert handler.sizes == [2, 2, 1]
    await thread.close()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(5, "Input/output error"), StoreUnavailable),
        (sqlite3.ProgrammingError("Cannot operate on a closed database."), StoreUnavailable),
        (StoreFull("full"), StoreFull),
        (ZeroDivisionError(), ZeroDivisionError),
    ],
)
async def test_an_error_of_a_group_is_translated_for_all_its_callers_and_the_thread_goes_on(
    handler: RecordingHandler, error: Exception, told: type[Exception]
) -> None:
    thread = new_thread(handler)
    handler.gate.clear()
    handler.group_error = error
    futures = [thread.submit(join, number) for number in range(3)]
    handler.gate.set()
    for future in futures:
        with pytest.raises(told) as raised:
            await future
        assert raised.value is error or raised.value.__cause__ is error
    handler.group_error = None
    assert await thread.submit(join, 4) == "db 4"
    await thread.close()


async def test_close_waits_for_what_is_queued_and_refuses_new_requests(handler: RecordingHandler) -> None:
    thread = new_thread(handler)
    handler.gate.clear()
    first = thread.submit(join, 1, weight=20_000)
    second = thread.submit(join, 2)
    closing = asyncio.Task(thread.close())
    await until(lambda: handler.interrupted)
    handler.gate.set()
    await closing
    assert await first == "db 1"
    assert await second == "db 2"
    with pytest.raises(StoreUnavailable, match="the store is closed"):
        thread.submit(join, 3)


async def test_close_fails_what_is_not_done_in_time(handler: RecordingHandler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_thread, "_CLOSE_TIMEOUT", 0.05)
    thread = new_thread(handler)
    handler.gate.clear()
    future = thread.submit(join, 1)
    await thread.close()
    with pytest.raises(StoreUnavailable, match="the store was closed"):
        await future


async def test_the_handler_is_called_when_it_is_idle(handler: RecordingHandler) -> None:
    thread = new_thread(handler)
    handler.timeout = 0.01
    await thread.submit(join, 1)
    await until(lambda: handler.idle_calls >= 2, what="two idle calls")
    await thread.close()


def test_the_thread_ends_with_its_loop(handler: RecordingHandler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_thread, "_LOOP_CHECK_INTERVAL", 0.02)

    async def use() -> Callable[[], bool]:
        thread = new_thread(handler)
        await thread.submit(join, 1)
        assert thread._thread is not None
        assert thread._thread.daemon
        return thread._thread.is_alive

    is_alive = asyncio.run(use())
    until_sync(lambda: not is_alive(), what="the end of the thread")
    assert handler.closed.is_set()
