"""Large batches, one after the other: the server has the next one while whoever got the last answer holds the loop."""

import asyncio
from typing import Any

import psycopg
import pytest

from drumbeat.core.job import NewJob, Unique
from drumbeat.errors import StoreError
from drumbeat.store.postgres import PostgresStore
from drumbeat.store.postgres.insert import PostgresInserter
from tests.contract.making import new_job
from tests.engines.postgres.test_unique import AT_GATE, closed_gate
from tests.waiting import until_sync

MANY = 1_500
"""Two of this size are not stored together."""


def batch(*last: NewJob) -> list[NewJob]:
    return [*(new_job() for _ in range(MANY)), *last]


async def test_a_batch_is_at_the_server_before_the_answer_to_the_last_one_is_given(
    postgres: PostgresStore, url: str, raw: Any
) -> None:
    def is_at_gate() -> bool:
        row = look.execute(AT_GATE).fetchone()
        return row is not None and bool(row[0])

    with psycopg.connect(url, autocommit=True) as look:
        async with closed_gate(raw), asyncio.TaskGroup() as group:
            first = group.create_task(postgres.jobs.add(batch()))
            second = group.create_task(postgres.jobs.add(batch(new_job(key="k", unique=Unique.LIVE))))
            assert len(await first) == MANY
            until_sync(is_at_gate, what="the next batch in the server's hands, while nobody gives the loop a turn")
            assert not second.done()
            await raw.execute("SELECT pg_advisory_unlock(7)")
            assert len(await second) == MANY + 1


async def test_a_batch_is_answered_when_the_next_one_cannot_be_stored(postgres: PostgresStore) -> None:
    async with asyncio.TaskGroup() as group:
        first = group.create_task(postgres.jobs.add(batch()))
        bad = group.create_task(_expect_refusal(postgres, batch(new_job(args='{"x":"\ud800"}'))))
        last = group.create_task(postgres.jobs.add(batch()))
    assert len(first.result()) == len(last.result()) == MANY
    assert bad.done()


async def _expect_refusal(postgres: PostgresStore, jobs: list[NewJob]) -> None:
    with pytest.raises(StoreError):
        await postgres.jobs.add(jobs)


async def test_every_caller_of_many_that_come_at_once_gets_its_own_answers(postgres: PostgresStore) -> None:
    batches = [batch()[: 7 * number] for number in range(1, 120)] + [batch(), batch()]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(postgres.jobs.add(jobs)) for jobs in batches]
    for jobs, task in zip(batches, tasks, strict=True):
        assert [answer.id for answer in task.result()] == [job.id for job in jobs]
        assert all(answer.created for answer in task.result())


async def test_an_error_of_our_own_code_reaches_all_who_wait_and_the_next_are_stored(
    postgres: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(PostgresInserter, "_add", lambda *_: 1 / 0)
        adding = [asyncio.Task(postgres.jobs.add([new_job()])) for _ in range(3)]
        await asyncio.wait(adding, timeout=5)
        assert all(task.done() and isinstance(task.exception(), ZeroDivisionError) for task in adding)
    assert (await postgres.jobs.add([new_job()]))[0].created
