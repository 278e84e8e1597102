"""Searches for jobs on SQLite: answers the questions of `store/job_search.py` with the statements of sql/search.sql."""

from typing import Any

import msgspec

from drumbeat.core.job_query import JobCounts, JobFilter, JobPage, WaitCounts
from drumbeat.ids import JobId
from drumbeat.store import job_search
from drumbeat.store.cached_count import CachedCount
from drumbeat.store.job_search import Question, RangeScan, ScanResult, Search, SmallSet
from drumbeat.store.records import StoredJobRow, as_json
from drumbeat.store.sqlfile import Statements
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.connection import SqliteConnection
from drumbeat.store.sqlite.parts import SqliteOperations, SqliteParts

_ids = msgspec.json.Decoder(list[JobId]).decode
_decode_scan = msgspec.json.Decoder(tuple[int, JobId | None, list[tuple[JobId, str]]]).decode
_decode_counts = msgspec.json.Decoder(JobCounts).decode
_decode_waits = msgspec.json.Decoder(WaitCounts).decode


class SqliteSearch(SqliteOperations):
    def __init__(self, parts: SqliteParts, sql: Statements) -> None:
        super().__init__(parts, sql)
        self._all = CachedCount[JobCounts](parts.clock, lambda counts: counts.total)

    async def page(self, filter: JobFilter) -> JobPage:
        def read(db: SqliteConnection) -> tuple[list[StoredJobRow], JobId | None]:
            results = self._run_search(db, filter, job_search.page_search(filter), words=False)
            ids, following = job_search.merge_page(results, filter.limit)
            found: list[StoredJobRow] = []
            wanted = {"ids": as_json(ids), "preview": job_search.preview_length(filter)}
            for name in job_search.record_statements(filter, results, ids):
                found += rows.jobs(db, getattr(self._parts.sql.inspect, name), wanted)
            return found, following

        found, following = await self._admin_reader.read(read)
        found.sort(key=lambda row: row.id, reverse=True)
        return JobPage(items=[row.to_record() for row in found], next=following)

    async def counts(self, filter: JobFilter) -> JobCounts:
        if job_search.is_unfiltered(filter):
            return await self._all.get(self._count_all)
        if job_search.is_all_dead_letters(filter):
            return JobCounts(dead=await self._admin_reader.read_value(self._sql.count_letters, {}))
        return job_search.count_matches(
            await self._admin_reader.read(
                lambda db: self._run_search(db, filter, job_search.count_search(filter), words=True)
            )
        )

    async def count_waits(self) -> WaitCounts:
        return _decode_waits(await self._admin_reader.read_value(self._sql.waits, {"now": self._clock.now_us()}))

    async def _count_all(self) -> JobCounts:
        return _decode_counts(await self._admin_reader.read_value(self._sql.counts, {"now": self._clock.now_us()}))

    # On the reader's thread.

    def _run_search(self, db: SqliteConnection, filter: JobFilter, search: Search, *, words: bool) -> list[ScanResult]:
        only_ids = not words and job_search.is_whole_span(filter)
        wanted = msgspec.to_builtins(filter) | {"now": self._clock.now_us()}
        step = job_search.advance(search)
        while not isinstance(step, list):
            step = job_search.advance(search, self._execute(db, wanted, step, only_ids=only_ids))
        return step

    def _execute(self, db: SqliteConnection, wanted: dict[str, Any], question: Question, *, only_ids: bool) -> Any:
        name = question.statement.replace("_scan", "_ids") if only_ids else question.statement
        statement: str = getattr(self._sql, name)
        if isinstance(question, SmallSet):
            return _ids(db.value(statement, wanted | {"limit": question.limit}))
        wanted = wanted | {"low": question.span.low, "high": question.span.high}
        if isinstance(question, RangeScan):
            return _decode_scan(db.value(statement, wanted | {"limit": question.limit}))
        return _decode_scan(db.value(statement, wanted | {"ids": as_json(question.ids)}))[2]
