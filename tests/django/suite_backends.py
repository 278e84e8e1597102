"""Our backend in the place of Django's own two, for Django's tests of backends (`django_suite.py`)."""

from typing import Any

import msgspec

from drumbeat.contrib.django.backend import DrumbeatBackend, call
from drumbeat.core.job import NewJob
from drumbeat.testing import Kit

KIT: list[Kit] = []
"""The kit in which the suite runs."""
DAY_US = 86_400_000_000


class StoredBackend(DrumbeatBackend):
    """As DummyBackend: what is enqueued is kept, and not run."""

    results: list[Any] = []  # noqa: RUF012 - Django makes a backend for each thread

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        self.results.append(result)
        return result

    def _build_job(self, task: Any, result: Any) -> NewJob:
        return msgspec.structs.replace(super()._build_job(task, result), delay=DAY_US)

    def clear(self) -> None:
        self.results.clear()


class FinishedBackend(DrumbeatBackend):
    """As ImmediateBackend: what is enqueued has been run when the call returns."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        call(KIT[0].run_until_idle())
        result.refresh()
        return result
