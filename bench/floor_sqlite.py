"""The floor under Drumbeat on SQLite: the engine's own statements in a bare loop.

No worker, no handler, no arguments decoded: jobs are claimed, believed done and finished, batch by batch, on the engine's own
tables with history, synchronous=FULL and checkpoints. Whatever a worker does on top can only be slower. `run` is called by
the bench; as a program it prints one line for each measurement.
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from drumbeat.ids import new_instance_id, new_job_ids
from drumbeat.model.instance import NewInstance, Role
from drumbeat.model.job import Claim, NewJob, Outcome, OutcomeKind
from drumbeat.store.protocol import Store
from drumbeat.store.urls import open_store

BATCH = 500


def run(folder: Path, n: int) -> dict[str, float]:
    """Add and drain n jobs in this folder: rows added and jobs drained in a second."""
    return asyncio.run(_run(folder, n))


async def _run(folder: Path, n: int) -> dict[str, float]:
    async with await open_store(f"sqlite:///{folder / 'floor.db'}") as store:
        instance = new_instance_id()
        await store.instances.register(
            NewInstance(
                id=instance,
                app="floor",
                version="",
                host="",
                pid=0,
                roles=(Role.WORKER,),
                queues=("default",),
                tasks={},
                concurrency=1,
            )
        )
        added = await _timed(_fill(store, n))
        cpu = time.process_time()
        drained = await _timed(_drain(store, instance, n))
        cpu = time.process_time() - cpu
    return {"added_per_s": n / added, "drained_per_s": n / drained, "drain_cpu_us": cpu / n * 1e6}


async def _timed(work: Any) -> float:
    started = time.perf_counter()
    await work
    return time.perf_counter() - started


async def _fill(store: Store, n: int) -> None:
    for start in range(0, n, 5_000):
        ids = new_job_ids(min(5_000, n - start))
        await store.jobs.add(
            [NewJob(id=id, task="noop", queue="default", args='{"x":1}', signature="0123456789abcdef") for id in ids]
        )


async def _drain(store: Store, instance: Any, n: int) -> None:
    claim = Claim(queues=(("default", BATCH),), limit=BATCH)
    outcomes: list[Outcome] = []
    left = n
    while left or outcomes:
        answer = await store.jobs.exchange(instance, outcomes, claim)
        now = answer.now
        outcomes = [
            Outcome(id=job.id, token=job.token, kind=OutcomeKind.SUCCEEDED, started_at=now, finished_at=now)
            for job in answer.jobs
        ]
        left -= len(outcomes)


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    with tempfile.TemporaryDirectory() as folder:
        for name, value in run(Path(folder), n).items():
            print(f"{name:16} {value:12,.1f}")


if __name__ == "__main__":
    main()
