"""Inserting jobs with their edges to parents, all or none, in one transaction. `dependency_rows.plan_graph` decides.

    live parents locked, by id -> dead letters locked -> what has ended -> releases that are left locked -> jobs, edges

The order matters: a parent that ends while we wait for its row is found by a later statement, and none of those that were found
can change until our edges are stored. A parent that has ended may have a release that is still to be followed: it will meet our
edges too, so they count as open.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from drumbeat.core.claim import WriteStatus
from drumbeat.core.dependencies import GraphAnswer, NewGraph
from drumbeat.core.job import AddResult, JobState, NewJob
from drumbeat.core.uniqueness import select_new, unique_keys
from drumbeat.errors import WorkflowCancelled, WorkflowConflict, WorkflowNotFound
from drumbeat.ids import InstanceId, JobId, is_job_id
from drumbeat.store.completion_rows import encode_failure
from drumbeat.store.dependency_rows import ParentRow, ReleaseRow, group_releases
from drumbeat.store.graph_plan import (
    GraphPlan,
    missing_parent_error,
    outside_parents,
    plan_graph,
    refuse_conflicts,
    refuse_stored,
)
from drumbeat.store.postgres.connections import CALL_TIMEOUT, PostgresConnection, RetryTransaction, Session
from drumbeat.store.postgres.insert import (
    MIN_ROWS_PER_SECOND,
    PostgresInserter,
    due_at,
    earliest_end,
    insert_arguments,
    load_unique_keys,
)
from drumbeat.store.postgres.rows import to_columns
from drumbeat.store.records import as_json
from drumbeat.store.sqlfile import EngineStatements

LARGE_GRAPH = 2_000
"""More jobs and edges than this take long."""
_ROWS_PER_STATEMENT = 5_000


class Inserted(NamedTuple):
    answer: GraphAnswer
    earliest_due: int | None = None
    """When the first of the new jobs is due that wait for nothing."""
    has_releases: bool = False
    """Parents have releases that were held back by this."""


class _Attempts:
    """What is remembered from one try of the transaction to the next."""

    excludes_advances = False


class PostgresGraphInserter:
    def __init__(self, sql: EngineStatements, inserter: PostgresInserter) -> None:
        self._sql = sql.dependencies
        self._jobs = sql.jobs
        self._inserter = inserter

    async def add(self, connection: PostgresConnection, graph: NewGraph) -> Inserted:
        timeout = CALL_TIMEOUT + size_of(graph) / MIN_ROWS_PER_SECOND
        return await connection.transact(partial(self._add, graph, _Attempts()), timeout=timeout)

    async def _add(self, graph: NewGraph, attempts: _Attempts, session: Session) -> Inserted:
        if attempts.excludes_advances:
            await session.fetch(self._sql.exclude_advances)
        if size_of(graph) > LARGE_GRAPH:
            await session.fetch(self._sql.allow_pauses, f"{2_000 + size_of(graph) // 10}")
        ids = [job.id for job in graph.jobs]
        known: set[JobId] = set()
        if ids:
            known = {row[0] for row in await session.fetch(self._sql.known, ids, earliest_end(min(ids)))}
        parents = outside_parents((job for job in graph.jobs if job.id not in known), graph.edges)
        found, is_current = await self._lock_live(graph, parents, session)
        if not is_current:
            return Inserted(GraphAnswer(results=[], status=WriteStatus.STALE))
        if graph.step is not None:
            recorded = await session.fetchrow(self._sql.recorded_step, graph.step.claim.id, graph.step.name)
            if recorded is not None:
                status = WriteStatus.DUPLICATE
                return Inserted(GraphAnswer(results=[], status=status, recorded=recorded["result"]))
        keys = await load_unique_keys(self._jobs, session, unique_keys(graph.jobs))
        answers, new = select_new(graph.jobs, known, keys)
        if len(new) < len(graph.jobs):
            refuse_conflicts(graph, answers)
            parents = outside_parents(new, graph.edges)
        inserted = await self._insert(graph, new, parents, found, answers, attempts, session)
        if graph.step is not None:
            claim, step = graph.step.claim, graph.step
            facts = (claim.id, step.name, claim.token, step.started_at, step.finished_at, step.result)
            await session.execute(self._sql.insert_step, *facts)
        return inserted

    async def _lock_live(
        self, graph: NewGraph, parents: Sequence[JobId], session: Session
    ) -> tuple[dict[JobId, ParentRow], bool]:
        """Lock those of these parents that are live, and the job of the step; return them, and whether its claim is current."""
        fence = None if graph.step is None else graph.step.claim
        wanted = {id for id in parents if is_job_id(id)} | ({fence.id} if fence is not None else set())
        rows = await session.fetch(self._sql.lock_live_parents, sorted(wanted)) if wanted else []
        found = {row["id"]: _parent_row(row) for row in rows}
        holders: dict[JobId, tuple[int, InstanceId | None]] = {
            row["id"]: (row["token"], row["instance"]) for row in rows
        }
        is_current = fence is None or holders.get(fence.id) == (fence.token, graph.instance)
        return found, is_current

    async def _insert(
        self,
        graph: NewGraph,
        new: Sequence[NewJob],
        parents: Sequence[JobId],
        found: dict[JobId, ParentRow],
        answers: list[AddResult],
        attempts: _Attempts,
        session: Session,
    ) -> Inserted:
        await self._find_ended(graph, parents, found, session)
        ended = [id for id in parents if found[id].state not in (JobState.PENDING, JobState.RUNNING)]
        releases = await self._lock_releases(ended, attempts, session) if ended else []
        plan = await _plan(graph, new, found, releases)
        if plan.kept:
            await session.execute(self._sql.keep_results, sorted(plan.kept))
        await self._insert_workflow(graph, new, answers, session)
        if not new:
            return Inserted(GraphAnswer(results=answers))
        if plan.live_parents:
            await session.execute(self._sql.flag_parents, plan.live_parents)
        now = await self._insert_jobs(new, plan, session)
        for part in _parts(plan.edges):
            await session.execute(self._sql.insert_edges, *to_columns(part))
        await self._cancel(plan, session)
        dues = (due_at(job, now) for job in new if not plan.open_parents.get(job.id) and job.id not in plan.cancelled)
        return Inserted(GraphAnswer(results=answers), min(dues, default=None), bool(releases))

    async def _find_ended(
        self, graph: NewGraph, parents: Sequence[JobId], found: dict[JobId, ParentRow], session: Session
    ) -> None:
        """Add those that are not live to `found`.

        Raises:
            JobNotFound, JobExpired: one is nowhere.
        """
        missing = [id for id in parents if id not in found]
        wanted = [id for id in missing if is_job_id(id)]
        if wanted:
            letters = await session.fetch(self._sql.lock_dead_parents, wanted)
            await session.fetch(self._sql.lock_revivable_parents, wanted)
            ended = await session.fetch(self._sql.ended_parents, wanted)
            found.update({row["id"]: _parent_row(row) for row in (*letters, *ended)})
            missing = [id for id in missing if id not in found]
            # One that is there after all was moved while we looked, as by a replay. We begin anew: to lock it now, out of
            # order, could be a deadlock.
            if missing and await session.fetch(self._sql.known, [id for id in missing if is_job_id(id)], 0):
                raise RetryTransaction
        if missing:
            raise missing_parent_error(graph, missing[0], await session.fetchval(self._jobs.pruned_before))

    async def _lock_releases(self, ended: Sequence[JobId], attempts: _Attempts, session: Session) -> list[ReleaseRow]:
        """What is left of these parents, locked. Where some are being followed just now, we begin anew behind them: to wait
        here, with parents locked, could be a deadlock."""
        rows = await session.fetch(self._sql.lock_releases, ended)
        releases = [msgspec.convert(tuple(row), ReleaseRow) for row in rows]
        if await session.fetchval(self._sql.count_releases, ended) != len(releases):
            attempts.excludes_advances = True
            raise RetryTransaction
        return releases

    async def _insert_workflow(
        self, graph: NewGraph, new: Sequence[NewJob], answers: Sequence[AddResult], session: Session
    ) -> None:
        named = {job.workflow for job in new if job.workflow is not None}
        own = graph.workflow
        wanted = sorted(named | ({own.id} if own is not None else set()))
        if not wanted:
            return
        rows = await session.fetch(self._sql.lock_used_workflows, wanted)
        known: dict[str, bool] = {row["id"]: row["cancelled"] for row in rows}
        for id in sorted(named):
            if known.get(id):
                raise WorkflowCancelled(id)
            if id not in known and (own is None or id != own.id):
                raise WorkflowNotFound(id)
        if own is None or own.id in known:
            return
        refuse_stored(own, graph.jobs, answers)
        if own.unique:
            await session.fetch(self._sql.exclude_namesakes, own.name)
            live = await session.fetchval(self._sql.live_namesake, own.name)
            if live is not None:
                raise WorkflowConflict(own.name, live)
        await session.execute(self._sql.insert_workflow, own.id, own.name, as_json(own.labels))

    async def _insert_jobs(self, new: Sequence[NewJob], plan: GraphPlan, session: Session) -> int:
        """Store the jobs; return the store's now. Another one of these ids or keys meanwhile: all is decided anew."""
        now = 0
        for part in _parts(new):
            nodes = [
                [job.id in plan.new_parents for job in part],
                [job.id in plan.binding for job in part],
                [None if job.id in plan.cancelled else plan.open_parents.get(job.id) for job in part],
            ]
            rows = await session.fetch(self._jobs.insert_nodes, *insert_arguments(part), *nodes)
            if len(rows) < len(part):
                raise RetryTransaction
            now = rows[0]["now"]
        ids = [job.id for job in new]
        # Inserted by another transaction, and ended, before our statement could see either.
        if await session.fetch(self._sql.ended, ids, earliest_end(min(ids))):
            raise RetryTransaction
        await self._inserter.recheck_keys(new, session)
        return now

    async def _cancel(self, plan: GraphPlan, session: Session) -> None:
        """Move new jobs to history whose parents have failed."""
        for part in _parts(list(plan.cancelled.items())):
            rows = [
                (child, JobState.CANCELLED.value, None, None, None, None, None, encode_failure(error))
                for child, (_, error) in part
            ]
            await session.execute(self._jobs.move_to_history, *to_columns(rows))
            await session.execute(
                self._sql.insert_cancelled, *to_columns((child, parent) for child, (parent, _) in part)
            )
        if plan.cancelled:
            # Those of this call whose outcome a child of this call binds: they are in history only now.
            kept = sorted(plan.cancelled.keys() & set(plan.kept))
            if kept:
                await session.execute(self._sql.keep_results, kept)


async def _plan(
    graph: NewGraph, new: Sequence[NewJob], parents: dict[JobId, ParentRow], releases: Sequence[ReleaseRow]
) -> GraphPlan:
    left = group_releases(releases)
    if size_of(graph) <= LARGE_GRAPH:
        return plan_graph(new, graph.edges, parents, left)
    # Up to a second: in a thread, the loop has heartbeats to send.
    return await asyncio.to_thread(plan_graph, new, graph.edges, parents, left)


def size_of(graph: NewGraph) -> int:
    return len(graph.jobs) + len(graph.edges)


def _parent_row(row: Any) -> ParentRow:
    return ParentRow(row["id"], row["task"], JobState(row["state"]), row["replays"], row["is_letter"])


def _parts(rows: Sequence[Any]) -> list[Sequence[Any]]:
    return [rows[start : start + _ROWS_PER_STATEMENT] for start in range(0, len(rows), _ROWS_PER_STATEMENT)]
