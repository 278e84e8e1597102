"""The parents of a job that is enqueued: `after=`, and results of others as arguments. Both become edges of the job."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Literal

import msgspec

from drumbeat.codec import ParentReference
from drumbeat.core.edge import Binding, IfParentFails, NewEdge
from drumbeat.core.job import NewJob
from drumbeat.errors import InvalidArguments
from drumbeat.flow_parts import Node
from drumbeat.handle import JobHandle, SyncJobHandle
from drumbeat.ids import JobId, is_job_id
from drumbeat.names import short_repr

Parent = JobHandle[Any] | SyncJobHandle[Any] | NewJob[Any] | Node[Any] | JobId | str
"""A job that another one can wait for: it exists, or is stored by the same call."""
_JOBS = (JobHandle, SyncJobHandle, NewJob, Node)
ParentPolicy = Literal["cancel", "run", "wait"]


def parse_parents(after: object) -> tuple[JobId, ...]:
    """The ids of `after=`.

    Raises:
        InvalidArguments: it is no list of jobs, or one is there twice.
    """
    if isinstance(after, str | bytes | Mapping) or not isinstance(after, Iterable):
        raise InvalidArguments(f"after must be a list of jobs, such as after=[job], not {short_repr(after)}", "after")
    ids = [_parse_parent(each) for each in after]
    if len(set(ids)) < len(ids):
        twice = next(id for id, count in Counter(ids).items() if count > 1)
        raise InvalidArguments(f"after names job {twice} twice", "after")
    return tuple(ids)


def _parse_parent(parent: object) -> JobId:
    if isinstance(parent, _JOBS):
        return parent.id
    if isinstance(parent, str) and is_job_id(parent):
        return JobId(parent)
    if isinstance(parent, ParentReference):
        raise InvalidArguments("after takes jobs, not their results: after=[node], not after=[node.result]", "after")
    if inspect.isawaitable(parent):
        if isinstance(parent, Coroutine):
            parent.close()
        raise InvalidArguments(
            "after takes jobs that are stored: await it first, as in after=[await render.enqueue()]", "after"
        )
    raise InvalidArguments(
        f"after takes handles of jobs, their ids, and calls made by task.bind(...), not {short_repr(parent)}", "after"
    )


def is_job(value: object) -> bool:
    """Whether it is a job, or the method `result` of a handle, where the result of a job may be meant."""
    return isinstance(value, _JOBS) or isinstance(getattr(value, "__self__", None), _JOBS)


def parse_policy(value: object) -> IfParentFails:
    try:
        return IfParentFails(value)  # type: ignore[arg-type]
    except ValueError:
        raise InvalidArguments(
            f"if_parent_fails must be 'cancel', 'run' or 'wait', not {short_repr(value)}", "if_parent_fails"
        ) from None


def build_edges(
    child: JobId,
    parents: Iterable[JobId],
    references: Mapping[str, ParentReference] = {},
    if_fails: IfParentFails = IfParentFails.CANCEL,
) -> tuple[NewEdge, ...]:
    """One edge for each parent: of those whose results are arguments, in the order of the parameters, then of the others.

    Raises:
        InvalidArguments: one parent would have to give two different things.
    """
    edges: dict[JobId, NewEdge] = {}
    for argument, reference in references.items():
        for parent in reference.parents:
            edge = NewEdge(parent, child, if_fails, reference.binding, argument)
            if (known := edges.get(parent)) is not None:
                edge = _merge(known, edge)
            edges[parent] = edge
    for parent in parents:
        edges.setdefault(parent, NewEdge(parent, child, if_fails))
    return tuple(edges.values())


def _merge(known: NewEdge, edge: NewEdge) -> NewEdge:
    if known.binding is not edge.binding or edge.binding is Binding.RESULTS:
        raise InvalidArguments(
            f"arguments {known.argument!r} and {edge.argument!r} are given by the same job {edge.parent} in two ways: "
            "one of result, outcome, or one list of results",
            edge.argument,
        )
    return NewEdge(edge.parent, edge.child, edge.if_fails, edge.binding, f"{known.argument} {edge.argument}")


def add_parents(job: NewJob[Any], parents: Iterable[JobId], if_fails: IfParentFails | None) -> NewJob[Any]:
    """The same job with more parents; a policy that is given holds for all of them."""
    known = {edge.parent for edge in job.after}
    policy = if_fails or (job.after[0].if_fails if job.after else IfParentFails.CANCEL)
    more = build_edges(job.id, [id for id in parents if id not in known], if_fails=policy)
    edges = (*(_with_policy(edge, policy) for edge in job.after), *more)
    return msgspec.structs.replace(job, after=edges) if edges else job


def _with_policy(edge: NewEdge, policy: IfParentFails) -> NewEdge:
    return edge if edge.if_fails is policy else msgspec.structs.replace(edge, if_fails=policy)
