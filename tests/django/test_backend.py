"""The contract of a backend of Django's framework for tasks, `django.tasks` or its backport, on a real store and worker."""

import asyncio
import dataclasses
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from drumbeat.contrib.django import app
from drumbeat.contrib.django.backend import DrumbeatBackend
from drumbeat.contrib.django.task_result import to_job_priority
from drumbeat.contrib.django.tasks_framework import load_framework
from drumbeat.testing import Kit
from drumbeat.testing.sync_kit import SyncKit
from tests.apps.django_site import tasks

framework = load_framework()
Status = framework.TaskResultStatus


@pytest.fixture
def kit() -> Iterator[SyncKit]:
    with Kit(app) as kit:
        yield kit


@pytest.fixture
def signals() -> Iterator[list[tuple[str, str, str]]]:
    """Which signals were sent, about which task and in which status."""
    sent: list[tuple[str, str, str]] = []

    def listener(name: str) -> Any:
        def receive(sender: type, task_result: Any, **_: Any) -> None:
            assert sender is DrumbeatBackend
            sent.append((name, task_result.task.name, str(task_result.status.value)))

        return receive

    receivers = {name: listener(name) for name in ("task_enqueued", "task_started", "task_finished")}
    for name, receive in receivers.items():
        getattr(framework, name).connect(receive)
    yield sent
    for name, receive in receivers.items():
        getattr(framework, name).disconnect(receive)


def finish(kit: SyncKit, result: Any) -> Any:
    kit.run_until_idle()
    result.refresh()
    return result


def test_it_supports_everything() -> None:
    backend = tasks.note.get_backend()
    assert isinstance(backend, DrumbeatBackend)
    assert backend.supports_defer and backend.supports_async_task
    assert backend.supports_get_result and backend.supports_priority
    assert list(backend.check()) == []


def test_a_task_is_ready_until_a_worker_has_run_it(kit: SyncKit) -> None:
    result = tasks.note.enqueue(1, two=[3])
    assert (result.status, result.is_finished, result.attempts) == (Status.READY, False, 0)
    assert (result.args, result.kwargs, result.task, result.backend) == ([1], {"two": [3]}, tasks.note, "default")
    assert (result.started_at, result.finished_at, result.last_attempted_at) == (None, None, None)
    with pytest.raises(ValueError, match="not finished"):
        _ = result.return_value
    assert tasks.note.get_result(result.id) == result
    finish(kit, result)
    assert (result.status, result.is_finished, result.attempts) == (Status.SUCCESSFUL, True, 1)
    assert result.enqueued_at <= result.started_at <= result.finished_at
    assert result.return_value == [[1], {"two": [3]}]
    assert result.errors == []
    assert pickle.loads(pickle.dumps(dataclasses.replace(result, task=None))).id == result.id


def test_async_tasks_and_calls(kit: SyncKit) -> None:
    async def main() -> None:
        result = await tasks.note_async.aenqueue("a", 2)
        assert await tasks.note_async.aget_result(result.id) == result
        again = await tasks.note.aenqueue(1)
        await asyncio.to_thread(kit.run_until_idle)
        await result.arefresh()
        assert result.return_value == ["a", 2]
        again.refresh()  # a sync method, on the thread of a loop
        assert again.return_value == [[1], {}]
        with pytest.raises(framework.TaskResultDoesNotExist):
            tasks.note.get_result("123")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("task", "args", "kind", "message"),
    [
        (tasks.fail, ["no"], ValueError, "ValueError: no\n"),
        (tasks.leave, [], SystemExit, "SystemExit: it leaves\n"),
        (tasks.return_function, [], TypeError, "Unsupported type"),
    ],
)
def test_a_failure_is_final_and_has_its_error(
    kit: SyncKit, task: Any, args: list[Any], kind: type[BaseException], message: str
) -> None:
    result = finish(kit, task.enqueue(*args))
    assert (result.status, result.attempts) == (Status.FAILED, 1)
    [error] = result.errors
    assert error.exception_class is kind
    assert message in error.traceback
    assert result.finished_at >= result.started_at
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value


def test_signals_are_sent_where_it_happens(kit: SyncKit, signals: list[tuple[str, str, str]]) -> None:
    for task in (tasks.note, tasks.note_async, tasks.fail):
        finish(kit, task.enqueue("x"))
    assert signals == [
        (signal, name, status)
        for name, last in (("note", "SUCCESSFUL"), ("note_async", "SUCCESSFUL"), ("fail", "FAILED"))
        for signal, status in (("task_enqueued", "READY"), ("task_started", "RUNNING"), ("task_finished", last))
    ]


def test_a_receiver_that_fails_does_not_change_the_task(kit: SyncKit) -> None:
    def receive(sender: type, **_: Any) -> None:
        raise RuntimeError("of a receiver")

    for name in ("task_enqueued", "task_started", "task_finished"):
        getattr(framework, name).connect(receive)
    try:
        assert finish(kit, tasks.note.enqueue()).status == Status.SUCCESSFUL
    finally:
        for name in ("task_enqueued", "task_started", "task_finished"):
            getattr(framework, name).disconnect(receive)


def test_context_and_attempts(kit: SyncKit, signals: list[tuple[str, str, str]]) -> None:
    once = finish(kit, tasks.attempt.enqueue(1))
    assert once.return_value == [1, once.id, 1]
    result = tasks.attempt.using(backend="patient").enqueue(3)
    kit.run_until_idle(retries=True)
    result.refresh()
    assert (result.status, result.attempts, result.backend) == (Status.SUCCESSFUL, 3, "patient")
    assert result.return_value == [3, result.id, 3]
    assert [error.exception_class for error in result.errors] == [ValueError, ValueError]
    assert [name for name, *_ in signals].count("task_finished") == 2


def test_a_deferred_task_waits(kit: SyncKit) -> None:
    at = kit.now() + timedelta(hours=1)
    result = tasks.note.using(run_after=at).enqueue()
    assert finish(kit, result).status == Status.READY
    assert tasks.note.get_result(result.id).task.run_after == at
    kit.advance("1h")
    result.refresh()
    assert result.status == Status.SUCCESSFUL
    assert result.started_at >= at


def test_priority_and_queue_are_those_of_the_task(kit: SyncKit) -> None:
    result = tasks.mail.enqueue()
    job = kit.job(result.id)
    assert (job.task, job.queue, job.priority) == ("tests.apps.django_site.tasks.mail", "mails", 2)
    urgent = tasks.mail.using(priority=100, queue_name="default").enqueue()
    assert (kit.job(urgent.id).queue, kit.job(urgent.id).priority) == ("default", 0)
    assert tasks.mail.get_result(urgent.id).task == tasks.mail.using(priority=100, queue_name="default")
    assert finish(kit, result).status == Status.SUCCESSFUL


def test_priorities_keep_their_order() -> None:
    levels = [to_job_priority(priority) for priority in range(100, -101, -1)]
    assert levels == sorted(levels)
    assert set(levels) == set(range(10))
    assert to_job_priority(0) == 5 and to_job_priority(1) == 4 and to_job_priority(-1) == 6


@pytest.mark.parametrize(
    "options",
    [{"priority": 101}, {"priority": 1.5}, {"queue_name": "unknown"}, {"run_after": datetime(2026, 1, 1)}],
    ids=lambda options: next(iter(options)),
)
def test_what_cannot_be_done_is_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(framework.InvalidTask):
        tasks.note.using(**options)


def test_an_argument_that_is_not_json_is_refused(kit: SyncKit) -> None:
    with pytest.raises(TypeError, match="Unsupported type"):
        tasks.note.enqueue(datetime(2026, 1, 1, tzinfo=UTC))
    kit.run_until_idle()
    assert kit.ran(tasks.note.module_path) == 0


def test_results_of_others_are_not_given(kit: SyncKit) -> None:
    result = tasks.note.enqueue()
    with pytest.raises(Exception, match="does not match"):
        tasks.fail.get_result(result.id)
    native = tasks.in_thread.enqueue_sync()
    for missing in ("nothing", native.id, "01a1ec90-900e-7df7-8e34-78459edd6485"):
        with pytest.raises(framework.TaskResultDoesNotExist):
            tasks.note.get_result(missing)


def test_a_cancelled_task_has_failed(kit: SyncKit) -> None:
    result = tasks.note.using(run_after=kit.now() + timedelta(hours=1)).enqueue()
    app.sync.jobs.cancel(result.id)
    result.refresh()
    assert (result.status, result.attempts) == (Status.FAILED, 0)
    assert result.errors[0].exception_class.__name__ == "JobCancelled"


def test_an_unknown_option_is_told() -> None:
    with pytest.raises(Exception, match="there is no option 'retrys'"):
        DrumbeatBackend("x", {"OPTIONS": {"retrys": 3}})
