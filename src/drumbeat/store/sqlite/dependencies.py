"""Dependencies between jobs on SQLite: the async side of `graph_insert` and `advancer`, and reads.

The contract is in `store.protocol.DependencyStore`.
"""

from collections.abc import Sequence

from drumbeat.core.dependencies import GraphAnswer, Miscount, NewGraph, ParentLink, ParentResult
from drumbeat.ids import JobId
from drumbeat.store.dependency_rows import BoundRow, CountedRow, LinkRow, find_miscounts, group_results, sort_parents
from drumbeat.store.malformed import drop_row
from drumbeat.store.records import as_json
from drumbeat.store.sqlfile import Statements
from drumbeat.store.sqlite.connection import SqliteConnection
from drumbeat.store.sqlite.graph_insert import SqliteGraphInserter
from drumbeat.store.sqlite.parts import SqliteOperations, SqliteParts
from drumbeat.store.sqlite.row_decoder import RowDecoder

_read_bound = RowDecoder(BoundRow, "edge", id="child").read
_read_links = RowDecoder(LinkRow, "edge", id="child", repair=drop_row).read
_read_counted = RowDecoder(CountedRow, "job", repair=drop_row).read


class SqliteDependencies(SqliteOperations):
    def __init__(self, parts: SqliteParts, sql: Statements) -> None:
        super().__init__(parts, sql)
        self._inserter = SqliteGraphInserter(parts.sql, parts.completion.inserter, parts.advancer)

    async def add(self, graph: NewGraph) -> GraphAnswer:
        self._disk_space.check()
        return await self._writer.write(self._inserter.add, graph, weight=max(1, len(graph.jobs) + len(graph.edges)))

    async def advance(self) -> bool:
        # A read first: there is nearly never anything to do, and a commit would wake every worker.
        if not await self._worker_reader.read(self._advancer.has_releases):
            return False
        return await self._writer.write(lambda write, _: self._advancer.advance(write), None)

    async def load_results(self, ids: Sequence[JobId]) -> dict[JobId, list[ParentResult]]:
        wanted = {"ids": as_json(list(ids))}

        def read(db: SqliteConnection) -> list[BoundRow]:
            return [
                *_read_bound(db, self._sql.single_results, wanted),
                *_read_bound(db, self._sql.first_results, wanted),
            ]

        return group_results(await self._worker_reader.read(read)) if ids else {}

    async def page_results(self, child: JobId, argument: str, after: int, limit: int) -> list[ParentResult]:
        wanted = {"child": child, "argument": argument, "after": after, "limit": limit}
        found = await self._worker_reader.read(lambda db: _read_bound(db, self._sql.page_of_results, wanted))
        return [row.to_record() for row in found]

    async def list_parents(self, ids: Sequence[JobId], limit: int) -> dict[JobId, list[ParentLink]]:
        statements = (self._sql.links_to_live, self._sql.links_to_letters, self._sql.links_to_parents)

        def read(db: SqliteConnection) -> dict[JobId, list[ParentLink]]:
            found: dict[JobId, list[ParentLink]] = {}
            for id in ids:
                wanted = {"id": id, "limit": limit}
                links = [link for statement in statements for link in _read_links(db, statement, wanted)]
                found[id] = sort_parents(links, limit)
            return found

        return await self._admin_reader.read(read)

    async def list_children(self, ids: Sequence[JobId], limit: int) -> dict[JobId, list[ParentLink]]:
        def read(db: SqliteConnection) -> dict[JobId, list[ParentLink]]:
            return {
                id: [
                    link.to_child() for link in _read_links(db, self._sql.links_to_children, {"id": id, "limit": limit})
                ]
                for id in ids
            }

        return await self._admin_reader.read(read)

    async def find_miscounted(self, limit: int = 1_000) -> list[Miscount]:
        def read(db: SqliteConnection) -> list[Miscount]:
            if self._advancer.has_releases(db):
                return []
            return find_miscounts(_read_counted(db, self._sql.parents_of_waiting, {"limit": limit}))

        return await self._admin_reader.read(read)
