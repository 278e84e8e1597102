"""Our backend in the place of Django's own two, for Django's tests of backends (`django_suite.py`)."""

from typing import Any

from drumbeat.contrib.django.backend import DrumbeatBackend, call
from drumbeat.testing import Kit

KIT: list[Kit] = []
"""The kit in which the suite runs. It has no worker: those of `StoredBackend` must not run."""


async def work(kit: Kit) -> None:
    """Everything that is due, by a worker that ends then."""
    kit._worker.start()
    try:
        await kit.run_until_idle()
    finally:
        await kit._worker.stop()


class StoredBackend(DrumbeatBackend):
    """As DummyBackend: what is enqueued is kept, and not run."""

    results: list[Any] = []  # noqa: RUF012 - Django makes a backend for each thread

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        self.results.append(result)
        return result

    def clear(self) -> None:
        self.results.clear()


class FinishedBackend(DrumbeatBackend):
    """As ImmediateBackend: what is enqueued has been run when the call returns."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        call(work(KIT[0]))
        result.refresh()
        return result
