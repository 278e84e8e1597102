"""Searches for jobs on SQLite: answers the questions of `store/job_search.py` with the statements of sql/search.sql."""

from typing import Any

import msgspec

from drumbeat.core.job_query import JobCounts, JobFilter, JobPage
from drumbeat.ids import JobId
from drumbeat.store import job_search
from drumbeat.store.cached_count import CachedCount
from drumbeat.store.job_search import Question, RangeScan, ScanResult, Search, SmallSet
from drumbeat.store.records import StoredJobRow, as_json
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.connection import SqliteConnection
from drumbeat.store.sqlite.parts import SqliteParts

_ids = msgspec.json.Decoder(list[JobId]).decode
_decode_scan = msgspec.json.Decoder(tuple[int, JobId | None, list[tuple[JobId, str]]]).decode
_decode_counts = msgspec.json.Decoder(tuple[int, int, int, int, int, int, int, int, int]).decode


class SqliteSearch:
    def __init__(self, parts: SqliteParts) -> None:
        self._sql = parts.sql.search
        self._records = parts.sql.inspect
        self._reader = parts.admin_reader
        self._clock = parts.clock
        self._all = CachedCount[JobCounts](parts.clock, lambda counts: counts.total)

    async def page(self, filter: JobFilter) -> JobPage:
        def read(db: SqliteConnection) -> tuple[list[StoredJobRow], JobId | None]:
            results = self._run_search(db, filter, job_search.page_search(filter), words=False)
            ids, following = job_search.merge_page(results, filter.limit)
            found: list[StoredJobRow] = []
            wanted = {"ids": as_json(ids), "preview": job_search.preview_length(filter)}
            for name in job_search.record_statements(filter, results, ids):
                found += rows.jobs(db, getattr(self._records, name), wanted)
            return found, following

        found, following = await self._reader.read(read)
        found.sort(key=lambda row: row.id, reverse=True)
        return JobPage(items=[row.to_record() for row in found], next=following)

    async def counts(self, filter: JobFilter) -> JobCounts:
        if job_search.is_unfiltered(filter):
            return await self._all.get(self._count_all)
        if job_search.is_all_dead_letters(filter):
            return JobCounts(dead=int(await self._reader.read_value(self._sql.count_letters, {})))
        return job_search.count_matches(
            await self._reader.read(
                lambda db: self._run_search(db, filter, job_search.count_search(filter), words=True)
            )
        )

    async def _count_all(self) -> JobCounts:
        text = await self._reader.read_value(self._sql.counts, {"now": self._clock.now_us()})
        ready, future, tried, waiting, running, ended, cancelled, discarded, letters = _decode_counts(text)
        return JobCounts(
            ready=ready,
            scheduled=future - tried,
            retrying=tried,
            waiting=waiting,
            running=running,
            succeeded=ended - cancelled - discarded,
            dead=discarded + letters,
            cancelled=cancelled,
        )

    # On the reader's thread.

    def _run_search(self, db: SqliteConnection, filter: JobFilter, search: Search, *, words: bool) -> list[ScanResult]:
        only_ids = not words and job_search.is_whole_span(filter)
        wanted = msgspec.structs.asdict(filter)
        wanted["state"] = None if filter.state is None else filter.state.value
        wanted["view"] = None if filter.view is None else filter.view.value
        wanted["now"] = self._clock.now_us()
        answer: Any = None
        while True:
            try:
                question = search.send(answer)
            except StopIteration as end:
                results: list[ScanResult] = end.value
                return results
            answer = self._execute(db, wanted, question, only_ids=only_ids)

    def _execute(self, db: SqliteConnection, wanted: dict[str, Any], question: Question, *, only_ids: bool) -> Any:
        name = question.statement.replace("_scan", "_ids") if only_ids else question.statement
        statement: str = getattr(self._sql, name)
        if isinstance(question, SmallSet):
            return _ids(db.value(statement, wanted | {"limit": question.limit}))
        wanted = wanted | {"low": question.span.low, "high": question.span.high}
        if isinstance(question, RangeScan):
            return _decode_scan(db.value(statement, wanted | {"limit": question.limit}))
        return _decode_scan(db.value(statement, wanted | {"ids": as_json(question.ids)}))[2]
