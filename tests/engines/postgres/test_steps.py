"""Steps on PostgreSQL: the lock that keeps the record of a run that is over from counting."""

import asyncio
from typing import Any

import pytest

from drumbeat.core.claim import ClaimRef, WriteStatus
from drumbeat.core.step import NewStep
from drumbeat.store.postgres import PostgresStore
from tests.contract.making import claimed_one, worker
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
