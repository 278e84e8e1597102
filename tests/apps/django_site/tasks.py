"""Tasks: of Drumbeat, which say by which connection they reached the database, and of Django's own framework."""

from importlib import import_module
from typing import Any

import django
from asgiref.sync import sync_to_async
from django.db import connection

from drumbeat import Backoff
from drumbeat.contrib.django import app

# Neither has types here, or not both.
task: Any = import_module("django.tasks" if django.VERSION >= (6,) else "django_tasks").task

QUICKLY = Backoff(base=0.01, cap=0.05)


def backend() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


@app.task(backoff=QUICKLY)
def in_thread() -> int:
    return backend()


@app.task(backoff=QUICKLY)
async def on_loop() -> int:
    return int(await sync_to_async(backend)())


@app.task(backoff=QUICKLY, pool="process")
def in_process() -> int:
    return backend()


@task  # type: ignore[untyped-decorator]
def note(*args: object, **kwargs: object) -> list[object]:
    return [list(args), kwargs]


@task  # type: ignore[untyped-decorator]
async def note_async(*args: object) -> list[object]:
    return list(args)


@task  # type: ignore[untyped-decorator]
def fail(message: str) -> None:
    raise ValueError(message)


@task  # type: ignore[untyped-decorator]
def leave() -> None:
    raise SystemExit("it leaves")


@task  # type: ignore[untyped-decorator]
def return_function() -> object:
    return note


@task(takes_context=True)  # type: ignore[untyped-decorator]
def attempt(context: object, succeed_at: int) -> list[object]:
    number = context.attempt  # type: ignore[attr-defined]
    if number < succeed_at:
        raise ValueError(f"attempt {number}")
    return [number, context.task_result.id, len(context.task_result.worker_ids)]  # type: ignore[attr-defined]


@task(queue_name="mails", priority=50)  # type: ignore[untyped-decorator]
def mail() -> None:
    return None
