"""Adds jobs to a SQLite store one by one, and says of each how it went: when it was begun, and `ok` with its id or the error.

python -m tests.apps.producing PATH    Ends at the end of its stdin, and closes the store in good order.
"""

import asyncio
import sys
import time

from drumbeat.errors import StoreError
from drumbeat.store.urls import open_store
from tests.contract.making import new_job


async def main(path: str) -> None:
    over = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), over.set)
    async with await open_store(f"sqlite:///{path}") as store:
        while not over.is_set():
            job = new_job()
            began = time.monotonic_ns()
            try:
                await store.jobs.add([job])
            except StoreError as error:
                print(began, type(error).__name__, str(error), flush=True)
                await asyncio.sleep(0.01)
            else:
                print(began, "ok", job.id, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
