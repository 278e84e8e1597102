"""Steps on PostgreSQL: the lock that keeps the record of a run that is over from counting."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from drumbeat.core.claim import ClaimedJob, ClaimRef, CompletedJob, Outcome, WriteStatus
from drumbeat.core.job import OutcomeKind
from drumbeat.core.signals import NewSignal
from drumbeat.core.step import NewStep, StepKind
from drumbeat.core.suspension import FOREVER_US, Suspension
from drumbeat.ids import InstanceId, JobId, new_job_id
from drumbeat.store.postgres import PostgresStore
from drumbeat.store.postgres.steps import encode_signal
from tests.contract.graphs import settle
from tests.contract.making import claim, claimed_one, hold, ids, outcome, report, worker
from tests.engines.postgres.test_claim_races import waits_for_lock

TAKEN = "UPDATE drumbeat.job SET instance = $2, token = token + 1 WHERE id = $1::text::uuid"


@pytest.mark.parametrize("heir", ["same", "another", "nobody"])
async def test_a_step_that_waits_for_the_end_of_its_claim_is_refused(
    postgres: PostgresStore, raw: Any, heir: str
) -> None:
    """Its statement began before the claim was taken over, and its snapshot shows the old claim."""
    instance = await worker(postgres)
    job = await claimed_one(postgres, instance)
    step = NewStep(claim=ClaimRef(job.id, job.token), name="zombie", started_at=1, finished_at=2, result="1")
    async with asyncio.TaskGroup() as group:
        async with raw.transaction():
            await raw.execute(TAKEN, job.id, {"same": instance, "another": "other", "nobody": None}[heir])
            recording = group.create_task(postgres.steps.record(instance, [step]))
            await waits_for_lock(raw, recording)
            assert not recording.done()
    assert recording.result() == [WriteStatus.STALE]
    assert await postgres.steps.load([job.id]) == {job.id: []}


async def test_the_end_of_a_claim_waits_for_a_step_that_is_being_recorded(postgres: PostgresStore, raw: Any) -> None:
    instance = await worker(postgres)
    job = await claimed_one(postgres, instance)
    sql = postgres._parts.sql.steps.record
    async with asyncio.TaskGroup() as group:
        async with raw.transaction():
            await raw.fetch(sql, instance, [job.id], [job.token], ["charge"], [1], [2], ["1"])
            burying = group.create_task(
                postgres.instances.declare_dead(instance, beat=None, started=[], reason="silent")
            )
            await waits_for_lock(raw, burying)
            assert not burying.done()
    assert [step.name for step in (await postgres.steps.load([job.id]))[job.id]] == ["charge"]


async def waiting_run(postgres: PostgresStore) -> tuple[InstanceId, ClaimedJob, Outcome]:
    """A running job, and the outcome by which it begins to wait."""
    instance = await worker(postgres)
    job = await claimed_one(postgres, instance)
    suspension = Suspension(kind=StepKind.WAIT, name="ok", signal="ok", until=FOREVER_US)
    return instance, job, outcome(job, OutcomeKind.SUSPENDED, suspension=suspension)


async def test_a_run_is_suspended_while_its_signal_is_not_committed_yet(postgres: PostgresStore, raw: Any) -> None:
    """Neither sees the other's row: the commit of the signal looks again, and wakes the job."""
    instance, job, ended = await waiting_run(postgres)
    text = encode_signal(NewSignal(id="s1", job=job.id, name="ok", payload="1"))
    async with raw.transaction():
        assert await raw.fetchval("SELECT drumbeat.send_signal($1)", text) == "sent"
        await report(postgres, instance, ended)  # does not wait: the signal has locked nothing yet
        assert await claim(postgres, instance) == []
    assert [each.id for each in await claim(postgres, instance)] == [job.id]


async def test_a_signal_is_committed_while_its_run_is_being_suspended(postgres: PostgresStore, raw: Any) -> None:
    instance, job, ended = await waiting_run(postgres)
    sql = postgres._parts.sql.jobs
    async with asyncio.TaskGroup() as group:
        async with raw.transaction():
            await raw.fetch(sql.lock_running, instance, [job.id])
            assert await raw.fetch(sql.signalled, [job.id], ["ok"]) == []
            signal = NewSignal(id="s1", job=job.id, name="ok", payload="1")
            sending = group.create_task(postgres.steps.send_signal(signal))
            await waits_for_lock(raw, sending)
            assert not sending.done()
            row = [[value] for value in (job.id, FOREVER_US, 0, 0, "", None, None, None, "signal:ok", None)]
            await raw.execute(sql.requeue, *row)
    assert [each.id for each in await claim(postgres, instance)] == [job.id]
    assert ended.suspension is not None


class Program:
    """A connection of a program's own, in a transaction that it has begun."""

    def __init__(self, conn: Any) -> None:
        self.conn = conn

    @classmethod
    @asynccontextmanager
    async def begun(cls, url: str, isolation: str = "READ COMMITTED") -> AsyncIterator["Program"]:
        conn = await asyncpg.connect(url)
        try:
            await conn.execute(f"BEGIN ISOLATION LEVEL {isolation}")
            yield cls(conn)
        finally:
            await conn.close()

    async def send(self, store: PostgresStore, *jobs: ClaimedJob) -> None:
        for job in jobs:
            signal = NewSignal(id=new_job_id(), job=job.id, name="ok", payload="1")
            assert await store.transactional.send_signal(self.conn, signal) == "sent"

    async def complete(self, store: PostgresStore, instance: InstanceId, job: ClaimedJob) -> None:
        done = CompletedJob(instance=instance, claim=hold(job), started_at=job.token, result=None, result_error=None)
        await store.transactional.complete(self.conn, done)

    async def commit(self) -> None:
        async with asyncio.timeout(3):  # it waits for nobody
            await self.conn.execute("COMMIT")


async def waiting_jobs(postgres: PostgresStore, count: int) -> tuple[InstanceId, list[ClaimedJob]]:
    runs = [await waiting_run(postgres) for _ in range(count)]
    for instance, _, ended in runs:
        await report(postgres, instance, ended)
    return runs[0][0], [job for _, job, _ in runs]


async def woken(postgres: PostgresStore, instance: InstanceId) -> list[JobId]:
    """What is due once a sweep has come by."""
    await settle(postgres)
    return sorted(ids(await claim(postgres, instance)))


async def test_transactions_that_signal_the_same_jobs_in_opposite_order_are_both_committed(
    postgres: PostgresStore, url: str, raw: Any
) -> None:
    """Neither waits for the row of a job: not for that of the other one, and not for one that a third has locked."""
    instance, jobs = await waiting_jobs(postgres, 2)
    async with Program.begun(url) as one, Program.begun(url) as two, asyncio.TaskGroup() as group:
        await one.send(postgres, *jobs)
        await two.send(postgres, *reversed(jobs))
        async with raw.transaction():
            await raw.execute("SELECT FROM drumbeat.job WHERE id = $1::text::uuid FOR UPDATE", jobs[0].id)
            for program in (one, two):
                committing = group.create_task(program.commit())
                await waits_for_lock(raw, committing)
                assert committing.done()
    assert await woken(postgres, instance) == sorted(ids(jobs))


async def test_two_completions_that_signal_each_others_job_are_both_committed(
    postgres: PostgresStore, url: str, raw: Any
) -> None:
    instance = await worker(postgres)
    jobs = [await claimed_one(postgres, instance) for _ in range(2)]
    async with Program.begun(url) as one, Program.begun(url) as two, asyncio.TaskGroup() as group:
        for program, mine, other in ((one, jobs[0], jobs[1]), (two, jobs[1], jobs[0])):
            await program.complete(postgres, instance, mine)
            await program.send(postgres, other)
        first = group.create_task(one.commit())
        await waits_for_lock(raw, first)
        await two.commit()
    assert await woken(postgres, instance) == []
    assert await raw.fetchval("SELECT count(*) FROM drumbeat.unseen_signal") == 0


async def test_a_sweep_does_not_wait_for_a_job_that_is_locked_and_forgets_none(
    postgres: PostgresStore, url: str, raw: Any
) -> None:
    instance, jobs = await waiting_jobs(postgres, 2)
    async with Program.begun(url) as program:
        await program.send(postgres, *jobs)
        async with raw.transaction():
            await raw.execute("SELECT FROM drumbeat.job ORDER BY id FOR UPDATE")
            await program.commit()
            assert await woken(postgres, instance) == []
    assert await woken(postgres, instance) == sorted(ids(jobs))
    assert await raw.fetchval("SELECT count(*) FROM drumbeat.unseen_signal") == 0


async def test_a_run_is_suspended_during_the_commit_of_its_signal(postgres: PostgresStore, url: str, raw: Any) -> None:
    """It has looked for signals before, and holds its row: the commit sees that nobody has seen the signal."""
    instance, job, _ = await waiting_run(postgres)
    sql = postgres._parts.sql.jobs
    async with Program.begun(url) as program:
        await program.send(postgres, job)
        async with raw.transaction():
            await raw.fetch(sql.lock_running, instance, [job.id])
            assert await raw.fetch(sql.signalled, [job.id], ["ok"]) == []
            await program.commit()
            row = [[value] for value in (job.id, FOREVER_US, 0, 0, "", None, None, None, "signal:ok", None)]
            await raw.execute(sql.requeue, *row)
    assert await woken(postgres, instance) == [job.id]


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_a_transaction_of_an_older_snapshot_signals_a_job_that_has_changed_since(
    postgres: PostgresStore, url: str, isolation: str
) -> None:
    instance, job, ended = await waiting_run(postgres)
    async with Program.begun(url, isolation) as program:
        await program.send(postgres, job)
        await report(postgres, instance, ended)
        await program.commit()
    assert await woken(postgres, instance) == [job.id]
