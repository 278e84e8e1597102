"""Rooms: messages that are handled independently of jobs, at once and at most once."""

import asyncio
import logging
import threading
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any

import pytest

from drumbeat import errors
from drumbeat.app import Drumbeat
from drumbeat.context import AbortReason, abort_signal
from drumbeat.core import instance
from drumbeat.core.job_query import JobFilter
from drumbeat.core.room import RoomMessage
from drumbeat.events import RoomFailed
from drumbeat.ids import InstanceId, new_job_id
from drumbeat.store.job_reads import find_jobs
from drumbeat.worker import room_consumer
from tests.contract.making import worker
from tests.faults import FaultyProgram
from tests.waiting import until, within
from tests.worker.worker_harness import EventRecorder, run_worker


async def present(app: Drumbeat, count: int) -> None:
    """Until so many workers are in rooms."""

    async def is_so() -> bool:
        store = await app._internals.store()
        return sum(bool(each.rooms) for each in await store.inspect.list_instances()) == count

    await until(is_so, what=f"{count} workers in rooms")


async def test_items_are_split_evenly_over_the_living_workers(app: Drumbeat) -> None:
    heard: list[list[int]] = []

    @app.room
    async def refresh(numbers: list[int], base: int = 0) -> None:
        heard.append([number + base for number in numbers])

    async with app, AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(run_worker(app))
        await present(app, 3)
        assert await refresh.fan_out(list(range(9))) == 3
        await until(lambda: len(heard) == 3, what="three calls")
        assert sorted(heard) == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
        heard.clear()
        assert await refresh.fan_out(list(range(10)), base=100) == 3
        await until(lambda: len(heard) == 3, what="three calls")
        assert sorted(heard) == [[100, 101, 102, 103], [104, 105, 106], [107, 108, 109]]
        heard.clear()
        assert [await refresh.fan_out([7, 8]), await refresh.fan_out([])] == [2, 0]
        await until(lambda: len(heard) == 2, what="two calls")
        assert sorted(heard) == [[7], [8]]
        heard.clear()
        assert await asyncio.to_thread(refresh.fan_out_sync, numbers=[1], base=1) == 1
        await until(lambda: heard == [[2]], what="a call")
        store = await app._internals.store()
        assert await find_jobs(store, JobFilter()) == []


async def test_a_broadcast_reaches_each_and_def_handlers_run_in_threads(app: Drumbeat) -> None:
    heard: list[tuple[str, str]] = []

    @app.room(name="news")
    def hear(text: str) -> None:
        heard.append((text, threading.current_thread().name))

    async with app, run_worker(app), run_worker(app):
        await present(app, 2)
        assert await hear.broadcast("fresh") == 2
        await until(lambda: len(heard) == 2, what="two calls")
        assert await asyncio.to_thread(hear.broadcast_sync, "fresh") == 2
        await until(lambda: len(heard) == 4, what="four calls")
    assert {text for text, _ in heard} == {"fresh"}
    assert all(thread.startswith("drumbeat-handler") for _, thread in heard)


async def test_what_is_sent_while_no_worker_lives_is_not_kept(app: Drumbeat) -> None:
    heard: list[int] = []

    @app.room
    async def note(number: int) -> None:
        heard.append(number)

    async with app:
        assert await note.broadcast(1) == 0
        async with run_worker(app):
            await present(app, 1)
            assert await note.broadcast(2) == 1
            await until(lambda: heard, what="a call")
    assert heard == [2]


async def test_workers_of_another_signature_get_nothing(app: Drumbeat, app_url: str) -> None:
    heard: list[Any] = []
    elder = Drumbeat(app_url)

    @app.room
    async def note(number: int) -> None:
        heard.append(number)

    @elder.room(name="note")
    async def older(text: str) -> None:
        heard.append(text)

    async with app, elder, run_worker(app), run_worker(elder):
        await present(app, 2)
        assert [await note.broadcast(1), await older.broadcast("old")] == [1, 1]
        await until(lambda: len(heard) == 2, what="two calls")
    assert set(heard) == {1, "old"}


async def test_arguments_are_checked_where_the_call_is_written(app: Drumbeat) -> None:
    @app.room
    async def note(numbers: list[int], text: str = "") -> None: ...

    @app.room
    async def ring() -> None: ...

    for wrong in (
        lambda: note.broadcast("no list"),  # type: ignore[arg-type]
        lambda: note.fan_out([1, "two"]),  # type: ignore[list-item]
        lambda: note.fan_out([1], text=3),  # type: ignore[arg-type]
        lambda: note.fan_out(),  # type: ignore[call-arg]
        lambda: note.broadcast([1], "x" * 300_000),
        ring.fan_out,
    ):
        with pytest.raises(errors.InvalidArguments):
            wrong()  # type: ignore[no-untyped-call, unused-coroutine]
    with pytest.raises(errors.WrongContext):
        note.broadcast_sync([1])


async def test_a_list_that_is_too_large_for_one_is_split_for_several(app: Drumbeat) -> None:
    heard: list[int] = []

    @app.room
    async def store_all(texts: list[str]) -> None:
        heard.append(sum(map(len, texts)))

    texts = ["x" * 100_000] * 4
    async with app, run_worker(app):
        await present(app, 1)
        with pytest.raises(errors.InvalidArguments):
            await store_all.fan_out(texts)
        async with run_worker(app):
            await present(app, 2)
            assert await store_all.fan_out(texts) == 2
            await until(lambda: len(heard) == 2, what="two calls")
    assert heard == [200_000, 200_000]


async def test_a_failing_handler_is_reported_and_counted_and_not_called_again(
    app: Drumbeat, recorder: EventRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    @app.room
    async def fragile(text: str) -> None:
        calls.append(text)
        if text == "leave":
            raise SystemExit(3)
        if text == "cancel":
            raise asyncio.CancelledError("of its own")
        raise ValueError(text)

    @app.room(timeout=0.01)
    async def late() -> None:
        await asyncio.Event().wait()

    async with app, run_worker(app):
        await present(app, 1)
        for count, text in enumerate(("one", "leave", "cancel"), start=1):
            await fragile.broadcast(text)
            await recorder.next(RoomFailed, lambda event, count=count: event.failed == count)  # type: ignore[misc]
        await late.broadcast()
        timed_out = await recorder.next(RoomFailed, lambda event: event.room == "late")
    assert "timed out after" in timed_out.error.message and timed_out.failed == 1
    told = [event for event in recorder.of(RoomFailed) if event.room == "fragile"]
    types = [(event.error.type, event.failed) for event in told]
    assert types == [("ValueError", 1), ("SystemExit", 2), ("asyncio.exceptions.CancelledError", 3)]
    assert calls == ["one", "leave", "cancel"]
    records = [record for record in caplog.records if record.message == "a room's handler failed"]
    assert [record.levelno for record in records] == [logging.ERROR] * 4
    assert records[0].exc_info is not None and isinstance(records[0].exc_info[1], ValueError)


async def test_messages_that_no_handler_can_read_are_reported(app: Drumbeat, recorder: EventRecorder) -> None:
    @app.room
    async def note(number: int) -> None: ...

    def message(worker: Any, **options: Any) -> RoomMessage:
        facts: dict[str, Any] = {"room": "note", "args": '{"number":1}', "signature": note.signature.hash}
        return RoomMessage(id=new_job_id(), to=worker.id, **(facts | options))

    async with app, run_worker(app):
        await present(app, 1)
        store = await app._internals.store()
        [me] = await store.inspect.list_instances()
        wrong = [message(me, room="os.system"), message(me, signature="other"), message(me, args='{"number":"x"}')]
        await store.rooms.send(wrong)
        await until(lambda: len(recorder.of(RoomFailed)) == 3, what="three refusals")
    assert [event.error.type for event in recorder.of(RoomFailed)] == ["OtherVersion", "OtherVersion", "Undecodable"]


async def test_at_most_max_calls_are_handled_at_once_and_the_rest_waits(
    app: Drumbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room_consumer, "MAX_CALLS", 2)
    monkeypatch.setattr(room_consumer, "POLL_INTERVAL", 600.0)
    running, most, done = 0, 0, 0
    gate = asyncio.Event()

    @app.room
    async def work() -> None:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        await gate.wait()
        running -= 1
        done += 1

    async with app, run_worker(app):
        await present(app, 1)
        for _ in range(5):
            await work.broadcast()
        await until(lambda: running == 2, what="two calls")
        gate.set()
        await until(lambda: done == 5, what="five calls")
    assert most == 2


async def test_a_message_without_a_notification_is_found_by_polling(
    app: Drumbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room_consumer, "POLL_INTERVAL", 0.05)
    monkeypatch.setattr(room_consumer.RoomConsumer, "_on_notification", lambda self, instance: None)
    heard: list[int] = []

    @app.room
    async def note(number: int) -> None:
        heard.append(number)

    async with app, run_worker(app):
        await present(app, 1)
        await note.broadcast(1)
        await until(lambda: heard, what="a call")


async def test_a_store_that_is_away_for_a_while_costs_nothing_but_time(
    app: Drumbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room_consumer, "POLL_INTERVAL", 0.05)
    heard: list[int] = []
    program = FaultyProgram(app)
    faults = await program.store()

    @app.room
    async def note(number: int) -> None:
        heard.append(number)

    async with app, run_worker(program):
        await present(app, 1)
        faults.fail_before["rooms.take"] = 3
        # From then on no look is under way that began before: it would bring the message, and the others need not fail.
        await until(lambda: faults.fail_before["rooms.take"] < 3, what="a look that fails")
        await note.broadcast(1)
        await until(lambda: heard, what="a call")
        assert faults.fail_before["rooms.take"] == 0
        faults.fail_before["instances.leave_rooms"] = 1
    assert faults.calls["instances.leave_rooms"] == 1


async def test_a_worker_that_drains_leaves_its_rooms_and_ends_what_it_has(app: Drumbeat) -> None:
    begun, gate = asyncio.Event(), asyncio.Event()
    ended: list[str] = []

    @app.room
    async def slow() -> None:
        begun.set()
        await gate.wait()
        ended.append("slow")

    async with app:
        async with run_worker(app) as worker:
            await present(app, 1)
            assert await slow.broadcast() == 1
            await begun.wait()
            worker.request_stop()
            await present(app, 0)
            assert await slow.broadcast() == 0
            assert ended == []
            gate.set()
        assert ended == ["slow"]


async def test_a_handler_that_outlives_the_drain_is_ended_and_reported(app: Drumbeat, recorder: EventRecorder) -> None:
    begun = asyncio.Event()

    @app.room
    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with app:
        async with run_worker(app, drain=0.05):
            await present(app, 1)
            await endless.broadcast()
            await begun.wait()
    assert [event.error.type for event in recorder.of(RoomFailed)] == ["Interrupted"]


async def stranger(app: Drumbeat, room: Any, **facts: Any) -> InstanceId:
    """A worker that is in a room and does nothing, not even beat."""
    store = await app._internals.store()
    return await worker(store, rooms={room.name: room.signature.hash}, **facts)


async def test_the_share_of_a_worker_that_dies_before_it_takes_it_goes_to_another(
    app: Drumbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance, "HEALTHY_TIMEOUT", 0.2)
    heard: list[list[int]] = []

    @app.room
    async def refresh(numbers: list[int]) -> None:
        heard.append(numbers)

    async with app, run_worker(app, dead_after=30), run_worker(app, dead_after=30):
        await present(app, 2)
        dead = await stranger(app, refresh)
        assert await refresh.fan_out(list(range(9))) == 2
        await until(lambda: len(heard) == 3, what="three calls")
        assert sorted(heard) == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
        # From now on it is silent, and nothing is sent to it but news.
        store = await app._internals.store()
        with within(1.0):
            assert await refresh.fan_out([1, 2, 3, 4]) == 2
        assert await store.rooms.take(dead, 10) == []
        await until(lambda: len(heard) == 5, what="two calls more")
        assert sorted(heard[3:]) == [[1, 2], [3, 4]]
        assert await refresh.broadcast([0]) == 2
        assert len(await store.rooms.take(dead, 10)) == 1


async def test_a_dead_worker_costs_a_fan_out_no_time(app: Drumbeat) -> None:
    heard: list[int] = []

    @app.room
    async def refresh(numbers: list[int]) -> None:
        heard.extend(numbers)

    async with app, run_worker(app, dead_after=30):
        await present(app, 1)
        dead = await stranger(app, refresh)
        store = await app._internals.store()
        with within(1.0):
            async with asyncio.TaskGroup() as group:
                sending = group.create_task(refresh.fan_out([1, 2]))
                await until(lambda: heard, what="the first share")
                await store.instances.declare_dead(dead, beat=None, started=[], reason="process died: SIGKILL")
            assert sending.result() == 1
        await until(lambda: sorted(heard) == [1, 2], what="both shares")


async def test_shares_that_no_worker_is_left_to_take_are_reported(
    app: Drumbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance, "HEALTHY_TIMEOUT", 0.2)

    @app.room
    async def refresh(numbers: list[int]) -> None: ...

    app.configure({"heartbeat": 0.05, "dead_after": 30})
    async with app:
        first, second = [await stranger(app, refresh) for _ in range(2)]
        store = await app._internals.store()
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(expect_not_taken(refresh.fan_out([1, 2, 3])))
            await until(lambda: store.rooms.take(first, 10), what="the first share")
        error = sending.result()
        assert (error.room, error.not_taken, error.sent) == ("refresh", 1, 2)
        assert await store.rooms.take(second, 10) == []
        # Nobody took anything: as if nobody lived.
        await stranger(app, refresh)
        assert await refresh.fan_out([1, 2, 3]) == 0


async def expect_not_taken(sending: Coroutine[Any, Any, int]) -> errors.SharesNotTaken:
    with pytest.raises(errors.SharesNotTaken) as caught:
        await sending
    return caught.value


async def test_a_worker_that_lives_but_has_no_time_keeps_its_share(
    app: Drumbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room_consumer, "MAX_CALLS", 1)
    gate, heard = asyncio.Event(), list[int]()

    @app.room
    async def work(numbers: list[int]) -> None:
        heard.extend(numbers)
        await gate.wait()

    async with app, run_worker(app):
        await present(app, 1)
        for number in range(3):
            assert await work.fan_out([number]) == 1
        assert heard == [0]
        gate.set()
        await until(lambda: heard == [0, 1, 2], what="the rest")


async def test_handlers_are_signalled_when_their_worker_drains_and_async_ones_are_cancelled_soon(
    app: Drumbeat, recorder: EventRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room_consumer, "CANCEL_DELAY", 0.05)
    heard: list[Any] = []

    @app.room
    async def deaf() -> None:
        heard.append("begun")
        heard.append(await abort_signal())
        await asyncio.Event().wait()

    @app.room
    def in_thread() -> None:
        heard.append("begun")
        heard.append(abort_signal().wait(20))

    async with app:
        with within(3.0):
            async with run_worker(app, drain=20):
                await present(app, 1)
                await deaf.broadcast()
                await in_thread.broadcast()
                await until(lambda: heard == ["begun", "begun"], what="two calls")
    assert sorted(map(str, heard)) == ["True", "begun", "begun", "draining"]
    assert [(event.room, event.error.type) for event in recorder.of(RoomFailed)] == [("deaf", "Interrupted")]


async def test_a_handler_in_a_thread_hears_that_its_time_is_over(app: Drumbeat, recorder: EventRecorder) -> None:
    heard: list[Any] = []

    @app.room(timeout=0.05)
    def slow() -> None:
        signal = abort_signal()
        signal.wait(20)
        heard.append(signal.reason)

    async with app, run_worker(app):
        await present(app, 1)
        await slow.broadcast()
        await recorder.next(RoomFailed)
        await until(lambda: heard == [AbortReason.TIMED_OUT], what="the end of the thread")


def test_a_room_is_refused_where_it_is_written() -> None:
    app = Drumbeat()

    @app.room
    async def note(number: int) -> None: ...

    with pytest.raises(errors.ConfigError, match="two rooms named 'note'"):

        @app.room(name="note")
        def other() -> None: ...

    with pytest.raises(errors.ConfigError, match="a room has no option 'retries'"):
        app.room(retries=3)(note.function)  # type: ignore[call-overload]
    for wrong in ("text", note, int):
        with pytest.raises(errors.ConfigError, match="must be a function"):
            app.room(wrong)  # type: ignore[arg-type]
    with pytest.raises(errors.ConfigError, match="name"):
        app.room(name="no spaces")(note.function)
    assert list(app._internals.rooms) == ["note"]
