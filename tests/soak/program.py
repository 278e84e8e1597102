"""The program that is soaked: a task of each kind, schedules of each kind, a room; and leaks that can be planted.

What a constant keeps for hours or a day is kept for less than a minute here: pruning is steady soon.
"""

import os
import threading

from drumbeat import Drumbeat, current_job
from drumbeat.clock import SYSTEM
from drumbeat.controller import pruner
from drumbeat.retry import Backoff
from drumbeat.store.protocol import Store
from drumbeat.store.urls import open_store
from tests.chaos import journal

PLANT = "SOAK_PLANT"
PLANTS = ("memory", "connections", "threads", "pruning")
SCHEDULE_QUEUE = "clockwork"
RETENTION_SECONDS = 40.0
QUICK = Backoff(base=0.2, cap=1)

planted = os.environ.get(PLANT, "")
pruner.RUN_INTERVAL = 86_400.0 if planted == "pruning" else 8.0
pruner.BATCH_DELAY = 0.05
pruner.TEN_SECONDS_RETENTION_US = int(RETENTION_SECONDS * 1e6)  # type: ignore[attr-defined]
pruner.INSTANCE_RETENTION_SECONDS = RETENTION_SECONDS
pruner.TOTALS_RETENTION_SECONDS = RETENTION_SECONDS
pruner.ORPHAN_RETENTION_SECONDS = RETENTION_SECONDS
pruner.MESSAGE_RETENTION_SECONDS = RETENTION_SECONDS

app = Drumbeat(name="soak")

_leaked: list[object] = []


def record_end() -> None:
    """The proof that a job was not lost, once the store has pruned it."""
    journal.write("ended", job=str(current_job().id))


@app.task(retries=50, backoff=QUICK)
async def quick(number: int) -> str:
    if planted == "memory":
        _leaked.append(bytes(10_000))
    record_end()
    return f"result {number}"


@app.task(retries=50, backoff=QUICK)
def threaded(number: int) -> str:
    threading.Event().wait(0.002)
    if planted == "threads" and number % 20 == 0:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    record_end()
    return f"result {number}"


@app.task(retries=50, backoff=QUICK, pool="process")
def apart(number: int) -> str:
    record_end()
    return f"result {number}"


@app.task(retries=50, backoff=QUICK)
async def flaky(number: int) -> str:
    if current_job().attempt <= number % 3:
        raise RuntimeError("fails on purpose")
    record_end()
    return f"result {number}"


@app.task(retries=1, backoff=QUICK)
async def doomed(number: int) -> str:
    raise RuntimeError("fails always")


@app.task(retries=50, backoff=QUICK)
async def slow(number: int) -> str:
    await SYSTEM.sleep(number % 10 / 10)
    record_end()
    return f"result {number}"


@app.task(retries=50, backoff=QUICK)
async def locked(number: int) -> str:
    if planted == "connections" and number % 8 == 0:
        _leaked.append(await leak_connection())
    async with app.lock(f"customer-{number % 20}"):
        await SYSTEM.sleep(0.01)
    record_end()
    return f"result {number}"


async def leak_connection() -> Store:
    return await open_store(app.settings.url)


@app.room
async def hear(message: int) -> None:
    journal.write("heard", message=message)


@app.every(1, grid=True, name="tick", retries=50, queue=SCHEDULE_QUEUE, overlap="allow")
async def tick() -> None: ...


@app.every(2, name="sweep", retries=50, queue=SCHEDULE_QUEUE)
async def sweep() -> None: ...


@app.cron("* * * * *", name="report", retries=50, queue=SCHEDULE_QUEUE)
async def report() -> None: ...
