"""Opens a store, closes its standard streams, and only then reads; another process has used the file before it writes again."""

import asyncio
import os
import subprocess
import sys

from drumbeat.store.urls import open_store
from tests.contract.making import new_job

OTHER = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT count(*) FROM drumbeat_job').fetchall()"


async def main(path: str) -> None:
    async with await open_store(f"sqlite:///{path}") as store:
        await store.jobs.add([new_job()])
        for number in (0, 1, 2):
            os.close(number)
        await store.inspect.list_tasks()
        subprocess.run([sys.executable, "-c", OTHER, path], check=True)
        await store.jobs.add([new_job()])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
