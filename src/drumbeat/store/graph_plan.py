"""What is stored of a graph of new jobs, decided from its parents as the SQL engines have loaded them. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from drumbeat.core.dependencies import (
    EdgeEffect,
    IfParentFails,
    NewEdge,
    NewGraph,
    NewWorkflow,
    ParentEvent,
    judge_edge,
    parent_event,
    parent_failure,
)
from drumbeat.core.job import LIVE_STATES, AddResult, Failure, JobState, NewJob
from drumbeat.errors import JobExpired, JobNotFound, UniqueConflict, WorkflowError
from drumbeat.ids import JobId
from drumbeat.store.dependency_rows import ParentRow, ReleaseRow, is_still_followed
from drumbeat.store.job_reads import missing_job_error


class EdgeRow(NamedTuple):
    parent: JobId
    child: JobId
    place: int
    life: int
    if_fails: str
    binding: str
    argument: str


class GraphPlan(msgspec.Struct, frozen=True):
    """What is stored of the new jobs of a graph, beside the jobs themselves."""

    edges: list[EdgeRow]
    open_parents: dict[JobId, int]
    """Of each child."""
    cancelled: dict[JobId, tuple[JobId, Failure]]
    """Children that go to history at once: for which parent, and why."""
    live_parents: list[JobId]
    """Parents that were stored before and have not ended: they are to be flagged, in the order of ids."""
    new_parents: set[JobId]
    """New jobs that are parents and have not been cancelled."""
    binding: set[JobId]
    """Children that bind something."""
    kept: list[JobId]
    """Parents that have ended and whose result or outcome a child binds."""


def refuse_conflicts(graph: NewGraph, answers: Iterable[AddResult]) -> None:
    """Refuse a graph with a job whose unique key another one holds, if it must be stored whole or others wait for that job."""
    taken = [
        (job, answer.id)
        for job, answer in zip(graph.jobs, answers, strict=True)
        if not answer.created and answer.id != job.id
    ]
    if not taken:
        return
    is_whole = graph.workflow is not None or graph.step is not None
    named = {edge.parent for edge in graph.edges}
    for job, holder in taken:
        if is_whole or job.id in named:
            raise UniqueConflict(job.id, job.key or "", holder, done="stored")


def refuse_stored(workflow: NewWorkflow, jobs: Sequence[NewJob], answers: Iterable[AddResult]) -> None:
    """Refuse a new workflow with a job that is stored already, by itself or in another one."""
    for job, answer in zip(jobs, answers, strict=True):
        if answer.id == job.id and not answer.created:
            raise stored_job_error(workflow, job)


def stored_job_error(workflow: NewWorkflow, job: NewJob) -> WorkflowError:
    return WorkflowError(
        f"workflow {workflow.name!r} was not stored: job {job.id} ({job.task}), one of its calls, is stored already: "
        "bind another call",
        workflow.id,
    )


def missing_parent_error(graph: NewGraph, parent: JobId, pruned_before: int | None) -> JobNotFound | JobExpired:
    """The error for a parent that is in no table."""
    error = missing_job_error(parent, pruned_before)
    if isinstance(error, JobExpired):
        return error
    children = {edge.child for edge in graph.edges if edge.parent == parent}
    task = next((job.task for job in graph.jobs if job.id in children), "")
    problem = f"no job {parent}, for which a call of {task} is to wait: a parent is stored before, or by the same call"
    return JobNotFound(parent, problem)


def outside_parents(jobs: Iterable[NewJob], edges: Iterable[NewEdge]) -> list[JobId]:
    """The parents of these new jobs that are not among them, in the order of ids."""
    new = {job.id for job in jobs}
    return sorted({edge.parent for edge in edges if edge.child in new and edge.parent not in new})


def plan_graph(
    jobs: Collection[NewJob],
    edges: Iterable[NewEdge],
    parents: Mapping[JobId, ParentRow],
    releases: Mapping[JobId, Sequence[ReleaseRow]] | None = None,
) -> GraphPlan:
    """`jobs`: those that are new; of the edges only theirs count. `parents`: the others, all of them. `releases`: those that
    are left of these parents: what one of them will do to a child is not done by this plan, too."""
    new = {job.id: job.task for job in jobs}
    plan = GraphPlan([], {}, {}, [], set(), set(), [])
    flagged: dict[JobId, None] = {}
    kept: dict[JobId, None] = {}
    for child, its_edges in groupby((edge for edge in edges if edge.child in new), lambda edge: edge.child):
        named: set[JobId] = set()
        open_parents = plan.open_parents.get(child, 0)
        for edge in its_edges:
            if edge.parent in named:
                continue
            parent = None if edge.parent in new else parents[edge.parent]
            life = 0 if parent is None else parent.replays
            facts = (edge.if_fails.value, edge.binding.value, edge.argument)
            plan.edges.append(EdgeRow(edge.parent, child, len(named), life, *facts))
            named.add(edge.parent)
            if edge.binding:
                plan.binding.add(child)
            if parent is None:
                plan.new_parents.add(edge.parent)
                open_parents += 1
                continue
            if parent.state in LIVE_STATES:
                flagged[parent.id] = None
            elif edge.binding:
                kept[parent.id] = None
            effect = _judge(edge, parent, () if releases is None else releases.get(parent.id, ()))
            open_parents += effect is EdgeEffect.NOTHING
            if effect is EdgeEffect.CANCEL and child not in plan.cancelled:
                event = parent_event(parent.state, is_letter=bool(parent.is_letter))
                plan.cancelled[child] = (parent.id, parent_failure(parent.id, parent.task, event))
        plan.open_parents[child] = open_parents
    if plan.cancelled:
        _cancel_descendants(plan, new, kept)
    plan.live_parents.extend(sorted(flagged))
    plan.kept.extend(kept)
    return plan


def _judge(edge: NewEdge, parent: ParentRow, releases: Sequence[ReleaseRow]) -> EdgeEffect:
    effect = judge_edge(edge.if_fails, parent.replays, parent.state, parent.replays, is_letter=bool(parent.is_letter))
    if effect is EdgeEffect.MET and is_still_followed(edge.if_fails, parent.replays, edge.child, releases):
        return EdgeEffect.NOTHING
    return effect


def _cancel_descendants(plan: GraphPlan, new: Mapping[JobId, str], kept: dict[JobId, None]) -> None:
    """What becomes of the children of new jobs that are cancelled at once: they are among the new jobs, too."""
    children: dict[JobId, list[EdgeRow]] = {}
    for edge in plan.edges:
        if edge.parent in new:
            children.setdefault(edge.parent, []).append(edge)
    queue = list(plan.cancelled)
    for parent in queue:  # which grows
        plan.new_parents.discard(parent)
        for edge in children.get(parent, ()):
            if edge.binding:
                kept[parent] = None
            if judge_edge(IfParentFails(edge.if_fails), 0, JobState.CANCELLED, 0) is EdgeEffect.MET:
                plan.open_parents[edge.child] -= 1
            elif edge.child not in plan.cancelled:
                failure = parent_failure(parent, new[parent], ParentEvent.CANCELLED)
                plan.cancelled[edge.child] = (parent, failure)
                queue.append(edge.child)
