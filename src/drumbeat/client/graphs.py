"""Check jobs that wait for each other before they are stored: `check_graph`. Pure."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

from drumbeat.codec import Signature
from drumbeat.codec.hints import format_hint
from drumbeat.codec.parent_values import is_outcome, is_results, item_type
from drumbeat.core.edge import Binding, IfParentFails, NewEdge
from drumbeat.core.job import NewJob, Unique
from drumbeat.errors import InvalidArguments, ParentResultMismatch
from drumbeat.ids import JobId
from drumbeat.store.protocol.dependencies import MAX_BOUND_PARENTS
from drumbeat.tasks import Registry

MAX_EDGES_AT_ONCE = 200_000

_ANY = (Any, object)
_KINDS: dict[Any, str] = {
    type(None): "null",
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    list: "list",
    tuple: "list",
    set: "list",
    frozenset: "list",
    dict: "dict",
}


def check_graph(jobs: Sequence[NewJob[Any]], registry: Registry) -> list[NewEdge]:
    """The edges of these jobs, in the order of the jobs.

    Raises:
        InvalidArguments: a job waits for itself, also by others; a result is bound to what cannot take it; too many edges.
    """
    edges = [edge for job in jobs for edge in job.after]
    if len(edges) > MAX_EDGES_AT_ONCE:
        raise InvalidArguments(
            f"{len(edges):,} dependencies in one call are over the limit of {MAX_EDGES_AT_ONCE:,}: let one job wait for "
            "many, and many wait for that one",
            "after",
        )
    by_id = {job.id: job for job in jobs}
    if len(by_id) < len(jobs):
        raise InvalidArguments("one of these calls is there twice: bind it once for each job", "jobs")
    _check_acyclic(jobs, by_id)
    for job in jobs:
        if job.after:
            _check_bindings(job, by_id, registry)
    return edges


def check_unique_keys(jobs: Iterable[NewJob[Any]]) -> None:
    """Refuse two calls that one job would stand for: all of these are to be stored.

    Raises:
        InvalidArguments: they are of one task, and have the same unique key.
    """
    seen: set[tuple[str, str | None, Unique]] = set()
    for job in jobs:
        if job.unique is Unique.NO:
            continue
        if (facts := (job.task, job.key, job.unique)) in seen:
            raise InvalidArguments(
                f"two calls of {job.task} have the same unique key {job.key!r}: nothing was stored", "key"
            )
        seen.add(facts)


def _check_acyclic(jobs: Sequence[NewJob[Any]], by_id: Mapping[JobId, NewJob[Any]]) -> None:
    seen: set[JobId] = set()
    for job in jobs:
        if any(edge.parent in by_id and edge.parent not in seen for edge in job.after):
            break
        seen.add(job.id)
    else:
        return  # each comes after its parents: so they are mostly made
    graph = {job.id: [edge.parent for edge in job.after if edge.parent in by_id] for job in jobs}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle = [f"{by_id[id].task} ({id})" for id in error.args[1]]
        if len(set(circle)) == 1:
            raise InvalidArguments(f"job {circle[0]} waits for itself", "after") from None
        raise InvalidArguments(f"these jobs wait for each other: {' after '.join(reversed(circle))}", "after") from None


def _check_bindings(job: NewJob[Any], by_id: Mapping[JobId, NewJob[Any]], registry: Registry) -> None:
    task = registry.find(job.task)
    signature = None if task is None else task.signature
    hints: Mapping[str, Any] = signature.hints if isinstance(signature, Signature) else {}
    counts: dict[str, int] = {}
    checked: set[tuple[str, str]] = set()
    for edge in job.after:
        if edge.binding is Binding.NONE:
            continue
        parent = by_id.get(edge.parent)
        for name in edge.argument.split():
            counts[name] = counts.get(name, 0) + 1
            pair = (name, "" if parent is None else parent.task)
            if pair in checked:
                continue
            checked.add(pair)
            hint = hints.get(name, Any)
            _check_policy(job, name, edge, hint)
            parent_task = None if parent is None else registry.find(parent.task)
            if parent_task is not None:
                _check_type(job.task, name, hint, edge, parent_task.name, parent_task.returns)
    for name, count in counts.items():
        if count > MAX_BOUND_PARENTS and not is_results(hints.get(name, Any)):
            raise InvalidArguments(
                f"{job.task}: argument {name!r} would be a list of {count:,} results, over the limit of "
                f"{MAX_BOUND_PARENTS:,}: annotate it Results[...], which is read in pages",
                name,
            )


def _check_policy(job: NewJob[Any], name: str, edge: NewEdge, hint: Any) -> None:
    is_run = edge.if_fails is IfParentFails.RUN
    if edge.binding is Binding.OUTCOME:
        if not is_run:
            problem = 'is an outcome, which only a job with if_parent_fails="run" gets: bind the result'
            raise InvalidArguments(f"{job.task}: argument {name!r} {problem}", name)
        if not is_outcome(hint):
            problem = f"gets an outcome: annotate it JobOutcome[...], not {format_hint(hint)}"
            raise ParentResultMismatch(f"{job.task}: argument {name!r} {problem}", name)
        return
    if not is_run:
        return
    if edge.binding is Binding.RESULT:
        problem = 'has no value if its parent fails: with if_parent_fails="run" bind the outcome'
        raise InvalidArguments(f"{job.task}: argument {name!r} {problem}", name)
    if not is_outcome(item_type(hint)):
        problem = (
            'has no value for a parent that fails: with if_parent_fails="run" annotate it Results[JobOutcome[...]]'
        )
        raise InvalidArguments(f"{job.task}: argument {name!r} {problem}", name)


def _check_type(task: str, name: str, hint: Any, edge: NewEdge, parent: str, returns: Any) -> None:
    if edge.binding is Binding.RESULTS:
        if hint not in _ANY and not is_results(hint) and _origin(hint) is not list:
            problem = f"gets the results of many jobs: annotate it Results[...] or list[...], not {format_hint(hint)}"
            raise ParentResultMismatch(f"{task}: argument {name!r} {problem}", name)
        hint = item_type(hint)
    elif is_results(hint):
        problem = "is annotated Results[...], and gets the result of one job"
        raise ParentResultMismatch(f"{task}: argument {name!r} {problem}", name)
    if edge.binding is not Binding.RESULT and is_outcome(hint):
        hint = item_type(hint)
    if not may_become(returns, hint):
        raise ParentResultMismatch(
            f"{task}: argument {name!r} must be {format_hint(hint)}, but {parent} returns {format_hint(returns)}", name
        )


def may_become(returned: Any, wanted: Any) -> bool:
    """Whether a value of the one type may be one of the other. Only where both are concrete it is denied."""
    returned, wanted = _plain(returned), _plain(wanted)
    if returned == wanted or returned in _ANY or wanted in _ANY:
        return True
    ones, others = _members(returned) or (returned,), _members(wanted) or (wanted,)
    if len(ones) > 1 or len(others) > 1:
        return any(may_become(one, other) for one in ones for other in others)
    one, other = _origin(returned), _origin(wanted)
    if not isinstance(one, type) or not isinstance(other, type):
        return True
    one_kind, other_kind = _KINDS.get(one), _KINDS.get(other)
    if one_kind is None or other_kind is None:
        return _may_class_become(one, other, one_kind or other_kind)
    if one_kind == "int" and other_kind == "float":
        return True
    return one_kind == other_kind and _may_items_become(returned, wanted)


def _may_class_become(one: type, other: type, plain: str | None) -> bool:
    """At least one is a class of the program or of a library."""
    if issubclass(one, other) or issubclass(other, one):
        return True
    one_is_record, other_is_record = _is_record(one), _is_record(other)
    if one_is_record and other_is_record:
        return False
    # A record is an object in JSON; what other classes are is not known here.
    return plain in (None, "dict") if one_is_record or other_is_record else True


def _may_items_become(returned: Any, wanted: Any) -> bool:
    ones, others = typing.get_args(returned), typing.get_args(wanted)
    if len(ones) != len(others) or tuple in (_origin(returned), _origin(wanted)):
        return True
    return all(may_become(one, other) for one, other in zip(ones, others, strict=True))


def _is_record(kind: type) -> bool:
    return any(hasattr(kind, name) for name in ("__struct_fields__", "__dataclass_fields__", "model_fields"))


def _origin(hint: Any) -> Any:
    return dict if typing.is_typeddict(hint) else typing.get_origin(hint) or hint


def _plain(hint: Any) -> Any:
    """Without Annotated and NewType; None as its type."""
    while True:
        if typing.get_origin(hint) is typing.Annotated:
            hint = typing.get_args(hint)[0]
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        else:
            return type(None) if hint is None else hint


def _members(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else ()
