"""Workflows: jobs that have a name together. A workflow is what its jobs are: nothing is counted in its own record."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec

from drumbeat.core.dependencies import Binding, IfParentFails
from drumbeat.core.field_doc import doc
from drumbeat.core.job import JobState, PendingView
from drumbeat.ids import JobId

MAX_GRAPH_NODES = 200
"""Larger workflows are shown collapsed, by task."""
MAX_COUNTED_NODES = 10_000
"""Nodes of a workflow that are read to count and to collapse them."""
_LIVE = frozenset({"pending", "waiting", "running"})
FAILED_STATES = frozenset({JobState.DEAD, JobState.CANCELLED, JobState.EXPIRED})


class WorkflowState(StrEnum):
    """One word for a workflow, from what its jobs are."""

    PENDING = "pending"  # none of its jobs runs or has ended
    RUNNING = "running"  # some do or have; others are to run
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
    blocked_on: Annotated[str | None, doc("parents: it waits for other jobs.")] = None
    suspended: Annotated[str | None, doc("sleep, or signal: and the name of the one that it waits for.")] = None
    run_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    failures: int = 0

    def view(self, now: datetime) -> JobState | PendingView:
        """As `Job.view`; crashes alone do not show."""
        if self.state is not JobState.PENDING:
            return self.state
        if self.blocked_on is not None:
            return PendingView.WAITING
        if self.run_at is None or self.run_at <= now:
            return PendingView.READY
        return PendingView.RETRYING if self.failures else PendingView.SCHEDULED


class GraphEdge(msgspec.Struct, frozen=True, kw_only=True):
    """That a job waits for another one."""

    parent: JobId
    child: JobId
    if_fails: Annotated[IfParentFails, doc("What becomes of the child when the parent fails.")]
    binding: Annotated[Binding, doc("What of the parent is an argument of the child; empty: nothing.")]


class TaskNode(msgspec.Struct, frozen=True, kw_only=True):
    """All jobs of one task in a large workflow."""

    task: str
    counts: Annotated[dict[str, int], doc("By state, as those of a workflow.")]


class TaskEdge(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of a task wait for jobs of another one, or of the same."""

    parent: str
    child: str
    count: Annotated[int, doc("Dependencies: pairs of jobs.")]


class WorkflowGraph(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a workflow and what they wait for. Of a large one `nodes` and `edges` are empty, and `tasks` and `task_edges`
    stand for them. Parents outside of the workflow are not nodes, but their edges are listed."""

    nodes: list[GraphNode] = []
    edges: list[GraphEdge] = []
    tasks: list[TaskNode] = []
    task_edges: list[TaskEdge] = []
    capped: Annotated[bool, doc("It has more jobs than are read (10,000); edges are left out.")] = False
