"""A program for the tests of contention: one process of several on one SQLite file.

    python -m tests.engines.sqlite.contending_worker PATH JOBS GO

It waits for the file GO, then adds JOBS jobs and works off whatever it finds until all are done, and prints as JSON what it
was told: the ids it added, the (id, token) it finished, and its longest heartbeat.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from drumbeat.core.claim import ClaimRequest, Outcome, WriteStatus
from drumbeat.core.instance import NewInstance, Role
from drumbeat.core.job import NewJob, OutcomeKind
from drumbeat.ids import InstanceId, new_instance_id, new_job_ids
from drumbeat.store.protocol import Store
from drumbeat.store.urls import open_store
from tests.waiting import until

BATCH_SIZE = 100
CLAIM = ClaimRequest(queues=(("default", BATCH_SIZE),), limit=BATCH_SIZE)


async def add(store: Store, count: int) -> list[str]:
    added: list[str] = []
    while len(added) < count:
        ids = new_job_ids(min(BATCH_SIZE, count - len(added)))
        jobs = [NewJob(id=id, task="noop", queue="default", args="{}", signature="s") for id in ids]
        answers = await store.jobs.add(jobs)
        assert all(answer.created for answer in answers)
        added += ids
    return added


async def work(store: Store, instance: InstanceId, adding: "asyncio.Task[list[str]]") -> list[tuple[str, int]]:
    finished: list[tuple[str, int]] = []
    outcomes: list[Outcome] = []
    idle_since = time.monotonic()
    while True:
        answer = await store.jobs.report_and_claim(instance, outcomes, CLAIM)
        assert answer.statuses == [WriteStatus.APPLIED] * len(outcomes), answer.statuses
        finished += [(outcome.id, outcome.token) for outcome in outcomes]
        outcomes = [Outcome(id=job.id, token=job.token, kind=OutcomeKind.SUCCEEDED) for job in answer.jobs]
        if outcomes:
            idle_since = time.monotonic()
        elif adding.done() and time.monotonic() - idle_since > 1:
            return finished


async def beat(store: Store, instance: InstanceId, waits: list[float]) -> None:
    while True:
        started = time.monotonic()
        await store.instances.heartbeat(instance, 0)
        waits.append(time.monotonic() - started)
        await asyncio.wait([asyncio.Future()], timeout=0.05)


async def main(path: str, count: int, go: Path) -> dict[str, Any]:
    await until(go.exists, deadline=60, what="the signal to go")
    async with await open_store(f"sqlite:///{path}") as store, await open_store(f"sqlite:///{path}") as hearts:
        instance = new_instance_id()
        await store.instances.register(
            NewInstance(
                id=instance,
                app="crowd",
                version="",
                host="",
                pid=0,
                roles=(Role.WORKER,),
                queues=("default",),
                tasks={},
                concurrency=1,
            )
        )
        waits: list[float] = []
        async with asyncio.TaskGroup() as group:
            beating = group.create_task(beat(hearts, instance, waits))
            adding = group.create_task(add(store, count))
            finished = await work(store, instance, adding)
            beating.cancel()
        return {"added": adding.result(), "finished": finished, "longest_beat": max(waits)}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))))
