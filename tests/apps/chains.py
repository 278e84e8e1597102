"""A program whose jobs enqueue the next one: `drumbeat run tests.apps.chains:app --burst`."""

import asyncio
import os
import signal
from datetime import timedelta
from pathlib import Path

from drumbeat.app import Drumbeat
from drumbeat.retry import RetryLater

app = Drumbeat(concurrency=4)


@app.task
async def step(left: int) -> int:
    await asyncio.sleep(0.02)
    if left:
        await step.enqueue(left - 1)
    return left


@app.task(retries=3)
async def fail_for_now() -> None:
    raise RetryLater(timedelta(hours=1), "not now")


@app.task(queue="resting")
async def rest() -> None: ...


@app.task(pool="process")
def apart() -> int:
    return os.getpid()


@app.task
async def kill_once(marker: str) -> None:
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
