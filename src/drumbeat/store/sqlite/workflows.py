"""Workflows on SQLite. The contract is in `store.protocol.WorkflowStore`."""

from collections.abc import Sequence

from drumbeat.core.workflow import MAX_COUNTED_NODES, MAX_GRAPH_NODES, Workflow, WorkflowGraph
from drumbeat.ids import JobId
from drumbeat.store.records import as_json
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.connection import SqliteConnection
from drumbeat.store.sqlite.parts import SqliteOperations
from drumbeat.store.sqlite.row_decoder import RowDecoder
from drumbeat.store.sqlite.writer import WriteContext
from drumbeat.store.workflow_rows import (
    GRAPH_EDGES,
    GRAPH_NODES,
    STATE_COUNTS,
    TASK_EDGES,
    WORKFLOWS,
    StateCountRow,
    WorkflowRow,
    task_nodes,
)

_read_workflows = RowDecoder.of(WORKFLOWS).read
_read_counts = RowDecoder.of(STATE_COUNTS).read
_read_nodes = RowDecoder.of(GRAPH_NODES).read
_read_edges = RowDecoder.of(GRAPH_EDGES).read
_read_task_edges = RowDecoder.of(TASK_EDGES).read


class SqliteWorkflows(SqliteOperations):
    async def get(self, ids: Sequence[str]) -> dict[str, Workflow]:
        wanted = {"ids": as_json(list(dict.fromkeys(ids)))}

        def read(db: SqliteConnection) -> list[Workflow]:
            return self._with_counts(db, _read_workflows(db, self._sql.get, wanted))

        return {workflow.id: workflow for workflow in await self._admin_reader.read(read)}

    async def find(self, *, name: str | None = None, before: str | None = None, limit: int = 50) -> list[Workflow]:
        statement = self._sql.find if name is None else self._sql.find_named
        wanted = {"name": name, "before": before, "limit": limit}

        def read(db: SqliteConnection) -> list[Workflow]:
            return self._with_counts(db, _read_workflows(db, statement, wanted))

        return await self._admin_reader.read(read)

    async def get_graph(self, id: str) -> WorkflowGraph | None:
        return await self._admin_reader.read(lambda db: self._read_graph(db, id))

    async def list_job_ids(self, id: str, *, after: JobId | None = None, limit: int = 1_000) -> list[JobId]:
        wanted = {"id": id, "after": after or "", "limit": limit}
        return rows.ids(await self._admin_reader.read_value(self._sql.job_ids, wanted))

    async def list_sinks(self, id: str, limit: int = 2) -> list[JobId]:
        return rows.ids(await self._admin_reader.read_value(self._sql.sinks, {"id": id, "limit": limit}))

    async def mark_cancelled(self, id: str) -> bool:
        def work(write: WriteContext, id: str) -> bool:
            return write.db.run(self._sql.mark_cancelled, {"id": id, "now": write.now}) > 0

        return await self._writer.write(work, id)

    # On the reader's thread.

    def _with_counts(self, db: SqliteConnection, found: Sequence[WorkflowRow]) -> list[Workflow]:
        workflows = []
        for row in found:
            counts, capped = self._count(db, row.id)
            workflows.append(row.to_record(counts, capped=capped))
        return workflows

    def _count(self, db: SqliteConnection, id: str) -> tuple[list[StateCountRow], bool]:
        counts = _read_counts(db, self._sql.counts, {"id": id, "limit": MAX_COUNTED_NODES})
        capped = sum(row.number for row in counts) >= MAX_COUNTED_NODES and (
            db.value(self._sql.count_nodes, {"id": id, "limit": MAX_COUNTED_NODES + 1}) > MAX_COUNTED_NODES
        )
        return counts, capped

    def _read_graph(self, db: SqliteConnection, id: str) -> WorkflowGraph | None:
        if not _read_workflows(db, self._sql.get, {"ids": as_json([id])}):
            return None
        nodes = _read_nodes(db, self._sql.nodes, {"id": id, "limit": MAX_GRAPH_NODES + 1})
        if len(nodes) <= MAX_GRAPH_NODES:
            shown = [row.to_record() for row in nodes]
            wanted = {"ids": as_json([node.id for node in shown]), "limit": MAX_COUNTED_NODES}
            edges = [row.to_record() for row in _read_edges(db, self._sql.edges, wanted)]
            return WorkflowGraph(nodes=shown, edges=edges)
        counts, capped = self._count(db, id)
        if capped:
            return WorkflowGraph(tasks=task_nodes(counts), capped=True)
        found = _read_task_edges(db, self._sql.task_edges, {"id": id, "limit": MAX_COUNTED_NODES})
        return WorkflowGraph(tasks=task_nodes(counts), task_edges=[row.to_record() for row in found])
