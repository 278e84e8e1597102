"""A program whose handlers make steps in child processes. Each call of a step's function is a line of the file STEP_CALLS."""

import asyncio
import os
from pathlib import Path

from drumbeat.app import Drumbeat
from drumbeat.context import current_job
from drumbeat.step_calls import current_step

app = Drumbeat()


def note(number: int) -> int:
    with Path(os.environ["STEP_CALLS"]).open("a") as file:
        file.write(f"{current_step().name} {number} {os.getpid()}\n")
    return number + 1


async def note_async(number: int) -> int:
    return note(number)


@app.task(pool="process", retries=3, backoff=[0.01])
def in_process(number: int) -> int:
    job = current_job()
    first = job.step_sync("first", note, number)
    if job.attempt == 1:
        raise ValueError("between two steps")
    return job.step_sync("second", note, first)


@app.task(retries=3)
async def suspect(number: int) -> int:
    """Its instance is declared dead in its first run: then it is a crash suspect, and runs in a child of its own."""
    job = current_job()
    first = await job.step("first", note_async, number)
    second = await job.step("second", note, first)
    if not job.claimed.crashes:
        await asyncio.sleep(60)
    return second


@app.task(pool="process", retries=0)
def sleeps_in_process(number: int) -> int:
    job = current_job()
    first = job.step_sync("before", note, number)
    job.sleep_sync(0.2)
    return job.step_sync("after", note, first)
