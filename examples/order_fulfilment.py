"""Orders with steps, a sleep and a human approval: charged once, though workers die between any two lines.

    python order_fulfilment.py          two orders; their runs are killed with kill -9 at eight places each
    python order_fulfilment.py 10       ten orders

The handler is killed once at each place of each order: between its steps, and inside of a step between the effect and its
record, where a step is done again. So the payment service gets an idempotency key, and refuses a second charge with the same
one. The jobs are in drumbeat.db in this folder, or wherever DRUMBEAT_URL says; the services keep what they did in services.db.
"""

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys

from drumbeat import Drumbeat, JobHandle, current_job, current_step

# Short intervals, because workers really die here; and their jobs are not to blame for it.
app = Drumbeat(name="fulfilment", heartbeat=0.2, dead_after=1, poll=0.2, crash_limit=1000)


@app.task(retries=3)
async def fulfil(order: int, cents: int) -> str:
    job = current_job()
    die_once(order, "at the start")
    place = await job.step("reserve", reserve, order)
    die_once(order, "before the charge")
    receipt = await job.step("charge", charge, order, cents)
    die_once(order, "before the sleep")
    await job.sleep("500ms")  # the time to withdraw; "3 days" is the same to Drumbeat
    die_once(order, "after the sleep")
    approved_by = await job.wait_for("approved", str, timeout="7 days")
    die_once(order, "after the approval")
    parcel = await job.step("ship", ship, order, place)
    die_once(order, "at the end")
    return f"order {order}: receipt {receipt}, approved by {approved_by}, parcel {parcel} from {place}"


def reserve(order: int) -> str:
    return f"shelf {order}"


def charge(order: int, cents: int) -> int:
    """The payment service: a charge with a key that it knows is the same charge."""
    with services() as db:
        db.execute("INSERT OR IGNORE INTO charge (key, cents) VALUES (?, ?)", (current_step().key, cents))
        [(receipt,)] = db.execute("SELECT rowid FROM charge WHERE key = ?", (current_step().key,))
    die_once(order, "between the charge and its record")
    return int(receipt)


def ship(order: int, place: str) -> int:
    with services() as db:
        db.execute("INSERT OR IGNORE INTO parcel (key, place) VALUES (?, ?)", (current_step().key, place))
        [(parcel,)] = db.execute("SELECT rowid FROM parcel WHERE key = ?", (current_step().key,))
    die_once(order, "between the parcel and its record")
    return int(parcel)


def die_once(order: int, where: str) -> None:
    """Kill this process, the first time that this order comes here."""
    with services() as db:
        is_first = db.execute("INSERT OR IGNORE INTO death VALUES (?, ?)", (order, where)).rowcount == 1
    if is_first:
        os.kill(os.getpid(), signal.SIGKILL)


@contextlib.contextmanager
def services():  # type: ignore[no-untyped-def]
    """A transaction of the services: another database than that of the jobs."""
    with contextlib.closing(sqlite3.connect("services.db", timeout=30)) as db, db:
        yield db


async def run_scenario(orders: int) -> None:
    print(f"{orders} orders: each is killed at eight places, one after another ...", flush=True)
    with services() as db:
        for table in (
            "charge (key TEXT UNIQUE, cents)",
            "parcel (key TEXT UNIQUE, place)",
            "death (job, place, UNIQUE (job, place))",
        ):
            db.execute(f"DROP TABLE IF EXISTS {table.split()[0]}")
            db.execute(f"CREATE TABLE {table}")
    async with app:
        jobs = [await fulfil.using(key=f"order-{number}").enqueue(number, 990) for number in range(1, orders + 1)]
        workers = [start_worker(), start_worker()]
        try:
            async with asyncio.TaskGroup() as group:
                keeping = group.create_task(keep_alive(workers))
                for number, job in enumerate(jobs, 1):
                    await until_it_waits(job)
                    await app.signal(task=fulfil, key=f"order-{number}", name="approved", payload="ann")
                for job in jobs:
                    print(await job.result(timeout=60))
                keeping.cancel()
        finally:
            for worker in workers:
                worker.terminate()
                worker.wait()
    with services() as db:
        [(deaths,)] = db.execute("SELECT count(*) FROM death")
        [(charges,)] = db.execute("SELECT count(*) FROM charge")
        [(parcels,)] = db.execute("SELECT count(*) FROM parcel")
    print(f"{orders} orders, killed {deaths} times: {charges} charges, {parcels} parcels")


async def until_it_waits(job: JobHandle[str]) -> None:
    while (await job.job()).suspended != "signal:approved":  # noqa: ASYNC110
        await asyncio.sleep(0.05)


async def keep_alive(workers: "list[subprocess.Popen[bytes]]") -> None:
    while True:
        await asyncio.sleep(0.05)
        for number, worker in enumerate(workers):
            if worker.poll() is not None:
                workers[number] = start_worker()


def start_worker() -> "subprocess.Popen[bytes]":
    program = [sys.executable, "-m", "drumbeat", "run", "order_fulfilment:app", "--log-level", "error"]
    return subprocess.Popen(program)


if __name__ == "__main__":
    asyncio.run(run_scenario(orders=int(sys.argv[1]) if len(sys.argv) > 1 else 2))
