"""Workflows as rows of the SQL engines, and their graphs as people see them. Pure."""

from collections.abc import Iterable

import msgspec

from drumbeat.core.dependencies import Binding, IfParentFails
from drumbeat.core.workflow import GraphEdge, GraphNode, TaskEdge, TaskNode, Workflow
from drumbeat.durations import from_us
from drumbeat.ids import JobId
from drumbeat.store.malformed import RecordKind, drop_row, repair_names
from drumbeat.store.records import row_of, to_datetime_or_none


class WorkflowRow(msgspec.Struct, frozen=True, array_like=True):
    id: str
    name: str
    labels: dict[str, str]
    created_at: int
    cancelled_at: int | None

    def to_record(self, counts: "Iterable[StateCountRow]", *, capped: bool) -> Workflow:
        states: dict[str, int] = {}
        for row in counts:
            states[row.state] = states.get(row.state, 0) + row.number
        return Workflow(
            id=self.id,
            name=self.name,
            labels=self.labels,
            created_at=from_us(self.created_at),
            cancelled_at=to_datetime_or_none(self.cancelled_at),
            counts=states,
            capped=capped,
        )


class StateCountRow(msgspec.Struct, frozen=True, array_like=True):
    """How many jobs of a task are in a state ("waiting": for parents)."""

    task: str
    state: str
    number: int


class GraphEdgeRow(msgspec.Struct, frozen=True, array_like=True):
    parent: JobId
    child: JobId
    if_fails: IfParentFails
    binding: Binding

    def to_record(self) -> GraphEdge:
        return GraphEdge(**msgspec.structs.asdict(self))


class TaskEdgeRow(msgspec.Struct, frozen=True, array_like=True):
    parent: str
    child: str
    count: int

    def to_record(self) -> TaskEdge:
        return TaskEdge(**msgspec.structs.asdict(self))


WORKFLOWS = RecordKind("workflow", WorkflowRow, repair=repair_names)
STATE_COUNTS = RecordKind("job", StateCountRow, id="task", repair=drop_row)
GRAPH_NODES = RecordKind("job", row_of(GraphNode), repair=repair_names)
GRAPH_EDGES = RecordKind("edge", GraphEdgeRow, id="child", repair=drop_row)
TASK_EDGES = RecordKind("edge", TaskEdgeRow, id="child", repair=drop_row)


def task_nodes(counts: Iterable[StateCountRow]) -> list[TaskNode]:
    """By task, in the order of names."""
    tasks: dict[str, dict[str, int]] = {}
    for row in counts:
        tasks.setdefault(row.task, {})[row.state] = row.number
    return [TaskNode(task=task, counts=tasks[task]) for task in sorted(tasks)]
