"""A program for the tests of sudden death: adds jobs and claims them, and prints each id once the store has accepted it.

python -m tests.engines.sqlite.killed_enqueuer PATH
"""

import asyncio
import sys

from drumbeat.core.job import NewJob, OutcomeKind
from drumbeat.ids import new_job_ids
from drumbeat.store.urls import open_store
from tests.contract.making import claim, outcome, report, worker


async def main(path: str) -> None:
    async with await open_store(f"sqlite:///{path}") as store:
        instance = await worker(store)
        while True:
            ids = new_job_ids(20)
            await store.jobs.add([NewJob(id=id, task="noop", queue="default", args="{}", signature="s") for id in ids])
            print(*ids, sep="\n", flush=True)
            jobs = await claim(store, instance, limit=15)
            await report(store, instance, *(outcome(job, OutcomeKind.SUCCEEDED) for job in jobs[:10]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
