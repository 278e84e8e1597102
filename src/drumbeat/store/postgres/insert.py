"""Inserting jobs into the live table of PostgreSQL.

Calls that wait for the connection are stored together, in one statement: a thousand coroutines that enqueue one job each cost
a few commits. Nearly always no job of a batch exists yet, and the statement succeeds; otherwise it is rolled back and the batch
is decided job by job.

A bulk enqueue occupies the loop while it binds the next jobs. So that the server has work meanwhile, a large waiting batch is
sent before the previous one is answered:

    loop    | bind C | answer A, send B    | bind D | answer B, send C    |
    server  | stores A ...............     | stores B .............       |
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

from drumbeat.core.job import AddResult, NewJob, Unique
from drumbeat.core.uniqueness import UniqueKeys, select_new, unique_keys
from drumbeat.errors import DrumbeatError, StoreError, StoreUnavailable
from drumbeat.ids import JobId, created_us, is_job_id
from drumbeat.store.job_columns import NEW, attribute_path, default_of
from drumbeat.store.postgres import error_translation
from drumbeat.store.postgres.connections import CALL_TIMEOUT, PlanMode, PostgresConnection, RetryTransaction, Session
from drumbeat.store.postgres.copy_format import COLUMNS, CopyBatch
from drumbeat.store.postgres.statements import SHARED_FIELDS
from drumbeat.store.postgres.wake import PostgresNotifier
from drumbeat.store.sqlfile import EngineStatements, Statements

MIN_COPY_JOBS = 500
"""Batches of this size are written by COPY, which takes two thirds of an INSERT, with unique keys half."""
_MAX_BATCH_JOBS = 2_000
"""Jobs that are stored together; this many are worth a commit of their own."""
_MAX_ANSWER_DELAY = 0.02
"""Seconds for which an answer is held back at most, until the next batch is sent."""
MIN_ROWS_PER_SECOND = 5_000
"""What even a slow server stores; gives the timeout of a large batch."""

_GETTERS = {name: attrgetter(attribute_path(name)) for name in NEW}
_get_fields = attrgetter(*map(attribute_path, NEW))
_DEFAULTS = {name: default_of(name) for name in NEW if name not in ("id", "args", *SHARED_FIELDS)}


class InsertResult(NamedTuple):
    earliest_due: int
    is_notified: bool
    """The commit notifies workers."""


class PostgresInserter:
    def __init__(
        self, sql: EngineStatements, namespace: str, connection: PostgresConnection, notifier: PostgresNotifier
    ) -> None:
        self._sql = sql.jobs
        self._namespace = namespace
        self._connection = connection
        self._notifier = notifier
        self._waiting: list[tuple[Sequence[NewJob], asyncio.Future[list[AddResult]]]] = []
        self._task: asyncio.Task[None] | None = None
        self._unanswered: list[tuple[asyncio.Future[list[AddResult]], list[AddResult]]] = []
        """Results of stored jobs that are held back until the next batch is sent."""
        self._closed = False
        self._active_calls = 0

    async def add(self, jobs: Sequence[NewJob]) -> list[AddResult]:
        """Store all jobs or none; one result for each."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[AddResult]] = loop.create_future()
        self._waiting.append((jobs, answer))
        if self._task is None:
            # Not in a task group: it serves several callers, none of which may cancel it. `close` ends it.
            self._task = loop.create_task(self._run(), name="drumbeat inserter")
        self._active_calls += 1
        try:
            added = await answer
        finally:
            self._active_calls -= 1
        if not self._active_calls:
            await self._notifier.flush()
        return added

    async def close(self) -> None:
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        _fail(self._waiting, StoreUnavailable("the store was closed"))
        self._waiting.clear()

    async def add_in_transaction(self, session: Session, jobs: Sequence[NewJob]) -> list[int]:
        """Store on_dead and on_success jobs, in the transaction that ends their jobs; return run_at of the new ones."""
        if not jobs:
            return []
        rows = await session.fetch(self._sql.insert_unknown, *insert_arguments(jobs))
        return [due_at(job, row["now"]) for job, row in zip(jobs, rows, strict=False)]

    async def _run(self) -> None:
        try:
            while self._waiting:
                group = self._take_group()
                try:
                    await self._store_group(group)
                except asyncio.CancelledError:
                    _fail(group, StoreUnavailable("the store was closed"))
                    raise
                except Exception as error:  # a mistake of ours: the callers must not wait for ever
                    _fail(group, error)
        finally:
            self._send_answers()
            self._task = None

    def _take_group(self) -> list[tuple[Sequence[NewJob], "asyncio.Future[list[AddResult]]"]]:
        size = taken = 0
        for jobs, _ in self._waiting:
            if taken and size + len(jobs) > _MAX_BATCH_JOBS:
                break
            size += len(jobs)
            taken += 1
        group, self._waiting = self._waiting[:taken], self._waiting[taken:]
        return [(jobs, answer) for jobs, answer in group if not answer.done()]

    async def _store_group(self, group: list[tuple[Sequence[NewJob], "asyncio.Future[list[AddResult]]"]]) -> None:
        """Store calls together; each alone if that fails while the server is available."""
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
                await self._store_group([each])
            return
        except DrumbeatError as error:
            _fail(group, error)
            return
        self._unanswered += [(answer, list(islice(answers, len(several)))) for several, answer in group]
        if self._waiting and len(self._waiting[0][0]) >= MIN_COPY_JOBS:
            asyncio.get_running_loop().call_later(_MAX_ANSWER_DELAY, self._send_answers)
        else:
            self._send_answers()

    def _send_answers(self) -> None:
        unanswered, self._unanswered = self._unanswered, []
        for answer, results in unanswered:
            if not answer.done():
                answer.set_result(results)

    async def _add(self, jobs: Sequence[NewJob]) -> list[AddResult]:
        timeout = CALL_TIMEOUT + len(jobs) / MIN_ROWS_PER_SECOND
        try:
            stored = await self._add_new(jobs, timeout)
        except error_translation.DuplicateJobs:
            answers, earliest = await self._connection.transact(partial(self._insert_unknown, jobs), timeout=timeout)
            if earliest is not None:
                self._notifier.notify(earliest)
            return answers
        self._notifier.notify(stored.earliest_due, sent=stored.is_notified)
        return [AddResult(job.id, True) for job in jobs]

    async def _add_new(self, jobs: Sequence[NewJob], timeout: float) -> InsertResult:
        """Store jobs none of which exists.

        Raises:
            DuplicateJobs: one exists; nothing was stored.
        """
        if len(jobs) == 1 and not jobs[0].unique:
            return await self._connection.call(
                partial(self._insert_one, jobs[0]), timeout=timeout, plan_mode=PlanMode.GENERIC
            )
        if len(jobs) >= MIN_COPY_JOBS:
            batch = CopyBatch(jobs)
            if Unique.PENDING not in batch.column("unique"):
                copied = partial(self._copy, batch)
                now = await self._connection.transact(copied, timeout=timeout, plan_mode=PlanMode.GENERIC)
                if now is not None:
                    return InsertResult(batch.earliest_due(now), False)
        now = await self._connection.call(partial(self._insert, jobs), timeout=timeout)
        return InsertResult(min(due_at(job, now) for job in jobs), False)

    async def _insert(self, jobs: Sequence[NewJob], session: Session) -> int:
        with error_translation.detect_duplicates():
            now: int = await session.fetchval(self._sql.add, *insert_arguments(jobs), min(_ids(jobs)), max(_ids(jobs)))
        return now

    async def _insert_one(self, job: NewJob, session: Session) -> InsertResult:
        with error_translation.detect_duplicates():
            row = await session.fetchrow(
                self._sql.add_one,
                earliest_end(job.id),
                self._notifier.sender_for_commit(alone=self._active_calls == 1),
                *_get_fields(job),
            )
        return InsertResult(due_at(job, row["now"]), row["notified"])

    async def _copy(self, batch: CopyBatch, session: Session) -> int | None:
        """Write jobs by COPY; return the store's now, or None: it must be done otherwise, and nothing was stored.

        The unique indexes cover every job of Unique.LIVE, but only the pending ones of Unique.PENDING. Where a task has any of
        the latter, its jobs are decided one by one; this is checked again at the end, when others can see our rows.
        """
        tasks = list(dict.fromkeys(batch.column("task"))) if Unique.LIVE in batch.column("unique") else []
        now, doubtful = await session.fetchrow(self._sql.before_copy, tasks)
        if doubtful:
            return None
        first, last = min(batch.ids), max(batch.ids)
        with error_translation.detect_duplicates():
            await session.copy_to_table(
                "job",
                schema_name=self._namespace,
                columns=COLUMNS,
                source=self._stream_rows(batch.encode(now)),
                format="binary",
            )
            check = await session.fetchrow(self._sql.after_copy, tasks, first, last, earliest_end(first))
            if check["doubtful"]:
                raise error_translation.DuplicateJobs("one of these keys may have been taken meanwhile")
            if check["crowded"] and await session.fetch(self._sql.ended_states, batch.ids):
                raise error_translation.DuplicateJobs("one of these jobs has ended")
        stored_at: int = now
        return stored_at

    async def _stream_rows(self, rows: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for some in rows:
            yield some
        self._send_answers()

    async def _insert_unknown(self, jobs: Sequence[NewJob], session: Session) -> tuple[list[AddResult], int | None]:
        """Decide job by job and insert what is new; return the results, and the earliest run_at."""
        ids = list(_ids(jobs))
        known = {row["id"] for row in await session.fetch(self._sql.known_ids, ids)}
        keys = await load_unique_keys(self._sql, session, unique_keys(jobs))
        answers, new = select_new(jobs, known, keys)
        if not new:
            return answers, None
        rows = await session.fetch(self._sql.insert_unknown, *insert_arguments(new))
        # Fewer: another transaction inserted one meanwhile. In history: it was inserted, and ended, before our snapshot.
        if len(rows) < len(new) or await session.fetch(self._sql.ended_states, list(_ids(new))):
            raise RetryTransaction
        await self.recheck_keys(new, session)
        return answers, min(due_at(job, rows[0]["now"]) for job in new)

    async def recheck_keys(self, new: Sequence[NewJob], session: Session) -> None:
        """Retry if another unique job was added and claimed between our check and our insert."""
        lasting = [job for job in new if job.unique is Unique.LIVE]
        if lasting:
            try:
                with error_translation.detect_duplicates():
                    tasks = list(dict.fromkeys(job.task for job in lasting))
                    await session.execute(self._sql.raise_if_key_held, list(_ids(lasting)), tasks)
            except error_translation.DuplicateJobs:
                raise RetryTransaction from None


async def load_unique_keys(sql: Statements, session: Session, keys: Sequence[tuple[str, str]]) -> UniqueKeys:
    if not keys:
        return UniqueKeys()
    found = await session.fetch(sql.key_holders, [task for task, _ in keys], [key for _, key in keys])
    return UniqueKeys((row["task"], row["key"], row["id"], row["state"]) for row in found)


def insert_arguments(jobs: Sequence[NewJob]) -> list[Any]:
    """The arguments of `add` and `insert_unknown`: arrays only for columns that differ from the default or between jobs."""
    first = jobs[0]
    shared = [getattr(first, name) for name in SHARED_FIELDS]
    columns = {name: list(map(getter, jobs)) for name, getter in _GETTERS.items()}
    for name, value in zip(SHARED_FIELDS, shared, strict=True):
        columns[name] = _empty_if_all(columns[name], value)
    for name, value in _DEFAULTS.items():
        columns[name] = _empty_if_all(columns[name], value)
    return [earliest_end(min(columns["id"])), *shared, *columns.values()]


def due_at(job: NewJob, now: int) -> int:
    return now + job.delay if job.run_at is None else job.run_at


def _ids(jobs: Sequence[NewJob]) -> Iterable[JobId]:
    return (job.id for job in jobs)


def earliest_end(first: JobId) -> int:
    """The earliest time at which a job with this id, or a later one, can have ended."""
    return created_us(first) if is_job_id(first) else 0


def _empty_if_all(column: list[Any], value: Any) -> list[Any]:
    """The column; empty if it is this value everywhere."""
    return [] if column.count(value) == len(column) else column


def _fail(group: Iterable[tuple[Any, "asyncio.Future[list[AddResult]]"]], error: Exception) -> None:
    for _, answer in group:
        if not answer.done():
            answer.set_exception(error)
