"""How jobs are searched on PostgreSQL: the questions of `store.searching`, answered by the statements of sql/search.sql."""

from functools import partial
from typing import Any

from drumbeat.clock import Clock
from drumbeat.ids import JobId
from drumbeat.model.job import JobCounts, JobFilter, JobPage
from drumbeat.store import searching
from drumbeat.store.postgres import rows
from drumbeat.store.postgres.caution import Guard, careful
from drumbeat.store.postgres.connections import LONG, Link, Session
from drumbeat.store.postgres.statements import Statements
from drumbeat.store.searching import Few, Look, Question, Recent, Search, Walked


class PostgresSearch:
    def __init__(self, sql: Statements, *, link: Link, clock: Clock) -> None:
        self._sql = sql
        self._link = link
        self._all = Recent[JobCounts](clock, lambda counts: counts.total)

    async def page(self, filter: JobFilter) -> JobPage:
        return await careful(lambda guard: self._link.transact(partial(self._page, filter, guard), patience=LONG))

    async def counts(self, filter: JobFilter) -> JobCounts:
        if searching.is_open(filter):
            return await self._all.get(self._count_all)
        if searching.is_letters(filter):
            counted = self._sql.search.count_letters
            return JobCounts(dead=await self._link.call(lambda session: session.fetchval(counted), patience=LONG))
        return searching.tally(
            await careful(lambda guard: self._link.transact(partial(self._count, filter, guard), patience=LONG))
        )

    async def _count_all(self) -> JobCounts:
        found = await self._link.call(lambda session: session.fetchrow(self._sql.search.counts), patience=LONG)
        return JobCounts(**dict(found.items()))

    async def _page(self, filter: JobFilter, guard: Guard, session: Session) -> JobPage:
        await session.execute(self._sql.schema.one_snapshot)
        looks = await self._drive(session, filter, guard, searching.page_search(filter))
        ids, following = searching.newest(looks, filter.limit)
        found: list[Any] = []
        for name in searching.records(filter, looks, ids):
            found += await session.fetch(getattr(self._sql.inspect, name), ids, searching.preview(filter))
        found.sort(key=lambda row: str(row["id"]), reverse=True)
        return JobPage(items=[rows.job(row) for row in found], next=following)

    async def _count(self, filter: JobFilter, guard: Guard, session: Session) -> list[Look]:
        await session.execute(self._sql.schema.one_snapshot)
        return await self._drive(session, filter, guard, searching.count_search(filter))

    async def _drive(self, session: Session, filter: JobFilter, guard: Guard, search: Search) -> list[Look]:
        answer: Any = None
        while True:
            try:
                question = search.send(answer)
            except StopIteration as end:
                looks: list[Look] = end.value
                return looks
            answer = await self._answered(session, filter, guard, question)

    async def _answered(self, session: Session, filter: JobFilter, guard: Guard, question: Question) -> Any:
        statement = guard(getattr(self._sql.search, question.statement))
        if isinstance(question, Few):
            found = await session.fetch(statement, *_of_set(question.statement, filter), question.limit)
            return [row["id"] for row in found]
        state = None if filter.state is None else filter.state.value
        view = None if filter.view is None else filter.view.value
        wanted = (state, view, filter.task, filter.queue, filter.key, filter.error, filter.schedule, filter.instance)
        last = question.limit if isinstance(question, Walked) else question.ids
        row = await session.fetchrow(statement, *wanted, question.span.low, question.span.high, last)
        some: list[tuple[JobId, str]] = list(zip(row["ids"] or (), row["words"] or (), strict=True))
        return (row["looked"], row["smallest"], some) if isinstance(question, Walked) else some


def _of_set(statement: str, filter: JobFilter) -> tuple[str | None, ...]:
    """What a statement about a set wants to know of it."""
    state = None if filter.state is None else filter.state.value
    return {
        "few_of_key": (filter.task, filter.key),
        "few_running": (filter.instance,),
        "few_ready": (filter.queue,),
        "few_future": (filter.queue,),
        "few_unsucceeded": (state, filter.task),
    }.get(statement, ())
