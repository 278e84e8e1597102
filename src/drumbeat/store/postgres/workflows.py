"""Workflows on PostgreSQL. The contract is in `store.protocol.WorkflowStore`."""

from collections.abc import Sequence
from functools import partial
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
from drumbeat.ids import JobId
from drumbeat.store.malformed import RecordKind, drop_row
from drumbeat.store.postgres.connections import LONG_TIMEOUT, Session
from drumbeat.store.postgres.parts import PostgresParts
from drumbeat.store.records import row_of, to_datetime, to_datetime_or_none

_NODES = RecordKind("job", row_of(GraphNode), repair=drop_row)
_decode_labels = msgspec.json.Decoder(dict[str, str]).decode


class PostgresWorkflows:
    def __init__(self, parts: PostgresParts) -> None:
        self._sql = parts.sql.workflows
        self._exclude_advances = parts.sql.dependencies.exclude_advances
        self._use_snapshot = parts.sql.schema.use_snapshot
        self._connection = parts.connection
        self._report_connection = parts.report_connection

    async def get(self, ids: Sequence[str]) -> dict[str, Workflow]:
        rows = await self._fetch(self._sql.get, MAX_COUNTED_NODES, list(ids)) if ids else []
        found = {row["id"]: _workflow(row) for row in rows}
        return {id: found[id] for id in ids if id in found}

    async def find(self, *, name: str | None = None, before: str | None = None, limit: int = 50) -> list[Workflow]:
        return [_workflow(row) for row in await self._fetch(self._sql.find, MAX_COUNTED_NODES, name, before, limit)]

    async def get_graph(self, id: str) -> WorkflowGraph | None:
        return await self._report_connection.transact(partial(self._load_graph, id), timeout=LONG_TIMEOUT)

    async def list_job_ids(self, id: str, *, after: JobId | None = None, limit: int = 1_000) -> list[JobId]:
        return [row["id"] for row in await self._fetch(self._sql.list_job_ids, id, after, limit)]

    async def list_sinks(self, id: str, limit: int = 2) -> list[JobId]:
        return [row["id"] for row in await self._fetch(self._sql.list_sinks, id, limit)]

    async def mark_cancelled(self, id: str) -> bool:
        marked = await self._connection.call(lambda session: session.fetchval(self._sql.mark_cancelled, id))
        # An advance that began before has not seen the mark: it may make a child due until it ends.
        await self._connection.call(lambda session: session.execute(self._exclude_advances))
        return marked is not None

    async def _fetch(self, statement: str, *facts: Any) -> list[Any]:
        return await self._report_connection.call(
            lambda session: session.fetch(statement, *facts), timeout=LONG_TIMEOUT
        )

    async def _load_graph(self, id: str, session: Session) -> WorkflowGraph | None:
        await session.execute(self._use_snapshot)
        if not await session.fetchval(self._sql.exists, id):
            return None
        rows = await session.fetch(self._sql.nodes, id, MAX_GRAPH_NODES + 1)
        if len(rows) > MAX_GRAPH_NODES:
            return await self._load_tasks(id, session)
        nodes = [row.to_record() for row in _NODES.read_rows(rows)]
        edges = await session.fetch(self._sql.edges, [node.id for node in nodes]) if nodes else []
        return WorkflowGraph(
            nodes=nodes,
            edges=[
                GraphEdge(
                    parent=row["parent"],
                    child=row["child"],
                    if_fails=IfParentFails(row["if_fails"]),
                    binding=Binding(row["binding"]),
                )
                for row in edges
            ],
        )

    async def _load_tasks(self, id: str, session: Session) -> WorkflowGraph:
        counts: dict[str, dict[str, int]] = {}
        read = await session.fetch(self._sql.tasks, id, MAX_COUNTED_NODES)
        for row in read:
            if row["counted"]:
                counts.setdefault(row["task"], {})[row["state"]] = row["counted"]
        capped = sum(row["number"] for row in read) > MAX_COUNTED_NODES
        edges = [] if capped else await session.fetch(self._sql.task_edges, id)
        return WorkflowGraph(
            tasks=[TaskNode(task=task, counts=states) for task, states in counts.items()],
            task_edges=[TaskEdge(parent=row["parent"], child=row["child"], count=row["number"]) for row in edges],
            capped=capped,
        )


def _workflow(row: Any) -> Workflow:
    return Workflow(
        id=row["id"],
        name=row["name"],
        labels=_decode_labels(row["labels"]),
        created_at=to_datetime(row["created_at"]),
        cancelled_at=to_datetime_or_none(row["cancelled_at"]),
        counts=dict(zip(row["states"] or (), row["counts"] or (), strict=True)),
        capped=row["capped"],
    )
