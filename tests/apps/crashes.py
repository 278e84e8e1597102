"""A program whose jobs die, hang and are counted; run by tests/system."""

import asyncio
import os
import signal
import time
from pathlib import Path

from drumbeat import Drumbeat, current_job
from drumbeat.retry import Backoff
from tests.apps import journal

app = Drumbeat()


def _started(**facts: object) -> None:
    journal.write("started", id=current_job().id, token=current_job().token, **facts)


@app.task
async def quick(n: int) -> int:
    _started(n=n)
    await asyncio.sleep(0.005)
    return n


@app.task(retries=0)
async def hold(gate: str) -> int:
    """Runs until the file is there; returns who ran it."""
    _started()
    while not Path(gate).exists():
        await asyncio.sleep(0.01)
    journal.write("finished", id=current_job().id)
    return os.getpid()


@app.task(retries=0)
def hold_first(gate: str) -> int:
    """In a thread: the first run waits for the file, later ones return at once."""
    first = not any(
        each.facts["id"] == current_job().id for each in journal.read(Path(os.environ[journal.FILE]), "started")
    )
    _started()
    while first and not Path(gate).exists():
        time.sleep(0.01)
    return os.getpid()


@app.task(retries=0)
def stuck() -> None:
    """A thread that hears nothing."""
    _started()
    time.sleep(60)
    journal.write("went on")


@app.task(backoff=Backoff(base=0.01, cap=0.01))
async def poison() -> None:
    _started()
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(backoff=Backoff(base=0.01, cap=0.01))
async def dies_before_it_is_told() -> str:
    """The first run ends well, and its process dies before the store hears of it."""
    _started()
    if current_job()._claimed.crashes == 0:
        asyncio.get_running_loop().call_soon(os._exit, 1)
    return "told"
