"""Jobs as Django's framework for tasks shows them: `TaskResult`, with its statuses, errors and workers."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from django.conf import settings
from django.utils import timezone

from drumbeat import errors
from drumbeat.codec import decode_result
from drumbeat.contrib.django.tasks_framework import load_framework
from drumbeat.core.job import Attempt, Failure, Job, JobState, OutcomeKind
from drumbeat.durations import from_us
from drumbeat.ids import JobId, created_us

DEFAULT_ALIAS = "default"
DEFAULT_PRIORITY, MAX_DJANGO_PRIORITY = 0, 100
_STATUSES = {
    JobState.PENDING: "READY",
    JobState.RUNNING: "RUNNING",
    JobState.SUCCEEDED: "SUCCESSFUL",
}
"""Every other state is an end without a result: FAILED."""
_UNCHARGED = frozenset({OutcomeKind.SNOOZED, OutcomeKind.RELEASED, OutcomeKind.SUSPENDED, OutcomeKind.BLOCKED})
"""Ends of runs that are no attempts."""


class TaskChanges(msgspec.Struct, frozen=True, omit_defaults=True):
    """What `task.using(...)` changed for one job and its record does not show, kept with its arguments."""

    backend: str = DEFAULT_ALIAS
    priority: int = DEFAULT_PRIORITY
    run_after: datetime | None = None


def to_job_priority(priority: int) -> int:
    """Of Django's 100 (first) to -100 (last) to ours, 0 (first) to 9 (last): five levels above the default 5, four below."""
    if priority > 0:
        return 4 - (priority - 1) * 5 // MAX_DJANGO_PRIORITY
    return 5 if priority == 0 else 6 + (-priority - 1) * 4 // MAX_DJANGO_PRIORITY


def get_enqueued_at(id: JobId) -> datetime:
    """When the job was enqueued, by the clock of the process that did it."""
    return to_django_time(from_us(created_us(id)))


def to_django_time(at: datetime) -> datetime:
    """Naive in a project with USE_TZ = False, as all its times."""
    return at if settings.USE_TZ else timezone.make_naive(at)


def new_result(task: Any, id: str, args: Sequence[Any], kwargs: dict[str, Any], **fields: Any) -> Any:
    """A TaskResult; READY unless the fields say otherwise."""
    framework = load_framework()
    empty: dict[str, Any] = dict.fromkeys(("enqueued_at", "started_at", "finished_at", "last_attempted_at"))
    empty |= {"status": framework.TaskResultStatus.READY, "errors": [], "worker_ids": []}
    return framework.TaskResult(task=task, id=id, args=args, kwargs=kwargs, backend=task.backend, **{**empty, **fields})


def build_result(task: Any, job: Job, attempts: Iterable[Attempt]) -> Any:
    """The TaskResult of a job, and of its ended runs."""
    framework = load_framework()
    given = msgspec.json.decode(job.args)
    charged = [each for each in attempts if each.outcome not in _UNCHARGED]
    starts = [each.started_at for each in charged if each.started_at is not None]
    workers = [str(each.instance or "") for each in charged]
    if job.state is JobState.RUNNING:
        starts += [] if job.started_at is None else [job.started_at]
        workers.append(str(job.instance or ""))
    failures = [each.error for each in charged if each.error is not None]
    if job.state is JobState.CANCELLED:
        failures.append(Failure("drumbeat.errors.JobCancelled", "it was cancelled"))
    times = [to_django_time(at) for at in starts]
    result = new_result(
        apply_changes(task, job.queue, given.get("task")),
        job.id,
        given["args"],
        given["kwargs"],
        status=framework.TaskResultStatus(_STATUSES.get(job.state, "FAILED")),
        enqueued_at=get_enqueued_at(job.id),
        started_at=times[0] if times else None,
        last_attempted_at=times[-1] if times else None,
        finished_at=None if job.finished_at is None else to_django_time(job.finished_at),
        errors=[to_task_error(failure) for failure in failures],
        worker_ids=workers,
    )
    if job.state is JobState.SUCCEEDED and job.result is not None:
        set_fields(result, _return_value=decode_result(job.result))
    return result


def apply_changes(task: Any, queue: str, changes: object) -> Any:
    """The task as it was when it was enqueued."""
    known = TaskChanges() if changes is None else msgspec.convert(changes, TaskChanges)
    changed = {"backend": known.backend, "priority": known.priority, "run_after": known.run_after, "queue_name": queue}
    different = {name: value for name, value in changed.items() if value != getattr(task, name)}
    return task.using(**different) if different else task


def to_task_error(failure: Failure) -> Any:
    return load_framework().TaskError(
        exception_class_path=_class_path(failure.type),
        traceback=failure.traceback or f"{failure.type}: {failure.message}\n",
    )


def _class_path(name: str) -> str:
    """A path that can be imported: failures name built-in exceptions, and our own reasons, without a module."""
    if "." in name:
        return name
    if hasattr(builtins, name):
        return f"builtins.{name}"
    return f"{errors.__name__}.{name if hasattr(errors, name) else errors.JobFailed.__name__}"


def set_fields(result: Any, **fields: Any) -> None:
    """A TaskResult is frozen for its users; those who run the task bring it up to date."""
    for name, value in fields.items():
        object.__setattr__(result, name, value)
