"""Dependencies between jobs on SQLite. The contract is in `store.protocol.DependencyStore`."""

from drumbeat.core.dependencies import GraphAnswer, NewGraph
from drumbeat.store.sqlfile import Statements
from drumbeat.store.sqlite.graph_insert import SqliteGraphInserter
from drumbeat.store.sqlite.parts import SqliteOperations, SqliteParts


class SqliteDependencies(SqliteOperations):
    def __init__(self, parts: SqliteParts, sql: Statements) -> None:
        super().__init__(parts, sql)
        self._inserter = SqliteGraphInserter(parts.sql, parts.completion.inserter, parts.advancer)

    async def add(self, graph: NewGraph) -> GraphAnswer:
        self._disk_space.check()
        return await self._writer.write(self._inserter.add, graph, weight=max(1, len(graph.jobs)))

    async def advance(self) -> bool:
        # A read first: there is nearly never anything to do, and a commit would wake every worker.
        if not await self._worker_reader.read(self._advancer.has_releases):
            return False
        return await self._writer.write(lambda write, _: self._advancer.advance(write), None)
