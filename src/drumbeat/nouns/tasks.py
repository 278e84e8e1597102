"""`app.tasks`: the functions that jobs are calls of."""

from __future__ import annotations

import builtins
import inspect
from typing import Any

import msgspec

from drumbeat.client import Client
from drumbeat.errors import UnknownTask
from drumbeat.model.job import TaskStats
from drumbeat.tasks import Task


class TaskInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A task as people see it: what the store knows of its jobs, and what this program knows of its function."""

    name: str
    pending: int = 0
    running: int = 0
    succeeded: int = 0
    """Those that history still has."""
    dead: int = 0
    cancelled: int = 0
    registered: bool = False
    """Whether this program has it; what follows is None if not."""
    call: str | None = None
    """How it is called: `charge(customer: int, amount: Decimal) -> str`."""
    place: str | None = None
    """file:line."""
    queue: str | None = None
    priority: int | None = None
    retries: int | None = None
    timeout: float | None = None
    """Seconds; None also if there is no limit."""
    pool: str | None = None
    batch: int | None = None
    on_dead: str | None = None


class Tasks:
    """Look at tasks."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def list(self) -> builtins.list[TaskInfo]:
        """Every task that this program has, that has jobs, or that a living instance knows, by name."""
        store = await self._client.store()
        stats = {each.name: each for each in await store.inspect.tasks()}
        names = stats.keys() | {task.name for task in self._client.registry}
        return [_info(name, stats.get(name), self._client.registry.find(name)) for name in sorted(names)]

    async def show(self, name: str) -> TaskInfo:
        """One task.

        Raises:
            UnknownTask: nobody has heard of it.
        """
        known = {info.name: info for info in await self.list()}
        if name not in known:
            raise UnknownTask(name, known)
        return known[name]


def _info(name: str, stats: TaskStats | None, task: Task[..., Any] | None) -> TaskInfo:
    facts: dict[str, Any] = {} if stats is None else msgspec.structs.asdict(stats)
    if task is not None:
        facts |= {
            "registered": True,
            "call": f"{name}{inspect.signature(task.function)}",
            "place": task.place,
            "queue": task.queue,
            "priority": task.options.priority,
            "retries": task.retries,
            "timeout": None if task.timeout_us is None else task.timeout_us / 1_000_000,
            "pool": task.pool,
            "batch": task.batch,
            "on_dead": None if task.on_dead_task is None else task.on_dead_task.name,
        }
    return TaskInfo(**{"name": name, **facts})
