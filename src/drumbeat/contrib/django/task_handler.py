"""What a worker calls for a task of Django's framework: the function with its arguments and context, between the signals.

task_started  ->  function(*args, **kwargs)  ->  task_finished, when it succeeded or was the last attempt
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from datetime import datetime
from typing import Any

from drumbeat.context import RunningJob, current_job
from drumbeat.contrib.django.task_result import (
    apply_changes,
    get_enqueued_at,
    new_result,
    set_fields,
    to_django_time,
    to_task_error,
)
from drumbeat.contrib.django.tasks_framework import load_framework
from drumbeat.core.job import OutcomeKind
from drumbeat.durations import from_us
from drumbeat.tasks import Task
from drumbeat.worker import result as results

Handler = Callable[..., Any]
FINAL = frozenset({OutcomeKind.DEAD, OutcomeKind.CANCELLED})


class TaskHandler:
    """Runs the jobs of one task. `task` is as its decorator made it, `sender` the class of its backend."""

    def __init__(self, task: Any, sender: type, now_us: Callable[[], int]) -> None:
        self.task = task
        self._now_us = now_us
        self.find_policy: Callable[[], results.RetryPolicy]
        """How its failures are retried. Set once it is registered."""
        self._sender = sender
        self._framework = load_framework()

    def build(self) -> Handler:
        """The function to register: its parameters are how the arguments are stored."""

        def handle(args: list[Any], kwargs: dict[str, Any], task: dict[str, Any] | None = None) -> Any:
            return self._run(args, kwargs, task)

        async def handle_async(args: list[Any], kwargs: dict[str, Any], task: dict[str, Any] | None = None) -> Any:
            return await self._run_async(args, kwargs, task)

        handler: Any = handle_async if inspect.iscoroutinefunction(self.task.func) else handle
        for name in ("__name__", "__qualname__", "__module__", "__doc__"):
            setattr(handler, name, getattr(self.task.func, name))
        handler.django_handler = self
        return handler  # type: ignore[no-any-return]

    def _run(self, args: list[Any], kwargs: dict[str, Any], changes: object) -> Any:
        running, result = self._begin(args, kwargs, changes)
        self._framework.task_started.send_robust(self._sender, task_result=result)
        try:
            value = self._framework.normalize_json(
                self.task.func(*self._context(result), *result.args, **result.kwargs)
            )
        except BaseException as error:
            if self._fail(running, result, error):
                self._framework.task_finished.send_robust(self._sender, task_result=result)
            raise
        self._succeed(result, value)
        self._framework.task_finished.send_robust(self._sender, task_result=result)
        return value

    async def _run_async(self, args: list[Any], kwargs: dict[str, Any], changes: object) -> Any:
        running, result = self._begin(args, kwargs, changes)
        await self._framework.task_started.asend_robust(self._sender, task_result=result)
        try:
            returned = await self.task.func(*self._context(result), *result.args, **result.kwargs)
            value = self._framework.normalize_json(returned)
        except BaseException as error:
            if self._fail(running, result, error):
                await self._framework.task_finished.asend_robust(self._sender, task_result=result)
            raise
        self._succeed(result, value)
        await self._framework.task_finished.asend_robust(self._sender, task_result=result)
        return value

    def _begin(self, args: list[Any], kwargs: dict[str, Any], changes: object) -> tuple[RunningJob, Any]:
        running = current_job()
        started_at = to_django_time(from_us(running.started_us))
        result = new_result(
            apply_changes(self.task, running.queue, changes),
            running.id,
            args,
            kwargs,
            status=self._framework.TaskResultStatus.RUNNING,
            enqueued_at=get_enqueued_at(running.id),
            started_at=started_at,
            last_attempted_at=started_at,
            # Of earlier attempts only their number is known here.
            worker_ids=["" for _ in range(1, running.attempt)] + [str(running.instance)],
        )
        return running, result

    def _now(self) -> datetime:
        return to_django_time(from_us(self._now_us()))

    def _context(self, result: Any) -> list[Any]:
        return [self._framework.TaskContext(task_result=result)] if self.task.takes_context else []

    def _succeed(self, result: Any, value: Any) -> None:
        set_fields(
            result, status=self._framework.TaskResultStatus.SUCCESSFUL, finished_at=self._now(), _return_value=value
        )

    def _fail(self, running: RunningJob, result: Any, error: BaseException) -> bool:
        """Record the error; whether the job ends with it, by the worker's own rule."""
        reason = running.aborted.reason
        is_abort = isinstance(error, asyncio.CancelledError) and reason is not None
        policy = self.find_policy()
        ended = results.from_abort(reason) if is_abort else results.from_exception(error, reason, policy.retry_filter)
        outcome = results.to_outcome(
            running._claimed,
            policy,
            ended,
            instance=running.instance,
            started_at=running.started_us,
            finished_at=running.started_us,
        )
        result.errors.append(to_task_error(ended.error or results.describe_failure(error)))
        set_fields(result, status=self._framework.TaskResultStatus.FAILED, finished_at=self._now())
        return outcome is not None and outcome.kind in FINAL


def find_handler(task: Task[..., Any] | None) -> TaskHandler | None:
    """Of a registered task; None: it is none of Django's framework."""
    found: TaskHandler | None = getattr(getattr(task, "function", None), "django_handler", None)
    return found
