"""Which policy stands over a job: that of its task, else that of its queue. What the two may not say together, and what a
worker declares of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from drumbeat.core.lanes import is_limited, lane_name, split_lane
from drumbeat.core.limits import LineDeclaration, LineInfo, LinePolicy
from drumbeat.errors import ConfigError, InvalidArguments
from drumbeat.names import ErrorClass

from .limits import DeclaredQueue

if TYPE_CHECKING:
    from .task import Task

DEFAULT_PRIORITY = 5


def check_task_in_queue(task: Task[..., Any], queue: DeclaredQueue) -> None:
    """Refuse a task that has no policy of its own and that cannot stand under that of its queue.

    Raises:
        ConfigError: names both places.
    """
    if task.options.queue != queue.name or task.options.policy is not None or not queue.policy.order:
        return
    option = "batch" if task.options.batch is not None else "priority"
    if task.options.batch is not None or task.options.priority != DEFAULT_PRIORITY:
        raise ConfigError(
            f"{option}= of task {task.name!r}, at {task.source_location}, and order= of queue {queue.name!r}, at "
            f"{queue.source_location}, contradict each other: in order, the jobs of a group run one after the other, as they "
            "were enqueued; leave out one of them",
            option,
        )


def check_overrides(
    task: Task[..., Any],
    *,
    queue: str | None,
    priority: int | None,
    error: ErrorClass = InvalidArguments,
) -> None:
    """Refuse what a job of this task cannot be given; None: as the task says."""
    own, queues = task.options.policy, task.queue_policies
    if own is not None and queue is not None and queue != task.options.queue:
        raise error(
            f"queue {queue!r} contradicts the limits or order of task {task.name!r}, at {task.source_location}: they count its "
            f"jobs in queue {task.options.queue!r}; give it its queue there",
            "queue",
        )
    name = task.options.queue if queue is None else queue
    policy = own if own is not None else queues[name].policy if name in queues else None
    if policy is not None and policy.order and priority is not None and priority != task.options.priority:
        at = task.source_location if own is not None else queues[name].source_location
        holder = f"task {task.name!r}" if own is not None else f"queue {name!r}"
        raise error(
            f"priority={priority} contradicts order= of {holder}, at {at}: the jobs of a group run in the order of enqueue; "
            "leave out one of them",
            "priority",
        )


def find_line(task: Task[..., Any], queue: str) -> str | None:
    """The line of the jobs of a task in this queue; None: they stand under no policy. A task's own holds in its own queue:
    nothing can be enqueued elsewhere, and what was before it had a policy runs where it is."""
    if task.options.policy is not None and queue == task.options.queue:
        return task.name
    return "" if queue in task.queue_policies else None


def find_lane(task: Task[..., Any], queue: str, group: str) -> str:
    """The lane of a job of this group; '': it stands under no policy."""
    line = find_line(task, queue)
    return "" if line is None else lane_name(line, group)


def declare_lines(
    tasks: Iterable[Task[..., Any]], declared: Mapping[str, DeclaredQueue], queues: Collection[str]
) -> list[LineDeclaration]:
    """What a worker that serves these queues declares: their policies, and those of its tasks."""
    lines = [
        LineDeclaration(queue=name, line="", policy=each.policy) for name, each in declared.items() if name in queues
    ]
    for task in tasks:
        queue, policy = task.options.queue, task.options.policy
        if policy is None or queue not in queues:
            continue
        if queue in declared:
            of_queue = declared[queue].policy
            policy = msgspec.structs.replace(policy, fair=of_queue.fair, weights=of_queue.weights)
        lines.append(LineDeclaration(queue=queue, line=task.name, policy=policy))
    return lines


class LineView:
    """What a worker knows of lines in the store; renewed by whoever declares them."""

    def __init__(self, declared: Iterable[LineDeclaration]) -> None:
        self.declared = {(each.queue, each.line): each.policy for each in declared}
        self._policies = dict(self.declared)
        """What holds now: people may have changed it."""
        self._outdated: set[tuple[str, str]] = set()

    def update(self, lines: Iterable[LineInfo]) -> list[tuple[str, str]]:
        """The lines of the store. Returns those that are declared otherwise there than here, and were not before."""
        found = {(each.queue, each.line): each for each in lines}
        self._policies = {place: each.policy for place, each in found.items()}
        outdated = {
            place for place, policy in self.declared.items() if place in found and found[place].declared != policy
        }
        new, self._outdated = sorted(outdated - self._outdated), outdated
        return new

    def is_outdated(self, queue: str, line: str) -> bool:
        """A newer version of the program declares this line otherwise."""
        return (queue, line) in self._outdated

    def is_limited(self, queue: str, lane: str) -> bool:
        """Whether jobs of this lane are claimed for free slots only, as far as is known."""
        policy: LinePolicy | None = self._policies.get((queue, split_lane(lane)[0]))
        return policy is None or is_limited(policy, self._policies.get((queue, "")))
