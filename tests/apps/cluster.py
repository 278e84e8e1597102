"""A program of several worker processes, started as a script: `python tests/apps/cluster.py`.

Handlers append a line with their process's id to $TEST_LEDGER for whatever they do, outside the library.
"""

import asyncio
import os
import signal
import sys
import time

from drumbeat import logs, supervisor
from drumbeat.app import Drumbeat
from drumbeat.context import current_job
from drumbeat.tasks import Call

app = Drumbeat(drain=float(os.environ.get("TEST_DRAIN", "20")), concurrency=4)


def tell(*words: object) -> None:
    line = " ".join(map(str, (*words, os.getpid()))) + "\n"
    ledger = os.open(os.environ["TEST_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, line.encode())
    os.close(ledger)


@app.lifespan
async def life():  # type: ignore[no-untyped-def]
    tell("open")
    yield
    tell("close")


@app.task(retries=0)
async def quick(number: int) -> int:
    tell("quick", number)
    return number


@app.task(retries=0)
async def slow(seconds: float) -> None:
    tell("slow begin")
    await asyncio.sleep(seconds)
    tell("slow end")


@app.task(retries=0)
async def block(seconds: float) -> None:
    """Keeps the loop of its worker from doing anything."""
    tell("block begin")
    time.sleep(seconds)


@app.task(pool="process", retries=0)
def drains() -> None:
    """Ends as soon as it hears that its worker drains."""
    tell("drains begin")
    current_job().aborted.wait(60)
    current_job().check()


@app.task(pool="process", retries=0)
def apart(seconds: float) -> None:
    tell("apart begin")
    time.sleep(seconds)
    tell("apart end")


@app.task(pool="process", retries=0, timeout=0.1)
def brief() -> int:
    return os.getpid()


@app.task(retries=0)
async def poison() -> None:
    tell("poison begin")
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(retries=0)
async def poison_once() -> None:
    """Kills the worker process that it runs in, but not the child that it runs in as a suspect."""
    tell("poison_once begin")
    if os.getppid() == int(os.environ["TEST_SUPERVISOR"]):
        os.kill(os.getpid(), signal.SIGKILL)


@app.task(batch=10, retries=0)
async def bulk(calls: list[Call[str]]) -> list[str]:
    if any(call.value == "poison" for call in calls):
        tell("bulk poison")
        os.kill(os.getpid(), signal.SIGKILL)
    return [call.value.upper() for call in calls]


@app.task(batch=10, pool="process", retries=0)
def bulk_apart(calls: list[Call[int]]) -> list[int]:
    return [call.value * 2 for call in calls]


if os.environ.get("TEST_TROUBLE") and __name__ == "__mp_main__":
    raise RuntimeError("no database password")

if __name__ == "__main__":
    for name in os.environ.get("TEST_WITHOUT", "").split():
        delattr(os, name)
    os.environ["TEST_SUPERVISOR"] = str(os.getpid())
    supervisor.KILL_DELAY = float(os.environ.get("TEST_LAST_RESORT", "10"))
    logs.configure("info", "text")
    try:
        app.run(processes=2)
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {error}")
