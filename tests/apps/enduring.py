"""A program with a schedule, a room and a job that runs until a file is there, for outages of its store."""

import asyncio
from pathlib import Path

from drumbeat import Drumbeat
from tests.apps import journal

app = Drumbeat()


@app.task(retries=0)
async def endure(gate: str) -> str:
    journal.write("begun")
    while not Path(gate).exists():
        await asyncio.sleep(0.02)
    journal.write("ended")
    return "endured"


@app.cron("0 0 1 1 *")
async def yearly() -> None:
    journal.write("fired")


@app.room
async def hear(word: str) -> None:
    journal.write("heard", word=word)
