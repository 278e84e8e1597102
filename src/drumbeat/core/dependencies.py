"""Dependencies between jobs: what the end of a parent does to its children. Pure.

    parent --ends, or is replayed--> release (in the same step)
                                        |
                                     advance --> the child of each edge: met, cancelled, revived, or left as it is;
                                                 with no open parents it is due

An edge is made with its child and never changed. The step that ends a parent leaves one `release` for it, whoever ends it;
`advance` (store.protocol.DependencyStore) follows its edges afterwards, the oldest release first, at most MAX_ADVANCED edges
at a time. So that children are to be released is on record with the end, and a crash between the two loses nothing.

The engines apply these rules inside the store; tests/contract/test_rules_dependencies.py compares every engine with them over
all combinations.
"""

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import assert_never

import msgspec

from drumbeat.core.claim import WriteStatus
from drumbeat.core.edge import Binding as Binding
from drumbeat.core.edge import IfParentFails as IfParentFails
from drumbeat.core.edge import NewEdge as NewEdge
from drumbeat.core.job import AddResult, Failure, JobState, NewJob
from drumbeat.core.step import NewStep
from drumbeat.ids import InstanceId, JobId

BLOCKED_ON_PARENTS = "parents"
"""`blocked_on` of a job that has open parents. One value for all: workers ask the store for the distinct ones."""
MAX_ADVANCED = 1_000
"""Edges that one call of `advance` follows."""


class NewWorkflow(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow to be stored with its jobs, which name its id. The id is the client's, so that a repeated call is the same
    one."""

    id: str
    name: str
    labels: dict[str, str] = {}
    unique: bool = False
    """Refused if another workflow of this name is live: it has a pending or running job."""


class NewGraph(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs to be stored together with the edges to their parents: all or none."""

    jobs: Sequence[NewJob]
    edges: Sequence[NewEdge]
    """Each child is one of `jobs`; its edges follow each other. Parents are among `jobs` or exist. No cycles: the caller
    checks."""
    workflow: NewWorkflow | None = None
    """Stored unless it exists. (Jobs that a handler adds to its own workflow only name its id.)"""
    instance: InstanceId | None = None
    step: NewStep | None = None
    """With `instance`: stored only while this claim is current, with the record of this step, which a later run returns."""


class GraphAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a graph."""

    results: list[AddResult]
    status: WriteStatus = WriteStatus.APPLIED
    """STALE: the claim of `step` is no longer current, nothing was stored. DUPLICATE: that step is on record, nothing was
    stored."""
    recorded: str | None = None
    """Of DUPLICATE: the result on record."""


class ParentEvent(StrEnum):
    """What happened to a parent, as its release says."""

    SUCCEEDED = "succeeded"
    DIED = "died"  # it is a dead letter
    CANCELLED = "cancelled"  # or it has expired: nobody can replay it
    DISCARDED = "discarded"  # a dead letter no longer
    REPLAYED = "replayed"  # a dead letter that lives again


class EdgeEffect(StrEnum):
    NOTHING = "nothing"
    MET = "met"  # the child has one open parent less
    CANCEL = "cancel"  # the child is cancelled
    REVIVE = "revive"  # a child that this parent's failure cancelled waits again, if no other parent cancels it


class ParentLink(msgspec.Struct, frozen=True, kw_only=True):
    """A parent or a child of a job, for people."""

    id: JobId
    task: str
    """Empty: it is pruned."""
    state: JobState | None
    """None: it is pruned."""
    if_fails: IfParentFails
    binding: Binding
    argument: str
    is_open: bool
    """The child still waits for this parent."""


class ParentResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a child gets of one parent. Kept for the child, whatever becomes of the parent's history."""

    parent: JobId
    task: str
    binding: Binding
    argument: str
    place: int
    """Its place among the child's parents, from 0."""
    state: JobState | None
    """SUCCEEDED, DEAD, CANCELLED or EXPIRED; None: nothing is kept of it (its history was pruned before this child was
    added)."""
    result: str | None = None
    result_error: str | None = None
    error: Failure | None = None


class Miscount(msgspec.Struct, frozen=True, kw_only=True):
    """A waiting job whose count of open parents is wrong; for the doctor."""

    id: JobId
    counted: int
    actual: int


def edge_effect(if_fails: IfParentFails, edge_life: int, event: ParentEvent, life: int) -> EdgeEffect:
    """What an event of a parent, in its life number `life` (`replays`; of REPLAYED: the new one), does to the child of an edge
    that was made in its life number `edge_life`.

    What happened before the edge was made does nothing: the edge was judged by it. A parent succeeds only once, and nothing
    follows a cancellation; it may die again and again. So "run" is met by the end of one life only, and never by a discard,
    which follows a death.
    """
    if life < edge_life:
        return EdgeEffect.NOTHING
    if event is ParentEvent.REPLAYED:
        return EdgeEffect.NOTHING if if_fails is IfParentFails.RUN else EdgeEffect.REVIVE
    if if_fails is IfParentFails.RUN:
        return EdgeEffect.NOTHING if event is ParentEvent.DISCARDED or life != edge_life else EdgeEffect.MET
    if event is ParentEvent.SUCCEEDED:
        return EdgeEffect.MET
    already_done = ParentEvent.DIED if if_fails is IfParentFails.WAIT else ParentEvent.DISCARDED
    return EdgeEffect.NOTHING if event is already_done else EdgeEffect.CANCEL


def judge_edge(
    if_fails: IfParentFails, edge_life: int, state: JobState, life: int, *, is_letter: bool = False
) -> EdgeEffect:
    """What an edge is worth by the state of its parent, when it is made (in the parent's present life) or judged anew; NOTHING:
    it is open. `is_letter`: the parent is a dead letter (a discarded one is dead, too, but in history)."""
    if if_fails is IfParentFails.RUN and life > edge_life:
        return EdgeEffect.MET
    match state:
        case JobState.PENDING | JobState.RUNNING:
            return EdgeEffect.NOTHING
        case JobState.SUCCEEDED:
            return EdgeEffect.MET
        case JobState.DEAD | JobState.CANCELLED | JobState.EXPIRED:
            if if_fails is IfParentFails.RUN:
                return EdgeEffect.MET
            return EdgeEffect.NOTHING if is_letter and if_fails is IfParentFails.WAIT else EdgeEffect.CANCEL
        case _:
            assert_never(state)


def parent_event(state: JobState, *, is_letter: bool = False) -> ParentEvent:
    """How a job ended that is in this state now."""
    if state is JobState.SUCCEEDED:
        return ParentEvent.SUCCEEDED
    if state is JobState.DEAD:
        return ParentEvent.DIED if is_letter else ParentEvent.DISCARDED
    return ParentEvent.CANCELLED


_EVENTS = {ParentEvent.DIED: "died", ParentEvent.CANCELLED: "was cancelled", ParentEvent.DISCARDED: "was discarded"}


def parent_failure(parent: JobId, task: str, event: ParentEvent) -> Failure:
    """Why a child was cancelled; the same text on all engines."""
    return Failure(type="ParentFailed", message=f"its parent {parent} (task {task}) {_EVENTS[event]}")


def failed_parent(error: Failure | None) -> JobId | None:
    """The parent that `parent_failure` names; None: the job was cancelled for another reason."""
    found = _FAILED_PARENT.match(error.message) if error is not None and error.type == "ParentFailed" else None
    return None if found is None else JobId(found[1])


_FAILED_PARENT = re.compile(r"its parent ([0-9a-f-]{36}) ")
WORKFLOW_CANCELLED = Failure(type="WorkflowCancelled", message="its workflow was cancelled")
"""Why a job of a cancelled workflow was cancelled when its parents had ended."""
