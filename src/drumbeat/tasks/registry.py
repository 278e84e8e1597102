"""All tasks of one app, by name. Workers call only what is registered here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from drumbeat.codec import JsonCodec
from drumbeat.core.limits import LinePolicy
from drumbeat.errors import ConfigError, UnknownTask
from drumbeat.names import check_name

from .around import Around
from .limits import DeclaredQueue
from .line_policies import check_task_in_queue
from .task import Task


class Registered(Protocol):
    """A task, room or declaration in the code of a program."""

    @property
    def name(self) -> str: ...

    @property
    def function(self) -> Callable[..., Any]: ...

    @property
    def source_location(self) -> str: ...


ItemT = TypeVar("ItemT", bound=Registered)


def add_unique(kind: str, items: dict[str, ItemT], item: ItemT) -> None:
    """Refuse a second item of the same name: which of the two is meant would depend on the order of imports.

    From the same place it is the same one, of a module that was loaded again. Code of a notebook or a shell has no place of its
    own: there the newer one is meant.
    """
    if (other := items.get(item.name)) is not None and not _is_registered_again(other, item):
        raise ConfigError(
            f"there are two {kind} named {item.name!r}: one at {other.source_location}, one at {item.source_location}; "
            "give one of them another name=",
            "name",
        )
    items[item.name] = item


def _is_registered_again(other: Registered, item: Registered) -> bool:
    """The same function twice is a mistake: code that runs again makes a new one."""
    one, two = other.source_location, item.source_location
    is_same_place = one == two or (_is_interactive(one) and _is_interactive(two))
    return is_same_place and other.function is not item.function


def _is_interactive(source_location: str) -> bool:
    """Python's shell has <stdin>, older IPythons <ipython-input-...>, ipykernel a file of its own in a temporary folder."""
    return source_location.startswith("<") or "ipykernel_" in source_location


class Registry:
    def __init__(self) -> None:
        self._tasks: dict[str, Task[..., Any]] = {}
        self._more_queues: set[str] = set()
        self._arounds: list[Around] = []
        self.declared_policies: dict[str, DeclaredQueue] = {}
        """The policies of queues that the code declares."""
        self.queue_policies: dict[str, DeclaredQueue] = {}
        """Those of them that say something."""
        self.codec = JsonCodec()
        """How arguments and results are stored."""

    def declare_queues(self, queues: Iterable[str]) -> None:
        """Let workers take these as well, besides those of the tasks."""
        self._more_queues.update(check_name("queue", queue, ConfigError) for queue in queues)

    def add(self, task: Task[..., Any]) -> None:
        if task.runs_user_code:
            for around in self._arounds:
                around.check_handler(task.name, is_async=task.is_async)
        if (queue := self.queue_policies.get(task.options.queue)) is not None:
            check_task_in_queue(task, queue)
        add_unique("tasks", self._tasks, task)

    def add_queue(self, queue: DeclaredQueue) -> None:
        """Declare the policy of a queue."""
        other = self.declared_policies.get(queue.name)
        if other is not None and other.source_location != queue.source_location:
            raise ConfigError(
                f"queue {queue.name!r} is declared twice: at {other.source_location} and at {queue.source_location}; "
                "say all of it in one place",
                "name",
            )
        for task in self:
            check_task_in_queue(task, queue)
        self.declared_policies[queue.name] = queue
        self.queue_policies.pop(queue.name, None)
        if queue.policy != LinePolicy():
            self.queue_policies[queue.name] = queue

    @property
    def arounds(self) -> Sequence[Around]:
        """What surrounds handlers, the outermost first."""
        return self._arounds

    def add_around(self, around: Around) -> None:
        for task in self:
            if task.runs_user_code:
                around.check_handler(task.name, is_async=task.is_async)
        for position, other in enumerate(self._arounds):
            is_reloaded = other.name == around.name and _is_registered_again(other, around)
            if is_reloaded or other.function is around.function:
                self._arounds[position] = around
                return
        self._arounds.append(around)

    def find(self, name: str) -> Task[..., Any] | None:
        return self._tasks.get(name)

    def __getitem__(self, name: str) -> Task[..., Any]:
        """The task of this name.

        Raises:
            UnknownTask: there is none; the message may suggest a similar name.
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
        """The queues that tasks use, or may use."""
        return frozenset(self._more_queues).union(task.options.queue for task in self)

    def signatures(self) -> dict[str, str]:
        """Name and signature hash of each task, as an instance publishes them."""
        return {name: task.signature.hash for name, task in self._tasks.items()}
