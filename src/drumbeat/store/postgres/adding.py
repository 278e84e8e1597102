"""How jobs get into the live table: new ones, follow-ups, and the rule of unique keys.

Calls that wait for the line are stored together, in one statement: a thousand coroutines that enqueue one job each cost a
few commits. Nearly always nothing of a batch is known, and that one statement says so; where something is, it is undone and
the batch is looked at job by job.

Whoever enqueues in bulk holds the loop while the next jobs are bound. So that the server has work meanwhile, a large batch that
waits is on its way before the answer to the last one is given:

    loop    | bind C | answer A, send B    | bind D | answer B, send C    |
    server  | stores A ...............     | stores B .............       |
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

from drumbeat.errors import DrumbeatError, StoreError, StoreUnavailable
from drumbeat.ids import JobId, created_us, is_job_id
from drumbeat.model.job import Added, NewJob, Unique
from drumbeat.store.postgres import failures
from drumbeat.store.postgres.connections import PATIENCE, Again, Link, Plans, Session
from drumbeat.store.postgres.copying import COLUMNS, Batch
from drumbeat.store.postgres.statements import JobSql, Statements
from drumbeat.store.postgres.wake import Announcer

COPIED = 500
"""Batches of so many jobs are copied into the table, which takes two thirds of an INSERT, with unique keys half."""
_ENOUGH = 2_000
"""So many jobs pay for a commit of their own: no more are stored together."""
_HEAD_START = 0.02
"""Seconds for which an answer is held back at most, until the next batch is on its way."""
_ROWS_A_SECOND = 5_000
"""A batch may take longer than a call: so many rows even a slow server stores in a second."""


class Stored(NamedTuple):
    due: int
    """The due moment of the earliest."""
    told: bool
    """Whether workers hear of it with the commit."""


class Adding:
    def __init__(self, sql: Statements, namespace: str, link: Link, announcer: Announcer) -> None:
        self._sql = sql.jobs
        self._namespace = namespace
        self._link = link
        self._announcer = announcer
        self._waiting: list[tuple[Sequence[NewJob], asyncio.Future[list[Added]]]] = []
        self._task: asyncio.Task[None] | None = None
        self._untold: list[tuple[asyncio.Future[list[Added]], list[Added]]] = []
        """What is stored, and the answer held back for a moment."""
        self._closed = False
        self._calls = 0
        """How many are under way."""

    async def add(self, jobs: Sequence[NewJob]) -> list[Added]:
        """All or none; one answer for each."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[Added]] = loop.create_future()
        self._waiting.append((jobs, answer))
        if self._task is None:
            # Not in a task group: it works for several callers, none of which may take it down. `close` ends it.
            self._task = loop.create_task(self._work(), name="drumbeat adding")
        self._calls += 1
        try:
            added = await answer
        finally:
            self._calls -= 1
        if not self._calls:
            await self._announcer.settle()
        return added

    async def close(self) -> None:
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        for _, answer in self._waiting:
            if not answer.done():
                answer.set_exception(StoreUnavailable("the store was closed"))
        self._waiting.clear()

    async def add_within(self, session: Session, jobs: Sequence[NewJob]) -> list[int]:
        """Follow-ups, in the step that makes their jobs dead; gives the due moments of those that are new."""
        if not jobs:
            return []
        rows = await session.fetch(self._sql.insert, *arguments(jobs))
        return [due_at(job, row["now"]) for job, row in zip(jobs, rows, strict=False)]

    async def _work(self) -> None:
        try:
            while self._waiting:
                group = self._take()
                try:
                    await self._store(group)
                except asyncio.CancelledError:
                    _fail(group, StoreUnavailable("the store was closed"))
                    raise
        finally:
            self._tell()
            self._task = None

    def _take(self) -> list[tuple[Sequence[NewJob], "asyncio.Future[list[Added]]"]]:
        size = taken = 0
        for jobs, _ in self._waiting:
            if taken and size + len(jobs) > _ENOUGH:
                break
            size += len(jobs)
            taken += 1
        group, self._waiting = self._waiting[:taken], self._waiting[taken:]
        return [(jobs, answer) for jobs, answer in group if not answer.done()]

    async def _store(self, group: list[tuple[Sequence[NewJob], "asyncio.Future[list[Added]]"]]) -> None:
        """Together; alone if that fails for any other reason than that the server is away."""
        jobs = [job for several, _ in group for job in several] if len(group) > 1 else group[0][0] if group else ()
        if not jobs:
            return
        try:
            answers = iter(await self._add(jobs))
        except StoreError as error:
            if len(group) == 1 or isinstance(error, StoreUnavailable):
                _fail(group, error)
                return
            for each in group:
                await self._store([each])
            return
        except DrumbeatError as error:
            _fail(group, error)
            return
        self._untold += [(answer, list(islice(answers, len(several)))) for several, answer in group]
        if self._waiting and len(self._waiting[0][0]) >= COPIED:
            asyncio.get_running_loop().call_later(_HEAD_START, self._tell)
        else:
            self._tell()

    def _tell(self) -> None:
        untold, self._untold = self._untold, []
        for answer, given in untold:
            if not answer.done():
                answer.set_result(given)

    async def _add(self, jobs: Sequence[NewJob]) -> list[Added]:
        patience = PATIENCE + len(jobs) / _ROWS_A_SECOND
        try:
            stored = await self._add_new(jobs, patience)
        except failures.KnownJobs:
            answers, soonest = await self._link.transact(partial(self._one_by_one, jobs), patience=patience)
            if soonest is not None:
                self._announcer.tell(soonest)
            return answers
        self._announcer.tell(stored.due, told=stored.told)
        return [Added(job.id, True) for job in jobs]

    async def _add_new(self, jobs: Sequence[NewJob], patience: float) -> Stored:
        """Store jobs none of which is known.

        Raises:
            KnownJobs: one is, nothing was stored.
        """
        if len(jobs) == 1 and not jobs[0].unique:
            return await self._link.call(partial(self._insert_one, jobs[0]), patience=patience, plans=Plans.ONCE)
        if len(jobs) >= COPIED:
            batch = Batch(jobs)
            if Unique.PENDING not in batch.of("unique"):
                copied = partial(self._copy, batch)
                moment = await self._link.transact(copied, patience=patience, plans=Plans.ONCE)
                if moment is not None:
                    return Stored(batch.earliest(moment), False)
        now = await self._link.call(partial(self._insert, jobs), patience=patience)
        return Stored(min(due_at(job, now) for job in jobs), False)

    async def _insert(self, jobs: Sequence[NewJob], session: Session) -> int:
        with failures.known_jobs():
            now: int = await session.fetchval(self._sql.add, *arguments(jobs), min(_ids(jobs)), max(_ids(jobs)))
        return now

    async def _insert_one(self, job: NewJob, session: Session) -> Stored:
        with failures.known_jobs():
            row = await session.fetchrow(
                self._sql.add_one,
                *(job.id, job.task, job.queue, job.args, job.signature, job.priority, job.run_at, job.delay, job.key),
                *(job.retries, job.timeout, job.crash_limit, job.on_dead, job.tenant, _since(job.id), job.trace),
                self._announcer.voice(alone=self._calls == 1),
            )
        return Stored(due_at(job, row["now"]), row["told"])

    async def _copy(self, batch: Batch, session: Session) -> int | None:
        """The store's now; None if it must be done otherwise, and nothing was stored.

        The unique indexes see every job of Unique.LIVE that holds a key, but of Unique.PENDING only some. Where a task has any
        of those at all, its jobs are compared one by one; they are looked for again at the end, when ours are there to be
        seen by others.
        """
        tasks = list(dict.fromkeys(batch.of("task"))) if Unique.LIVE in batch.of("unique") else []
        now, doubtful = await session.fetchrow(self._sql.before_copy, tasks)
        if doubtful:
            return None
        first, last = min(batch.ids), max(batch.ids)
        with failures.known_jobs():
            await session.copy_to_table(
                "job", schema_name=self._namespace, columns=COLUMNS, source=self._sent(batch.rows(now)), format="binary"
            )
            look = await session.fetchrow(self._sql.after_copy, tasks, first, last, _since(first))
            if look["doubtful"]:
                raise failures.KnownJobs("one of these keys may have been taken meanwhile")
            if look["crowded"] and await session.fetch(self._sql.states, batch.ids):
                raise failures.KnownJobs("one of these jobs has ended")
        moment: int = now
        return moment

    async def _sent(self, rows: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for some in rows:
            yield some
        self._tell()

    async def _one_by_one(self, jobs: Sequence[NewJob], session: Session) -> tuple[list[Added], int | None]:
        """Look who is known and who holds which key, decide, and insert the others; and due moment of the earliest."""
        ids = list(_ids(jobs))
        known = {row["id"] for row in await session.fetch(self._sql.known, ids)}
        keys = await keys_of(self._sql, session, ((job.task, job.key) for job in jobs if job.unique and job.key))
        answers: list[Added] = []
        new: list[NewJob] = []
        for job in jobs:
            holder = None if job.id in known else keys.holder(job.task, job.key, job.unique)
            if job.id in known or holder is not None:
                answers.append(Added(holder or job.id, False))
                continue
            known.add(job.id)
            keys.take(job.task, job.key, job.unique, job.id)
            new.append(job)
            answers.append(Added(job.id, True))
        if not new:
            return answers, None
        rows = await session.fetch(self._sql.insert, *arguments(new))
        # Fewer: somebody came between look and insert. In history now: it ended between its absence and our snapshot.
        if len(rows) < len(new) or await session.fetch(self._sql.states, list(_ids(new))):
            raise Again
        await self._look_again(new, session)
        return answers, min(due_at(job, rows[0]["now"]) for job in new)

    async def _look_again(self, new: Sequence[NewJob], session: Session) -> None:
        """Whether somebody else's unique job was added and claimed between our look and our insert."""
        lasting = [job for job in new if job.unique is Unique.LIVE]
        if lasting:
            try:
                with failures.known_jobs():
                    tasks = list(dict.fromkeys(job.task for job in lasting))
                    await session.execute(self._sql.refuse_held, list(_ids(lasting)), tasks)
            except failures.KnownJobs:
                raise Again from None


class Keys:
    """Who holds which unique key at this moment of the transaction, and who takes one in it."""

    def __init__(self, holders: Iterable[tuple[str, str, JobId, str]]) -> None:
        self._holders: dict[tuple[str, str], list[tuple[JobId, str]]] = {}
        for task, key, id, state in holders:
            self._holders.setdefault((task, key), []).append((id, state))

    def holder(self, task: str, key: str | None, unique: str) -> JobId | None:
        """The live unique job that makes a new one of this kind unnecessary: for Unique.PENDING only a pending one."""
        if key is None or not unique:
            return None
        found = [id for id, state in self._holders.get((task, key), ()) if unique == Unique.LIVE or state == "pending"]
        return min(found, default=None)

    def take(self, task: str, key: str | None, unique: str, id: JobId) -> None:
        if key is not None and unique:
            self._holders.setdefault((task, key), []).append((id, "pending"))


async def keys_of(sql: JobSql, session: Session, keys: Iterable[tuple[str, str | None]]) -> Keys:
    wanted = list(dict.fromkeys(keys))
    if not wanted:
        return Keys(())
    found = await session.fetch(sql.holders, [task for task, _ in wanted], [key for _, key in wanted])
    return Keys((row["task"], row["key"], row["id"], row["state"]) for row in found)


def arguments(jobs: Sequence[NewJob]) -> list[Any]:
    """The arguments of `add` and `insert`: arrays only for columns in which the jobs differ from the default or each other."""
    first = jobs[0]
    ids = list(_ids(jobs))
    return [
        ids,
        *(_unless_all(jobs, "task", first.task), _unless_all(jobs, "queue", first.queue)),
        [job.args for job in jobs],
        *(_unless_all(jobs, "signature", first.signature), _unless_all(jobs, "priority", first.priority)),
        *(_unless_all(jobs, "run_at", None), _unless_all(jobs, "delay", 0), _unless_all(jobs, "key", None)),
        [job.unique.value if job.unique else "" for job in jobs] if any(job.unique for job in jobs) else [],
        *(_unless_all(jobs, "retries", None), _unless_all(jobs, "timeout", None), _unless_all(jobs, "crash_limit", 3)),
        *(_unless_all(jobs, "on_dead", None), _unless_all(jobs, "tenant", "")),
        _since(min(ids)),
        *(first.task, first.queue, first.signature, first.priority),
        _unless_all(jobs, "trace", None),
    ]


def due_at(job: NewJob, now: int) -> int:
    return now + job.delay if job.run_at is None else job.run_at


def _ids(jobs: Sequence[NewJob]) -> Iterable[JobId]:
    return (job.id for job in jobs)


def _since(first: JobId) -> int:
    """From when on a job with this id, or a later one, can have ended."""
    return created_us(first) if is_job_id(first) else 0


def _unless_all(jobs: Sequence[NewJob], name: str, value: Any) -> list[Any]:
    """The column; empty if it is this value everywhere."""
    column = list(map(attrgetter(name), jobs))
    return [] if column.count(value) == len(column) else column


def _fail(group: Iterable[tuple[Any, "asyncio.Future[list[Added]]"]], error: DrumbeatError) -> None:
    for _, answer in group:
        if not answer.done():
            answer.set_exception(error)
