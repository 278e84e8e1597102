"""Workflows on Redis; the contract is in `store.protocol.WorkflowStore`."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from drumbeat.core.dependencies import Binding, IfParentFails
from drumbeat.core.workflow import (
    MAX_COUNTED_NODES,
    MAX_GRAPH_NODES,
    GraphEdge,
    GraphNode,
    TaskEdge,
    TaskNode,
    Workflow,
    WorkflowGraph,
)
from drumbeat.ids import JobId, pack_id, unpack_id
from drumbeat.store.malformed import explain_fault, log_faults
from drumbeat.store.records import to_datetime, to_datetime_or_none
from drumbeat.store.redis.pool import RedisPool
from drumbeat.store.redis.record_format import int_or_zero, pairs
from drumbeat.store.redis.search import RedisSearch

_PAGE = 1_000
"""Jobs that one call counts: about 2 ms."""
_MAX_EDGES = 10_000
"""Edges after which a call stops."""
_MAX_LISTED = 100
_ID_BYTES = 16
_decode_labels = msgspec.json.Decoder(dict[str, str]).decode

_Row = tuple[bytes, bytes, bytes, Sequence[bytes]]
"""Id, task, state, and parent, if_fails and binding of each edge, flat."""


class RedisWorkflows:
    def __init__(self, pool: RedisPool, search: RedisSearch) -> None:
        self._pool = pool
        self._search = search

    async def get(self, ids: Sequence[str]) -> dict[str, Workflow]:
        answers = await self._pool.run("get_workflows", *ids) if ids else []
        return {id: await self._count(id, facts) for id, facts in zip(ids, answers, strict=True) if facts is not None}

    async def find(self, *, name: str | None = None, before: str | None = None, limit: int = 50) -> list[Workflow]:
        found: list[Workflow] = []
        line = "workflows" if name is None else f"workflows_of:{name}"
        high, limit = "+" if before is None else f"({before}", min(limit, _MAX_LISTED)
        while len(found) < limit:
            page: list[bytes] = await self._pool.run("list_index", line, "down", high, limit)
            known = await self.get([id.decode() for id in page])
            found += known.values()
            if len(page) < limit:
                break
            high = f"({page[-1].decode()}"
        return found[: max(limit, 0)]

    async def get_graph(self, id: str) -> WorkflowGraph | None:
        [exists] = await self._pool.run("get_workflows", id)
        if exists is None:
            return None
        rows = await self._list_rows(id, b"", MAX_GRAPH_NODES + 1)
        if len(rows) <= MAX_GRAPH_NODES:
            jobs = await self._search.load_jobs([row[0] for row in rows], preview=0)
            names = GraphNode.__struct_fields__
            nodes = [GraphNode(**{name: getattr(job, name) for name in names}) for job in jobs]
            return WorkflowGraph(nodes=nodes, edges=[edge for row in rows for edge in _edges_of(row)])
        half = MAX_COUNTED_NODES // 2
        rows += await self._list_rows(id, rows[-1][0], half - len(rows))
        tail = await self._find_tail(id, half, rows[-1][0])
        capped = tail != rows[-1][0]
        return _collapse(rows + await self._list_rows(id, tail, half), capped=capped)

    async def list_job_ids(self, id: str, *, after: JobId | None = None, limit: int = 1_000) -> list[JobId]:
        low = b"-" if after is None else b"(" + pack_id(after)
        found = await self._pool.run("list_index", f"workflow_jobs:{id}", "up", low, max(limit, 0))
        return [unpack_id(raw) for raw in found if len(raw) == _ID_BYTES]

    async def list_sinks(self, id: str, limit: int = 2) -> list[JobId]:
        found: list[JobId] = []
        after = b""
        while len(found) < limit:
            after, *ids = await self._pool.run("list_workflow_sinks", id, after, _PAGE)
            found += map(unpack_id, ids)
            if not after:
                break
        return found[: max(limit, 0)]

    async def mark_cancelled(self, id: str) -> bool:
        return bool(await self._pool.run("mark_workflow_cancelled", id))

    async def _count(self, id: str, facts: Sequence[bytes | None]) -> Workflow:
        half = MAX_COUNTED_NODES // 2
        counts, after = await self._count_page(id, b"", half)
        capped = False
        if after:
            tail = await self._find_tail(id, half, after)
            capped = tail != after
            others, _ = await self._count_page(id, tail, half)
            counts += others
        name, labels, created_at, cancelled_at = facts
        return Workflow(
            id=id,
            name=(name or b"").decode("utf-8", "replace"),
            labels=_read_labels(id, labels),
            created_at=to_datetime(int_or_zero(created_at)),
            cancelled_at=to_datetime_or_none(None if cancelled_at is None else int_or_zero(cancelled_at)),
            counts=dict(counts),
            capped=capped,
        )

    async def _count_page(self, id: str, after: bytes, limit: int) -> tuple[Counter[str], bytes]:
        """By state, and the last id; empty: there are no more."""
        counts = Counter[str]()
        for start in range(0, limit, _PAGE):
            size = min(_PAGE, limit - start)
            after, has_more, *flat = await self._pool.run("count_workflow_jobs", id, after, size)
            counts.update({state.decode(): number for state, number in pairs(flat)})
            if not has_more:
                return counts, b""
        return counts, after

    async def _find_tail(self, id: str, limit: int, after: bytes) -> bytes:
        """The id behind which the last jobs are, so many or, if there are fewer behind this one, those. In a large workflow the
        last one often waits for all others, and so says that it has not ended."""
        found: list[bytes] = await self._pool.command(
            "ZRANGE", self._pool.keys.workflow_jobs(id), -limit - 1, -limit - 1
        )
        return max([after, *found])

    async def _list_rows(self, id: str, after: bytes, limit: int) -> list[_Row]:
        found: list[_Row] = []
        while len(found) < limit:
            some = min(_PAGE, limit - len(found))
            page: list[Any] = await self._pool.run("list_workflow_jobs", id, after, some, _MAX_EDGES)
            if not page:
                break
            found += [(raw, task, state, edges) for raw, task, state, edges in page]
            after = found[-1][0]
        return found


def _read_labels(id: str, text: bytes | None) -> dict[str, str]:
    try:
        return _decode_labels(text or b"")
    except (ValueError, msgspec.DecodeError) as error:
        log_faults("workflow", id, [("labels", explain_fault("labels", text, error))])
        return {}


def _edges_of(row: _Row) -> list[GraphEdge]:
    child, edges = unpack_id(row[0]), row[3]
    return [
        GraphEdge(
            parent=unpack_id(parent),
            child=child,
            if_fails=IfParentFails(if_fails.decode()),
            binding=Binding(binding.decode()),
        )
        for parent, if_fails, binding in zip(edges[::3], edges[1::3], edges[2::3], strict=True)
    ]


def _collapse(rows: Sequence[_Row], *, capped: bool) -> WorkflowGraph:
    """Jobs by task, and edges by pairs of tasks; parents outside of the workflow have none."""
    tasks: dict[str, Counter[str]] = {}
    task_of: dict[bytes, str] = {}
    for raw, task, state, _ in rows:
        name = task_of[raw] = task.decode("utf-8", "replace")
        tasks.setdefault(name, Counter())[state.decode()] += 1
    links: Iterable[tuple[str, str]] = (
        (task_of[parent], task_of[raw]) for raw, _, _, edges in rows for parent in edges[::3] if parent in task_of
    )
    counted = Counter[tuple[str, str]]() if capped else Counter(links)
    return WorkflowGraph(
        tasks=[TaskNode(task=name, counts=dict(counts)) for name, counts in sorted(tasks.items())],
        task_edges=[
            TaskEdge(parent=parent, child=child, count=count) for (parent, child), count in sorted(counted.items())
        ],
        capped=capped,
    )
