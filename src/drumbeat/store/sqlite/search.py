"""How jobs are searched on SQLite: the questions of `store.searching`, answered by the statements of sql/search.sql."""

from typing import Any

import msgspec

from drumbeat.clock import Clock
from drumbeat.ids import JobId
from drumbeat.model.job import JobCounts, JobFilter, JobPage
from drumbeat.store import searching
from drumbeat.store.records import JobRow
from drumbeat.store.searching import Few, Look, Question, Recent, Search, Walked
from drumbeat.store.sqlite import rows
from drumbeat.store.sqlite.connection import Connection
from drumbeat.store.sqlite.reader import Reader
from drumbeat.store.sqlite.rows import as_json
from drumbeat.store.sqlite.statements import InspectSql, SqliteSearchSql

_ids = msgspec.json.Decoder(list[JobId]).decode
_answer = msgspec.json.Decoder(tuple[int, JobId | None, list[tuple[JobId, str]]]).decode
_numbers = msgspec.json.Decoder(tuple[int, int, int, int, int, int, int, int, int]).decode


class SqliteSearch:
    def __init__(self, sql: SqliteSearchSql, records: InspectSql, *, reader: Reader, clock: Clock) -> None:
        self._sql = sql
        self._records = records
        self._reader = reader
        self._clock = clock
        self._all = Recent[JobCounts](clock, lambda counts: counts.total)

    async def page(self, filter: JobFilter) -> JobPage:
        def look(db: Connection) -> tuple[list[JobRow], JobId | None]:
            looks = self._drive(db, filter, searching.page_search(filter), words=False)
            ids, following = searching.newest(looks, filter.limit)
            found: list[JobRow] = []
            wanted = {"ids": as_json(ids), "preview": searching.preview(filter)}
            for name in searching.records(filter, looks, ids):
                found += rows.jobs(db, getattr(self._records, name), wanted)
            return found, following

        found, following = await self._reader.read(look)
        found.sort(key=lambda row: row.id, reverse=True)
        return JobPage(items=[row.record() for row in found], next=following)

    async def counts(self, filter: JobFilter) -> JobCounts:
        if searching.is_open(filter):
            return await self._all.get(self._count_all)
        if searching.is_letters(filter):
            return JobCounts(dead=int(await self._reader.text(self._sql.count_letters, {})))
        return searching.tally(
            await self._reader.read(lambda db: self._drive(db, filter, searching.count_search(filter), words=True))
        )

    async def _count_all(self) -> JobCounts:
        text = await self._reader.text(self._sql.counts, {"now": self._clock.now_us()})
        ready, future, tried, waiting, running, ended, cancelled, discarded, letters = _numbers(text)
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

    def _drive(self, db: Connection, filter: JobFilter, search: Search, *, words: bool) -> list[Look]:
        only_ids = not words and searching.is_bare(filter)
        wanted = msgspec.structs.asdict(filter)
        wanted["state"] = None if filter.state is None else filter.state.value
        wanted["view"] = None if filter.view is None else filter.view.value
        wanted["now"] = self._clock.now_us()
        answer: Any = None
        while True:
            try:
                question = search.send(answer)
            except StopIteration as end:
                looks: list[Look] = end.value
                return looks
            answer = self._answered(db, wanted, question, only_ids=only_ids)

    def _answered(self, db: Connection, wanted: dict[str, Any], question: Question, *, only_ids: bool) -> Any:
        name = question.statement.replace("_walk", "_ids") if only_ids else question.statement
        statement: str = getattr(self._sql, name)
        if isinstance(question, Few):
            return _ids(db.value(statement, wanted | {"limit": question.limit}))
        wanted = wanted | {"low": question.span.low, "high": question.span.high}
        if isinstance(question, Walked):
            return _answer(db.value(statement, wanted | {"limit": question.limit}))
        return _answer(db.value(statement, wanted | {"ids": as_json(question.ids)}))[2]
