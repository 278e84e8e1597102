"""A backend of Django's framework for tasks: `@task` functions become tasks of the project's app, and run by its workers.

    TASKS = {"default": {"BACKEND": "drumbeat.contrib.django.backend.DrumbeatBackend"}}

Each function is a task of its own, named after its path, with its own line on the dashboard. OPTIONS has what `@app.task(...)`
takes, for all of them; without it a failed task is not tried again, as the framework's users expect. Django makes a backend for
each thread, so whatever must be kept is in the app.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec
from django.apps import apps
from django.core import checks
from django.db import connections
from django.utils import timezone

from drumbeat.app import Drumbeat
from drumbeat.contrib.django.project import app as default_app
from drumbeat.contrib.django.project import find_job_database, load_project_app
from drumbeat.contrib.django.task_handler import TaskHandler, find_handler
from drumbeat.contrib.django.task_result import TaskChanges, build_result, get_enqueued_at, new_result, to_job_priority
from drumbeat.contrib.django.tasks_framework import load_framework
from drumbeat.core.job import NewJob
from drumbeat.errors import ConfigError, InvalidArguments, JobExpired, JobNotFound
from drumbeat.sync_loop import SYNC_LOOP
from drumbeat.tasks import Task
from drumbeat.tasks.registered_function import source_location_of
from drumbeat.worker.task_spec import TaskSpec

T = TypeVar("T")
_framework = load_framework()
_Base: Any = _framework.BaseTaskBackend
TASK_OPTIONS = ("retries", "backoff", "timeout", "pool", "on_crash")


class DrumbeatBackend(_Base):  # type: ignore[misc]
    """Stores tasks as jobs; those of a worker are in `task_handler.py`."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self._app = find_app()
        self._task_options = {"retries": 0} | {
            name: value for name, value in self.options.items() if name in TASK_OPTIONS
        }
        if unknown := sorted(set(self.options) - {*TASK_OPTIONS, "database"}):
            raise ConfigError(
                f"TASKS[{alias!r}]: there is no option {unknown[0]!r}; use {', '.join((*TASK_OPTIONS, 'database'))}"
            )
        self._app._internals.registry.declare_queues(self.queues)

    @property
    def app(self) -> Drumbeat:
        return self._app

    def validate_task(self, task: Any) -> None:
        """As Django's, and the function is known to workers from now on."""
        super().validate_task(task)
        self._register(task)

    def _register(self, task: Any) -> Task[..., Any]:
        internals = self._app._internals
        found = internals.registry.find(task.module_path)
        known = find_handler(found)
        if found is not None and known is not None and known.task.func is task.func:
            return found
        try:
            options: Any = {"name": task.module_path, "priority": to_job_priority(int(task.priority))}
            decorate = self._app.task(**options, queue=task.queue_name, **self._task_options)
            handler = TaskHandler(task, type(self), lambda: internals.clock.now_us())
            made: Task[..., Any] = decorate(handler.build())
        except ConfigError as error:
            raise _framework.InvalidTask(str(error)) from error
        made.source_location = source_location_of(task.func)
        handler.find_policy = lambda: TaskSpec(made, internals.settings)
        return made

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Store the call as a job. With a database of the site's own that is part of the current transaction, if there is one.

        Raises:
            InvalidTask: this backend cannot run it. TypeError: an argument is not JSON.
        """
        self.validate_task(task)
        result = new_result(task, "", args, kwargs)
        job = self._build_job(task, result)
        database = self.options.get("database") or self._database()
        client = self._app._internals.client
        if database is not None:
            client.enqueue_in_transaction_sync(connections[database], [job])
        else:
            call(client.enqueue(job))
        object.__setattr__(result, "id", job.id)
        object.__setattr__(result, "enqueued_at", get_enqueued_at(job.id))
        _framework.task_enqueued.send_robust(type(self), task_result=result)
        return result

    def _database(self) -> str | None:
        return find_job_database() if self._app is default_app else None

    def _build_job(self, task: Any, result: Any) -> NewJob:
        run_after = task.run_after
        if run_after is not None and timezone.is_naive(run_after):
            run_after = timezone.make_aware(run_after)
        changes = TaskChanges(backend=task.backend, priority=int(task.priority), run_after=task.run_after)
        try:
            bound = self._register(task).using(
                queue=task.queue_name,
                priority=to_job_priority(int(task.priority)),
                at=run_after,
                retries=self._task_options["retries"],
                timeout=self._task_options.get("timeout"),
            )
            return bound.bind(result.args, result.kwargs, msgspec.to_builtins(changes) or None)
        except InvalidArguments as error:
            raise _framework.InvalidTask(str(error)) from error

    def get_result(self, result_id: str) -> Any:
        """
        Raises:
            TaskResultDoesNotExist: no job has this id, or it is no job of this framework.
        """
        jobs = self._app.jobs
        try:
            job = call(jobs.show(str(result_id)))
            attempts = call(jobs.attempts(job.id))
        except (JobNotFound, JobExpired) as error:
            raise _framework.TaskResultDoesNotExist(result_id) from error
        handler = find_handler(self._app._internals.registry.find(job.task))
        if handler is None:
            raise _framework.TaskResultDoesNotExist(
                f"{result_id} is a job of {job.task!r}, which no module of this process has as a task of {_framework.package}"
            )
        return build_result(handler.task, job, attempts)

    def check(self, **kwargs: Any) -> Iterable[checks.CheckMessage]:
        if apps.is_installed("drumbeat.contrib.django"):
            return []
        hint = 'add "drumbeat.contrib.django" to INSTALLED_APPS'
        return [checks.Error("the backend of tasks has no workers", hint=hint, id="drumbeat.E003")]


def find_app() -> Drumbeat:
    """A wrong setting is told by the system check, and by the first use: here it would hide the check behind a traceback."""
    try:
        return load_project_app()
    except ConfigError:
        return default_app


def call(work: Coroutine[Any, Any, T]) -> T:
    """Wait for this, also on the thread of an event loop: Django has sync methods (`result.refresh()`) that async code may
    call. They block its loop, not the one that answers."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return SYNC_LOOP.run("a task of Django", work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(SYNC_LOOP.run, "a task of Django", work).result()
