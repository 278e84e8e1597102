"""Short words for what the contract tests of dependencies do again and again. No assertions here."""

from collections.abc import Iterable, Sequence
from typing import Any

from drumbeat.core.dependencies import (
    BLOCKED_ON_PARENTS,
    Binding,
    EdgeEffect,
    GraphAnswer,
    IfParentFails,
    NewEdge,
    NewGraph,
    NewWorkflow,
    ParentEvent,
    parent_failure,
)
from drumbeat.core.job import Failure, Job, JobState, NewJob
from drumbeat.ids import JobId, new_job_id
from drumbeat.store.job_reads import get_job
from drumbeat.store.protocol import Store
from tests.contract.making import new_job

CANCEL, RUN, WAIT = IfParentFails.CANCEL, IfParentFails.RUN, IfParentFails.WAIT
MET, CANCELS, OPEN = EdgeEffect.MET, EdgeEffect.CANCEL, EdgeEffect.NOTHING


def edges(child: NewJob, *parents: NewJob | JobId, **options: Any) -> list[NewEdge]:
    """This child waits for these."""
    ids = [parent.id if isinstance(parent, NewJob) else parent for parent in parents]
    return [NewEdge(parent=id, child=child.id, **options) for id in ids]


def bind(child: NewJob, parent: JobId, argument: str = "x", binding: Binding = Binding.RESULT) -> NewEdge:
    """This child runs whatever becomes of its parent, and gets that."""
    if_fails = CANCEL if binding is Binding.RESULT else RUN
    return NewEdge(parent=parent, child=child.id, if_fails=if_fails, binding=binding, argument=argument)


async def add_graph(store: Store, jobs: Sequence[NewJob], edges: Iterable[NewEdge] = (), **options: Any) -> GraphAnswer:
    return await store.dependencies.add(NewGraph(jobs=jobs, edges=list(edges), **options))


async def add_child(
    store: Store, *parents: JobId, if_fails: IfParentFails = CANCEL, id: JobId | None = None, **options: Any
) -> JobId:
    child = new_job(id=id or new_job_id(), **options)
    await add_graph(store, [child], edges(child, *parents, if_fails=if_fails))
    return child.id


async def add_chain(store: Store, first: JobId, length: int, **options: Any) -> list[JobId]:
    """So many jobs, of which each waits for the one before."""
    jobs = [new_job(**options) for _ in range(length)]
    befores = [first, *(job.id for job in jobs)]
    links = [edge for job, before in zip(jobs, befores, strict=False) for edge in edges(job, before)]
    await add_graph(store, jobs, links)
    return [job.id for job in jobs]


def new_workflow(name: str = "nightly", **options: Any) -> NewWorkflow:
    return NewWorkflow(id=new_job_id(), name=name, **options)


async def settle(store: Store) -> None:
    """Follow all edges of what has ended."""
    while await store.dependencies.advance():
        pass


async def states(store: Store, *ids: JobId) -> list[JobState]:
    return [(await get_job(store, id)).state for id in ids]


async def state_of(store: Store, id: JobId) -> JobState:
    return (await get_job(store, id)).state


def standing(job: Job) -> EdgeEffect:
    """What its one parent has made of a child."""
    if job.state is JobState.CANCELLED:
        return CANCELS
    return OPEN if job.blocked_on == BLOCKED_ON_PARENTS else MET


async def failure_by(store: Store, parent: JobId, event: ParentEvent) -> Failure:
    return parent_failure(parent, (await get_job(store, parent)).task, event)
