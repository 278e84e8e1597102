"""All tasks of one app, by name. Nothing is called but what is registered here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drumbeat.errors import ConfigError, UnknownTask

from .task import Task


class Registry:
    """A second task of the same name is refused: which of the two a job means would depend on the order of imports."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task[..., Any]] = {}

    def add(self, task: Task[..., Any]) -> None:
        other = self._tasks.get(task.name)
        if other is not None:
            raise ConfigError(
                f"there are two tasks named {task.name!r}: one at {other.source_location}, one at {task.source_location}; "
                "give one of them another name=",
                "name",
            )
        self._tasks[task.name] = task

    def find(self, name: str) -> Task[..., Any] | None:
        return self._tasks.get(name)

    def __getitem__(self, name: str) -> Task[..., Any]:
        """The task of this name.

        Raises:
            UnknownTask: there is none; it may name a near one.
        """
        try:
            return self._tasks[name]
        except KeyError:
            raise UnknownTask(name, self._tasks) from None

    def __iter__(self) -> Iterator[Task[..., Any]]:
        return iter(self._tasks.values())

    def __len__(self) -> int:
        return len(self._tasks)

    def queues(self) -> frozenset[str]:
        """The queues that tasks name."""
        return frozenset(task.queue for task in self)

    def signatures(self) -> dict[str, str]:
        """Name and signature's hash of each: what an instance tells the others that it knows."""
        return {name: task.signature.hash for name, task in self._tasks.items()}
