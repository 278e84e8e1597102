"""A program of one interval by completion; a run kills its process if $TEST_KILLS names a file that is not there yet."""

import os
import signal
from pathlib import Path

from drumbeat.app import Drumbeat
from drumbeat.context import current_job
from tests.apps import journal

app = Drumbeat(name="series")


@app.on_start
async def begin() -> None:
    journal.write("begun")


@app.every(float(os.environ.get("TEST_EVERY", "0.2")))
async def step() -> None:
    job = current_job()
    journal.write("step", id=job.id, at=job.scheduled_for.timestamp())
    flag = os.environ.get("TEST_KILLS")
    if flag and not Path(flag).exists():
        Path(flag).touch()
        os.kill(os.getpid(), signal.SIGKILL)
