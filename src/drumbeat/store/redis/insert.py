"""Inserts new jobs: common values are sent once, and calls that arrive during another one are joined.

A thousand coroutines that enqueue one job each cost a few calls. All jobs of a call go to one script, which stores all or none.
"""

import asyncio
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

from drumbeat.core.job import AddResult, NewJob, Unique
from drumbeat.errors import DrumbeatError, StoreUnavailable
from drumbeat.ids import JobId, pack_id, unpack_id
from drumbeat.names import check_priority
from drumbeat.store.job_columns import NEW
from drumbeat.store.redis.connection import Value
from drumbeat.store.redis.pool import CALL_TIMEOUT, RedisPool
from drumbeat.store.redis.record_format import JobHeader, pairs
from drumbeat.store.redis.rows import encode_json

_MAX_GROUP_SIZE = 10_000
_MIN_JOBS_PER_SECOND = 5_000
"""Jobs of a joined call; even a slow server stores them in a second."""
_UNIQUE_FLAGS = {Unique.NO.value: "k", Unique.LIVE.value: "l", Unique.PENDING.value: "p"}

_VARYING = ("id", "args", "key")
# The plain attribute of an enum member: `.value` is a function call.
_template_fields = attrgetter(*("unique._value_" if name == "unique" else name for name in NEW if name not in _VARYING))
_FIELDS_AFTER_KEY = JobHeader.__struct_fields__[JobHeader.__struct_fields__.index("key") + 1 :]
_get_fields_after_key = attrgetter(*(name for name in _FIELDS_AFTER_KEY if name != "schedule"))
_SCHEDULE = _FIELDS_AFTER_KEY.index("schedule")
_EXPIRES_AT = _FIELDS_AFTER_KEY.index("expires_at")


def job_template(job: NewJob) -> list[Value]:
    """Return the values that jobs share, as lua/_insert_jobs.lua reads them."""
    check_priority(job.priority)
    before = encode_json([job.task, job.queue, job.priority])[1:-1]
    rest: list[object] = list(_get_fields_after_key(job))
    expiry: Value | None = job.expires_at
    if expiry is None and job.expires is not None:
        expiry = f"+{job.expires}"
    rest.insert(_SCHEDULE, "")
    rest[_EXPIRES_AT] = expiry
    while len(rest) > _SCHEDULE and rest[-1] in (None, ""):
        rest.pop()
    after = encode_json(rest)[1:] + b"\n"
    when: Value = job.delay if job.run_at is None else f"@{job.run_at}"
    expires_at: Value = "" if expiry is None else expiry
    links = (b"" if job.parent is None else pack_id(job.parent), job.workflow or "", job.lane)
    if job.key is None:
        return [job.queue, job.priority, when, expires_at, "-", job.task, before + b",null," + after, b"", *links]
    flag = _UNIQUE_FLAGS[job.unique.value]
    return [job.queue, job.priority, when, expires_at, flag, job.task, before + b",", b"," + after, *links]


def insert_arguments(jobs: Iterable[NewJob]) -> list[Value]:
    """Return the arguments of the script `add_jobs`."""
    numbers: dict[object, int] = {}
    templates: list[Value] = []
    values: list[Value] = []
    last: object = None
    start = width = 0
    last_id, is_ascending = b"", 1
    for job in jobs:
        key = job.key
        common = (_template_fields(job), key is None)
        if common != last:
            if width:
                values[start - 1] = (len(values) - start) // width
            last = common
            number = numbers.get(common, 0)
            if not number:
                number = numbers[common] = len(numbers) + 1
                templates += job_template(job)
            values += (number, 0)
            start, width = len(values), 2 if key is None else 3
        id = pack_id(job.id)
        if id < last_id:
            is_ascending = 0
        last_id = id
        values.append(id)
        values.append(job.args)
        if key is not None:
            values.append(key)
    values[start - 1] = (len(values) - start) // width
    return [is_ascending, len(numbers), *templates, *values]


def existing_ids(refused: Sequence[Any]) -> dict[int, JobId]:
    """The ids that stand for jobs that were not stored, by position from 1."""
    return {position: unpack_id(id) for position, id in pairs(refused)}


def add_results(jobs: Sequence[NewJob], existing: dict[int, JobId]) -> list[AddResult]:
    return [
        AddResult(existing.get(position, job.id), position not in existing)
        for position, job in enumerate(jobs, start=1)
    ]


def follow_up_arguments(job: NewJob | None) -> list[Value]:
    """Return the values of a follow-up, preceded by 1 if there is one."""
    return [0] if job is None else [1, *job_template(job), pack_id(job.id), job.args, job.key or ""]


def call_timeout(records: int) -> float:
    """Seconds for a call that stores so many jobs or edges."""
    return CALL_TIMEOUT + records / _MIN_JOBS_PER_SECOND


_Waiting = tuple[Sequence[NewJob], "asyncio.Future[list[AddResult]]"]


class RedisInserter:
    def __init__(self, pool: RedisPool) -> None:
        self._pool = pool
        self._waiting: list[_Waiting] = []
        self._task: asyncio.Task[None] | None = None
        self._is_inserting_directly = False

    async def add(self, jobs: Sequence[NewJob]) -> list[AddResult]:
        """Insert all or none; return one answer for each."""
        if self._task is None and not self._is_inserting_directly:
            self._is_inserting_directly = True
            try:
                return await self._insert(jobs)
            finally:
                self._is_inserting_directly = False
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[AddResult]] = loop.create_future()
        self._waiting.append((jobs, answer))
        if self._task is None:
            # Not in a task group: it serves several callers and must not be cancelled with one of them. It ends by itself.
            self._task = loop.create_task(self._run(), name="drumbeat inserter")
        return await answer

    async def _run(self) -> None:
        group: list[_Waiting] = []
        try:
            while self._waiting:
                group = self._take_group()
                await self._insert_group(group)
        finally:
            self._task = None
            # Callers are left only while the loop is being closed.
            for _, answer in (*group, *self._waiting):
                if not answer.done():
                    answer.set_exception(StoreUnavailable("the store was closed"))
            self._waiting.clear()

    def _take_group(self) -> list[_Waiting]:
        size = taken = 0
        for jobs, _ in self._waiting:
            if taken and size + len(jobs) > _MAX_GROUP_SIZE:
                break
            size += len(jobs)
            taken += 1
        group, self._waiting = self._waiting[:taken], self._waiting[taken:]
        return [(jobs, answer) for jobs, answer in group if not answer.done()]

    async def _insert_group(self, group: list[_Waiting]) -> None:
        """Insert in one call; one by one if that fails for another reason than an outage."""
        try:
            answers = iter(await self._insert([job for jobs, _ in group for job in jobs]) if group else ())
        except (DrumbeatError, ValueError) as error:
            if len(group) > 1 and not isinstance(error, StoreUnavailable):
                for each in group:
                    await self._insert_group([each])
                return
            for _, answer in group:
                if not answer.done():
                    answer.set_exception(error)
            return
        for jobs, answer in group:
            given = [next(answers) for _ in jobs]
            if not answer.done():
                answer.set_result(given)

    async def _insert(self, jobs: Sequence[NewJob]) -> list[AddResult]:
        timeout = call_timeout(len(jobs))
        _, refused = await self._pool.run("add_jobs", *insert_arguments(jobs), timeout=timeout)
        if not refused:
            return [AddResult(job.id, True) for job in jobs]
        return add_results(jobs, existing_ids(refused))
