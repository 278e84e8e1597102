"""Searches for jobs on PostgreSQL: answers the questions of `store/job_search.py` with the statements of sql/search.sql."""

from functools import partial
from typing import Any

import msgspec

from drumbeat.core.job_query import JobCounts, JobFilter, JobPage, WaitCounts
from drumbeat.ids import JobId
from drumbeat.store import job_search
from drumbeat.store.cached_count import CachedCount
from drumbeat.store.job_search import Question, RangeScan, ScanResult, Search, SmallSet
from drumbeat.store.postgres import rows
from drumbeat.store.postgres.connections import LONG_TIMEOUT, Session
from drumbeat.store.postgres.json_guard import StatementGuard, run_guarded
from drumbeat.store.postgres.parts import PostgresParts

_PARAMETERS = ("state", "view", "task", "queue", "key", "error", "schedule", "instance", "parent")
"""$1 to $9 of a scan or filter: fields of JobFilter. ($13 is the workflow.)"""
_SET_PARAMETERS = {
    "small_of_key": ("task", "key"),
    "small_running": ("instance",),
    "small_ready": ("queue",),
    "small_future": ("queue",),
    "small_unsucceeded": ("state", "task"),
}
"""The same of the statements of small sets."""


class PostgresSearch:
    def __init__(self, parts: PostgresParts) -> None:
        self._sql = parts.sql
        self._connection = parts.report_connection
        self._total_cache = CachedCount[JobCounts](parts.clock, lambda counts: counts.total)

    async def page(self, filter: JobFilter) -> JobPage:
        return await run_guarded(
            lambda guard: self._connection.transact(partial(self._page, filter, guard), timeout=LONG_TIMEOUT)
        )

    async def counts(self, filter: JobFilter) -> JobCounts:
        if job_search.is_unfiltered(filter):
            return await self._total_cache.get(self._count_all)
        if job_search.is_all_dead_letters(filter):
            counted = self._sql.search.count_letters
            return JobCounts(
                dead=await self._connection.call(lambda session: session.fetchval(counted), timeout=LONG_TIMEOUT)
            )
        return job_search.count_matches(
            await run_guarded(
                lambda guard: self._connection.transact(partial(self._count, filter, guard), timeout=LONG_TIMEOUT)
            )
        )

    async def count_waits(self) -> WaitCounts:
        found = await self._connection.call(
            lambda session: session.fetchrow(self._sql.search.waits), timeout=LONG_TIMEOUT
        )
        return WaitCounts(**dict(found.items()))

    async def _count_all(self) -> JobCounts:
        found = await self._connection.call(
            lambda session: session.fetchrow(self._sql.search.counts), timeout=LONG_TIMEOUT
        )
        return JobCounts(**dict(found.items()))

    async def _page(self, filter: JobFilter, guard: StatementGuard, session: Session) -> JobPage:
        await session.execute(self._sql.schema.use_snapshot)
        results = await self._run_search(session, filter, guard, job_search.page_search(filter))
        ids, following = job_search.merge_page(results, filter.limit)
        found: list[Any] = []
        for name in job_search.record_statements(filter, results, ids):
            found += await session.fetch(getattr(self._sql.inspect, name), ids, job_search.preview_length(filter))
        found.sort(key=lambda row: str(row["id"]), reverse=True)
        return JobPage(items=[rows.job(row) for row in found], next=following)

    async def _count(self, filter: JobFilter, guard: StatementGuard, session: Session) -> list[ScanResult]:
        await session.execute(self._sql.schema.use_snapshot)
        return await self._run_search(session, filter, guard, job_search.count_search(filter))

    async def _run_search(
        self, session: Session, filter: JobFilter, guard: StatementGuard, search: Search
    ) -> list[ScanResult]:
        step = job_search.advance(search)
        while not isinstance(step, list):
            step = job_search.advance(search, await self._answer_question(session, filter, guard, step))
        return step

    async def _answer_question(
        self, session: Session, filter: JobFilter, guard: StatementGuard, question: Question
    ) -> Any:
        statement = guard(getattr(self._sql.search, question.statement))
        facts = msgspec.to_builtins(filter)
        if isinstance(question, SmallSet):
            given = [facts[name] for name in _SET_PARAMETERS.get(question.statement, ())]
            return [row["id"] for row in await session.fetch(statement, *given, question.limit)]
        wanted = [facts[name] for name in _PARAMETERS]
        limit_or_ids = question.limit if isinstance(question, RangeScan) else question.ids
        row = await session.fetchrow(
            statement, *wanted, question.span.low, question.span.high, limit_or_ids, facts["workflow"]
        )
        matches: list[tuple[JobId, str]] = list(zip(row["ids"] or (), row["views"] or (), strict=True))
        return (row["scanned"], row["smallest"], matches) if isinstance(question, RangeScan) else matches
