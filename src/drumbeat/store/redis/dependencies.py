"""Dependencies between jobs on Redis; the contract is in `store.protocol.DependencyStore`. Each operation is one script."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from drumbeat.core.claim import WriteStatus
from drumbeat.core.dependencies import (
    Binding,
    GraphAnswer,
    IfParentFails,
    Miscount,
    NewEdge,
    NewGraph,
    ParentLink,
    ParentResult,
)
from drumbeat.core.job import JobState
from drumbeat.errors import (
    DrumbeatError,
    UniqueConflict,
    WorkflowCancelled,
    WorkflowConflict,
    WorkflowNotFound,
)
from drumbeat.ids import JobId, is_job_id, pack_id, unpack_id
from drumbeat.store.graph_plan import missing_parent_error, stored_job_error
from drumbeat.store.malformed import join_reasons, log_faults, undecodable_failure
from drumbeat.store.protocol.dependencies import MAX_BOUND_PARENTS
from drumbeat.store.redis.connection import Value
from drumbeat.store.redis.insert import add_results, call_timeout, existing_ids, insert_arguments
from drumbeat.store.redis.pool import RedisPool
from drumbeat.store.redis.record_format import int_or_zero, salvage_end_record
from drumbeat.store.redis.rows import encode_json
from drumbeat.store.redis.steps import step_arguments

_COUNTED_AT_ONCE = 100
_RESULT_FIELDS = 5
_BINDINGS = {binding.encode(): binding for binding in Binding}


class RedisDependencies:
    def __init__(self, pool: RedisPool) -> None:
        self._pool = pool

    async def add(self, graph: NewGraph) -> GraphAnswer:
        for edge in graph.edges:
            if not is_job_id(edge.parent):
                raise missing_parent_error(graph, edge.parent, None)
        timeout = call_timeout(len(graph.jobs) + len(graph.edges))
        status, *facts = await self._pool.run("add_graph", *_graph_arguments(graph), timeout=timeout)
        match status:
            case b"stored":
                return GraphAnswer(results=add_results(graph.jobs, existing_ids(facts[0])))
            case b"stale":
                return GraphAnswer(results=[], status=WriteStatus.STALE)
            case b"duplicate":
                recorded: str | None = msgspec.json.decode(facts[0])[-1]
                return GraphAnswer(results=[], status=WriteStatus.DUPLICATE, recorded=recorded)
            case _:
                raise _refusal(graph, status, facts)

    async def advance(self) -> bool:
        return bool(await self._pool.run("advance_releases"))

    async def load_results(self, ids: Sequence[JobId]) -> dict[JobId, list[ParentResult]]:
        wanted = [id for id in dict.fromkeys(ids) if is_job_id(id)]
        if not wanted:
            return {}
        answers = await self._pool.run("load_parent_results", MAX_BOUND_PARENTS, *map(pack_id, wanted))
        return {id: _decode_results(flat) for id, flat in zip(wanted, answers, strict=True) if flat}

    async def page_results(self, child: JobId, argument: str, after: int, limit: int) -> list[ParentResult]:
        if not is_job_id(child):
            return []
        return _decode_results(
            await self._pool.run("page_parent_results", pack_id(child), argument, after, max(limit, 0))
        )

    async def list_parents(self, ids: Sequence[JobId], limit: int) -> dict[JobId, list[ParentLink]]:
        wanted = [id for id in ids if is_job_id(id)]
        answers = await self._pool.run("list_parents", max(limit, 0), *map(pack_id, wanted)) if wanted else []
        return {id: [] for id in ids} | _decode_links(wanted, answers)

    async def list_children(self, ids: Sequence[JobId], limit: int) -> dict[JobId, list[ParentLink]]:
        wanted = [id for id in ids if is_job_id(id)]
        answers = await self._pool.run("list_children", max(limit, 0), *map(pack_id, wanted)) if wanted else []
        return {id: [] for id in ids} | _decode_links(wanted, answers)

    async def find_miscounted(self, limit: int = 1_000) -> list[Miscount]:
        found: list[Miscount] = []
        for first in range(0, limit, _COUNTED_AT_ONCE):
            some = min(_COUNTED_AT_ONCE, limit - first)
            looked, *flat = await self._pool.run("find_miscounted", first, some)
            found += [
                Miscount(id=unpack_id(id), counted=counted, actual=actual)
                for id, counted, actual in zip(flat[::3], flat[1::3], flat[2::3], strict=True)
            ]
            if looked < some:
                break
        return found


def _graph_arguments(graph: NewGraph) -> list[Value]:
    workflow, step = graph.workflow, graph.step
    values: list[Value] = ["", "", "", "", ""]
    if step is not None:
        values = [graph.instance or "", *step_arguments(step)]
    if workflow is None:
        values += ("", "", "", 0)
    else:
        values += (workflow.id, workflow.name, encode_json(workflow.labels), int(workflow.unique))
    values += _edge_arguments(graph.edges)
    if graph.jobs:
        values += insert_arguments(graph.jobs)
    return values


def _edge_arguments(edges: Iterable[NewEdge]) -> list[Value]:
    """Kinds of edges, then runs of edges of one child and kind, as lua/add_graph.lua reads them."""
    kinds: dict[tuple[str, str, str], int] = {}
    runs: list[Value] = []
    last: tuple[JobId, int] | None = None
    parents: list[bytes] = []
    for edge in edges:
        kind = kinds.setdefault((edge.if_fails.value, edge.binding.value, edge.argument), len(kinds) + 1)
        if (edge.child, kind) != last:
            if parents:
                runs.append(b"".join(parents))
            last, parents = (edge.child, kind), []
            runs += (pack_id(edge.child), kind)
        parents.append(pack_id(edge.parent))
    if parents:
        runs.append(b"".join(parents))
    return [len(kinds), *(value for kind in kinds for value in kind), len(runs) // 3, *runs]


def _refusal(graph: NewGraph, status: bytes, facts: Sequence[Any]) -> DrumbeatError:
    match status:
        case b"stored_before":
            assert graph.workflow is not None
            return stored_job_error(graph.workflow, graph.jobs[facts[0] - 1])
        case b"held":
            position, holder = facts
            job = graph.jobs[position - 1]
            return UniqueConflict(job.id, job.key or "", unpack_id(holder), done="stored")
        case b"conflict":
            name = "" if graph.workflow is None else graph.workflow.name
            return WorkflowConflict(name, facts[0].decode())
        case b"cancelled":
            return WorkflowCancelled(facts[0].decode())
        case b"unknown":
            return WorkflowNotFound(facts[0].decode())
        case _:
            pruned_before = int_or_zero(facts[1] if len(facts) > 1 else None)
            return missing_parent_error(graph, unpack_id(facts[0]), pruned_before)


def _decode_results(flat: Sequence[Any]) -> list[ParentResult]:
    rows = [flat[at : at + _RESULT_FIELDS] for at in range(0, len(flat), _RESULT_FIELDS)]
    return [_decode_result(*row) for row in rows]


def _decode_result(place: int, parent: bytes, binding: bytes, argument: bytes, kept: bytes | None) -> ParentResult:
    facts: dict[str, Any] = {"task": "", "state": None}
    if kept is not None:
        task, _, text = kept.partition(b"\n")
        end, faults = salvage_end_record(text)
        facts = {"task": task.decode("utf-8", "replace"), "state": end.state}
        facts |= {"result": end.result, "result_error": end.result_error, "error": end.error}
        if faults:
            log_faults("kept result", unpack_id(parent), faults)
            reason = join_reasons(faults)
            if end.state is JobState.SUCCEEDED:
                facts |= {"result": None, "result_error": reason}
            else:
                facts["error"] = undecodable_failure(reason)
    return ParentResult(
        parent=unpack_id(parent), binding=_BINDINGS[binding], argument=argument.decode(), place=place, **facts
    )


def _decode_links(ids: Sequence[JobId], answers: Sequence[Any]) -> dict[JobId, list[ParentLink]]:
    return {id: [_decode_link(*link) for link in links] for id, links in zip(ids, answers, strict=True)}


def _decode_link(
    id: bytes, task: bytes, state: bytes, if_fails: bytes, binding: bytes, argument: bytes, is_open: int
) -> ParentLink:
    return ParentLink(
        id=unpack_id(id),
        task=task.decode("utf-8", "replace"),
        state=JobState(state.decode()) if state else None,
        if_fails=IfParentFails(if_fails.decode()),
        binding=Binding(binding.decode()),
        argument=argument.decode(),
        is_open=is_open == 1,
    )
