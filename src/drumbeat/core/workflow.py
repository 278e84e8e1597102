"""Workflows: jobs that have a name together. A workflow is what its jobs are: nothing is counted in its own record."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec

from drumbeat.core.dependencies import Binding, IfParentFails
from drumbeat.core.field_doc import doc
from drumbeat.core.job_fields import JobState
from drumbeat.ids import JobId

MAX_GRAPH_NODES = 200
"""Larger workflows are shown collapsed, by task."""
MAX_COUNTED_NODES = 10_000
"""Nodes of a workflow that are read to count and to collapse them."""
_LIVE = frozenset({"pending", "waiting", "running"})
FAILED_STATES = frozenset({JobState.DEAD, JobState.CANCELLED, JobState.EXPIRED})


class WorkflowState(StrEnum):
    """One word for a workflow, from what its jobs are."""

    PENDING = "pending"  # none of its jobs has begun
    RUNNING = "running"  # some have; others run, or are to
    WAITING = "waiting"  # all that is left waits, and a dead letter is among the others: somebody must decide
    CANCELLING = "cancelling"  # it was cancelled, and jobs of it still run
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # it has ended, and some of its jobs died, expired or were cancelled
    CANCELLED = "cancelled"


class Workflow(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow, with what its jobs are at this moment."""

    id: str
    name: str
    labels: dict[str, str]
    created_at: datetime
    cancelled_at: Annotated[datetime | None, doc("When somebody cancelled it: nothing new of it starts.")] = None
    counts: Annotated[dict[str, int], doc("Number of its jobs by state; those that wait for parents are waiting.")] = {}
    capped: Annotated[bool, doc("It has more jobs than were counted.")] = False

    @property
    def is_live(self) -> bool:
        """Whether any of its jobs has not ended."""
        return any(self.counts.get(state) for state in _LIVE)

    @property
    def state(self) -> WorkflowState:
        """What people call it."""
        has = {state for state, number in self.counts.items() if number}
        if not has & _LIVE:
            if self.cancelled_at is not None:
                return WorkflowState.CANCELLED
            return WorkflowState.FAILED if has & FAILED_STATES else WorkflowState.SUCCEEDED
        if self.cancelled_at is not None:
            return WorkflowState.CANCELLING
        if not has - {"pending", "waiting"}:
            return WorkflowState.PENDING
        return WorkflowState.WAITING if "dead" in has and not has & {"pending", "running"} else WorkflowState.RUNNING


class GraphNode(msgspec.Struct, frozen=True, kw_only=True):
    """A job of a workflow, as its graph shows it."""

    id: JobId
    task: str
    state: JobState
    blocked_on: str | None = None
    suspended: str | None = None
    run_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    failures: int = 0


class GraphEdge(msgspec.Struct, frozen=True, kw_only=True):
    parent: JobId
    child: JobId
    if_fails: IfParentFails
    binding: Binding


class TaskNode(msgspec.Struct, frozen=True, kw_only=True):
    """All jobs of one task in a large workflow."""

    task: str
    counts: dict[str, int]
    """By state, as `Workflow.counts`."""


class TaskEdge(msgspec.Struct, frozen=True, kw_only=True):
    parent: str
    child: str
    count: int


class WorkflowGraph(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a workflow and what they wait for. Of a large one `nodes` and `edges` are empty, and `tasks` and `task_edges`
    stand for them. Parents outside of the workflow are not nodes, but their edges are listed."""

    nodes: list[GraphNode] = []
    edges: list[GraphEdge] = []
    tasks: list[TaskNode] = []
    task_edges: list[TaskEdge] = []
    capped: bool = False
    """It has more than MAX_COUNTED_NODES jobs; only so many were read, and edges are left out."""
