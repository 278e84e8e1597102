"""Steps on PostgreSQL: the lock that keeps the record of a run that is over from counting."""

import asyncio
from typing import Any

import pytest

from drumbeat.core.claim import ClaimedJob, ClaimRef, Outcome, WriteStatus
from drumbeat.core.job import OutcomeKind
from drumbeat.core.signals import NewSignal
from drumbeat.core.step import NewStep, StepKind
from drumbeat.core.suspension import FOREVER_US, Suspension
from drumbeat.ids import InstanceId
from drumbeat.store.postgres import PostgresStore
from drumbeat.store.postgres.steps import encode_signal
from tests.contract.making import claim, claimed_one, outcome, report, worker
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
            row = [[value] for value in (job.id, FOREVER_US, 0, 0, "", None, None, None, "signal:ok")]
            await raw.execute(sql.requeue, *row)
    assert [each.id for each in await claim(postgres, instance)] == [job.id]
    assert ended.suspension is not None
