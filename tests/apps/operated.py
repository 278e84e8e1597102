"""A program for tests of what operators see: `drumbeat run tests.apps.operated:app`."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

from drumbeat.app import Drumbeat
from tests.apps import journal

app = Drumbeat(concurrency=4)
kept: list[bytearray] = []


@app.task
async def block(gate: str) -> None:
    """Blocks the loop until the file exists."""
    journal.write("blocks")
    while not Path(gate).exists():
        time.sleep(0.02)


@app.task
async def wait(gate: str) -> None:
    journal.write("waits")
    while not Path(gate).exists():
        await asyncio.sleep(0.02)


@app.task
async def variables() -> list[str]:
    """Those of systemd that a handler, and a process that it starts, would have."""
    return [name for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC") if name in os.environ]


@app.task
async def note(number: int) -> int:
    return os.getpid()


@app.task
async def take_memory(megabytes: int) -> int:
    kept.append(bytearray(os.urandom(1_000)) * (1_000 * megabytes))
    return os.getpid()


@app.task
def leave_orphan() -> int:
    """Start a process whose own child outlives it. Returns the pid of the orphan."""
    program = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', '']).pid)"
    return int(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout)
