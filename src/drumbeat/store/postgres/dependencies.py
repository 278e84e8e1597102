"""Dependencies between jobs on PostgreSQL. The contract is in `store.protocol.DependencyStore`."""

from collections.abc import Iterable, Sequence
from typing import Any

from drumbeat.core.dependencies import (
    Binding,
    GraphAnswer,
    IfParentFails,
    Miscount,
    NewGraph,
    ParentLink,
    ParentResult,
)
from drumbeat.core.job import JobState
from drumbeat.ids import JobId, is_job_id
from drumbeat.store.malformed import read_failure
from drumbeat.store.postgres.connections import LONG_TIMEOUT, PlanMode
from drumbeat.store.postgres.graph_insert import LARGE_GRAPH, PostgresGraphInserter, size_of
from drumbeat.store.postgres.parts import PostgresParts
from drumbeat.store.protocol.dependencies import MAX_BOUND_PARENTS


class PostgresDependencies:
    def __init__(self, parts: PostgresParts) -> None:
        self._sql = parts.sql.dependencies
        self._see_signals = parts.sql.steps.see_signals
        self._connection = parts.connection
        self._report_connection = parts.report_connection
        self._notifier = parts.notifier
        self._advancer = parts.advancer
        self._inserter = PostgresGraphInserter(parts.sql, parts.inserter)

    async def add(self, graph: NewGraph) -> GraphAnswer:
        # A large one takes long: not on the connection that others wait for.
        connection = self._report_connection if size_of(graph) > LARGE_GRAPH else self._connection
        inserted = await self._inserter.add(connection, graph)
        self._notifier.notify(inserted.earliest_due)
        await self._notifier.flush()
        await self._advancer.follow(inserted.has_releases)
        return inserted.answer

    async def advance(self) -> bool:
        await self._connection.call(lambda session: session.execute(self._see_signals), plan_mode=PlanMode.ANY)
        return await self._advancer.step()

    async def load_results(self, ids: Sequence[JobId]) -> dict[JobId, list[ParentResult]]:
        wanted = [id for id in ids if is_job_id(id)]
        found: dict[JobId, list[ParentResult]] = {}
        if wanted:
            rows = await self._connection.call(
                lambda session: session.fetch(self._sql.load_results, wanted, MAX_BOUND_PARENTS), timeout=LONG_TIMEOUT
            )
            for row in rows:
                found.setdefault(row["child"], []).append(_parent_result(row))
        return found

    async def page_results(self, child: JobId, argument: str, after: int, limit: int) -> list[ParentResult]:
        if not is_job_id(child):
            return []
        rows = await self._connection.call(
            lambda session: session.fetch(self._sql.page_results, child, argument, after, limit)
        )
        return [_parent_result(row) for row in rows]

    async def list_parents(self, ids: Sequence[JobId], limit: int) -> dict[JobId, list[ParentLink]]:
        return await self._list_links(self._sql.list_parents, ids, limit)

    async def list_children(self, ids: Sequence[JobId], limit: int) -> dict[JobId, list[ParentLink]]:
        return await self._list_links(self._sql.list_children, ids, limit)

    async def find_miscounted(self, limit: int = 1_000) -> list[Miscount]:
        rows = await self._report_connection.call(
            lambda session: session.fetch(self._sql.find_miscounted, limit), timeout=LONG_TIMEOUT
        )
        return [Miscount(id=row["id"], counted=row["counted"], actual=row["actual"]) for row in rows]

    async def _list_links(self, statement: str, ids: Sequence[JobId], limit: int) -> dict[JobId, list[ParentLink]]:
        wanted = [id for id in dict.fromkeys(ids) if is_job_id(id)]
        rows: Iterable[Any] = ()
        if wanted:
            rows = await self._report_connection.call(
                lambda session: session.fetch(statement, wanted, limit), timeout=LONG_TIMEOUT
            )
        found: dict[JobId, list[ParentLink]] = {id: [] for id in ids}
        for row in rows:
            found[row["of_job"]].append(
                ParentLink(
                    id=row["id"],
                    task=row["task"],
                    state=None if row["state"] is None else JobState(row["state"]),
                    if_fails=IfParentFails(row["if_fails"]),
                    binding=Binding(row["binding"]),
                    argument=row["argument"],
                    is_open=row["is_open"],
                )
            )
        return found


def _parent_result(row: Any) -> ParentResult:
    return ParentResult(
        parent=row["parent"],
        task=row["task"],
        binding=Binding(row["binding"]),
        argument=row["argument"],
        place=row["place"],
        state=None if row["state"] is None else JobState(row["state"]),
        result=row["result"],
        result_error=row["result_error"],
        error=read_failure(row["error"]),
    )
