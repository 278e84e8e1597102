"""Django's framework for tasks: `django.tasks` of Django 6, else the backport `django_tasks`, which has the same parts.

Neither need be installed: `load_framework` is called by those who use a backend for it.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

from django.core.exceptions import ImproperlyConfigured


class TasksFramework(NamedTuple):
    """What a backend needs of it."""

    package: str
    BaseTaskBackend: Any
    TaskContext: Any
    TaskError: Any
    TaskResult: Any
    TaskResultStatus: Any
    InvalidTask: type[Exception]
    TaskResultDoesNotExist: type[Exception]
    task_enqueued: Any
    task_started: Any
    task_finished: Any
    normalize_json: Any


@cache
def load_framework() -> TasksFramework:
    """
    Raises:
        ImproperlyConfigured: there is none.
    """
    package = "django.tasks" if find_spec("django.tasks") is not None else "django_tasks"
    if find_spec(package) is None:
        raise ImproperlyConfigured("a backend for tasks needs Django 6.0 or newer, or `pip install django-tasks`")
    base, exceptions, signals = (import_module(f"{package}.{name}") for name in ("base", "exceptions", "signals"))
    json = import_module("django.utils.json" if package == "django.tasks" else "django_tasks.utils")
    return TasksFramework(
        package=package,
        BaseTaskBackend=import_module(f"{package}.backends.base").BaseTaskBackend,
        TaskContext=base.TaskContext,
        TaskError=base.TaskError,
        TaskResult=base.TaskResult,
        TaskResultStatus=base.TaskResultStatus,
        InvalidTask=getattr(exceptions, "InvalidTask", None) or exceptions.InvalidTaskError,
        TaskResultDoesNotExist=exceptions.TaskResultDoesNotExist,
        task_enqueued=signals.task_enqueued,
        task_started=signals.task_started,
        task_finished=signals.task_finished,
        normalize_json=json.normalize_json,
    )
