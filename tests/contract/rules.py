"""Helpers of the tests that hold every engine to the rules of core/. No assertions here."""

from collections.abc import Sequence

from drumbeat.core.claim import ClaimedJob
from drumbeat.core.job import Job
from drumbeat.ids import InstanceId, JobId
from drumbeat.store.protocol import Store
from tests.contract.cases.outcomes import (
    BLOCKED_ON,
)
from tests.contract.making import wanting

ALL = 10_000


async def claim_all(store: Store, instance: InstanceId, *queues: str) -> dict[JobId, ClaimedJob]:
    request = wanting(*queues, limit=ALL, wants=[BLOCKED_ON])
    return {job.id: job for job in (await store.jobs.report_and_claim(instance, [], request)).jobs}


async def load(store: Store, ids: Sequence[JobId]) -> dict[JobId, Job]:
    found: dict[JobId, Job] = {}
    for first in range(0, len(ids), 500):
        found |= await store.inspect.get_jobs(ids[first : first + 500])
    return found
