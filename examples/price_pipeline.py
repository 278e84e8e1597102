"""A price pipeline of four workers: a sweep every 3 seconds, one at a time, at most two calls at a time, despite kills.

    python price_pipeline.py          for ten seconds, while workers are killed with kill -9, one every two seconds
    python price_pipeline.py 60       for a minute
    drumbeat run price_pipeline:app   one such worker, without the story

A schedule fires the sweep every 3 seconds, once in the whole cluster; people may ask for one in between. So it is under a lock
of the whole cluster, and each call of the price service under another with limit 2, which sweeps share with single quotes. At
the end a checker reads what all workers wrote down. Jobs and locks are in drumbeat.db in this folder, or wherever DRUMBEAT_URL
says (PostgreSQL: after `drumbeat migrate`).
"""

import asyncio
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from drumbeat import Drumbeat

# Short intervals, because workers really die here: one is declared dead after 1.5 s, and its locks expire after a second.
app = Drumbeat(name="prices", heartbeat=0.3, dead_after=1.5, leader_lease=1.5, lock_lease=1, lock_renew=0.3)
LOG = Path("price_pipeline.log")
TICKERS = ("ABB", "BMW", "DHL", "EON", "SAP")
EVERY = 3


# A sweep that died with its worker is not retried: the next one starts within 3 seconds.
@app.every(EVERY, grid=True)
@app.task(retries=0, on_crash="dead")
async def sweep() -> None:
    async with app.lock("price-sweep") as lock:
        note("sweep begins")
        async with asyncio.TaskGroup() as group:
            for ticker in TICKERS:
                group.create_task(price(ticker))
        lock.check()  # code that stores prices also passes lock.token to the database
        note("sweep ends")


@app.task(retries=0, on_crash="dead")
async def quote(ticker: str) -> float:
    return await price(ticker)


async def price(ticker: str) -> float:
    async with app.lock("price-calls", limit=2):
        note("call begins")
        await asyncio.sleep(random.uniform(0.005, 0.02))  # the service answers
        note("call ends")
    return len(ticker) * random.random()


def note(event: str, pid: int = 0) -> None:
    """Append one line in one write: nothing is lost when a process is killed."""
    with LOG.open("ab", buffering=0) as log:
        log.write(f"{time.monotonic_ns()} {pid or os.getpid()} {event}\n".encode())


async def story(seconds: float) -> None:
    workers = [start() for _ in range(4)]
    killed = 0
    end = time.monotonic() + seconds
    try:
        async with app:
            people = asyncio.create_task(ask_for_prices())
            while time.monotonic() < end:
                await asyncio.sleep(2)
                victim = workers.pop(random.randrange(4))
                victim.kill()
                victim.wait()
                note("killed", victim.pid)
                killed += 1
                workers.append(start())
            people.cancel()
            fires = [fire.at.timestamp() for fire in await app.schedules.history("sweep", limit=1_000)]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    check(killed, fires)


def start() -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "drumbeat", "run", f"{Path(__file__).stem}:app", "--log-level", "error"]
    )


async def ask_for_prices() -> None:
    """Users who request quotes all the time, and now and then a sweep."""
    while True:
        await quote.enqueue(random.choice(TICKERS))
        if random.random() < 0.05:
            await sweep.enqueue()
        await asyncio.sleep(random.uniform(0, 0.05))


def check(killed: int, fires: list[float]) -> None:
    """Check the journal in order."""
    under_way: dict[str, Counter[int]] = {"sweep": Counter(), "call": Counter()}
    most, count = Counter[str](), Counter[str]()
    for line in sorted(LOG.read_text().splitlines(), key=lambda line: int(line.split()[0])):
        _, pid, event, *rest = line.split()
        if event == "killed":
            for running in under_way.values():
                del running[int(pid)]
        elif rest == ["begins"]:
            under_way[event][int(pid)] += 1
            count[event] += 1
            most[event] = max(most[event], under_way[event].total())
        else:
            under_way[event][int(pid)] -= 1
    print(f"{count['sweep']} sweeps, {count['call']} calls, {killed} workers killed")
    print(f"at the same time: at most {most['sweep']} sweep, at most {most['call']} calls")
    print(f"{len(fires)} fires of the schedule, on a grid of {EVERY} s, each once")
    if most["sweep"] > 1 or most["call"] > 2:
        raise SystemExit("the locks did not hold")
    if len(set(fires)) < len(fires) or any(fire % EVERY for fire in fires):
        raise SystemExit("the schedule did not hold")


if __name__ == "__main__":
    LOG.unlink(missing_ok=True)
    asyncio.run(story(float(sys.argv[1]) if len(sys.argv) > 1 else 10))
