"""A price pipeline of four processes: one sweep at a time, two calls at a time, whoever is killed.

    python price_pipeline.py          sweeps for ten seconds, while processes are killed with kill -9, one every two seconds
    python price_pipeline.py 60       for a minute

Each process wants to sweep all the time. The sweep is under one lock of the whole cluster, each call of the price service
under another with limit 2, which sweeps share with the single quotes that every process asks for besides. At the end a checker
reads what all of them wrote down. The locks are in drumbeat.db in this folder, or wherever DRUMBEAT_URL says (PostgreSQL:
after `drumbeat migrate`).
"""

import asyncio
import contextlib
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from drumbeat import Drumbeat

# Impatient, because here processes really die: the lock of a dead one is free after a second.
app = Drumbeat(name="prices", lock_lease=1, lock_renew=0.3)
LOG = Path("price_pipeline.log")
TICKERS = ("ABB", "BMW", "DHL", "EON", "SAP")


async def pipeline() -> None:
    """One process, until it is killed or stopped."""
    async with app, asyncio.TaskGroup() as group:
        group.create_task(sweeps())
        group.create_task(quotes())


async def sweeps() -> None:
    while True:
        async with app.lock("price-sweep") as lock:
            note("sweep begins")
            async with asyncio.TaskGroup() as group:
                for ticker in TICKERS:
                    group.create_task(price(ticker))
            lock.check()  # whoever stores prices gives lock.token to the database, too
            note("sweep ends")


async def quotes() -> None:
    while True:
        await price(random.choice(TICKERS))
        await asyncio.sleep(random.uniform(0, 0.1))


async def price(ticker: str) -> float:
    async with app.lock("price-calls", limit=2):
        note("call begins")
        await asyncio.sleep(random.uniform(0.005, 0.02))  # the service answers
        note("call ends")
    return len(ticker) * random.random()


def note(event: str, pid: int = 0) -> None:
    """One line, appended in one write: nothing is lost when a process is killed."""
    with LOG.open("ab", buffering=0) as log:
        log.write(f"{time.monotonic_ns()} {pid or os.getpid()} {event}\n".encode())


def story(seconds: float) -> None:
    LOG.unlink(missing_ok=True)
    processes = [start() for _ in range(4)]
    until, killed = time.monotonic() + seconds, 0
    try:
        while time.monotonic() < until:
            time.sleep(2)
            victim = processes.pop(random.randrange(4))
            victim.kill()
            victim.wait()
            note("killed", victim.pid)
            killed += 1
            processes.append(start())
    finally:
        for process in processes:
            process.kill()
            process.wait()
    check(killed)


def start() -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, __file__, "pipeline"])


def check(killed: int) -> None:
    """Walk through everything that happened, in its order."""
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
    print(f"{count['sweep']} sweeps, {count['call']} calls, {killed} processes killed")
    print(f"at the same moment: at most {most['sweep']} sweep, at most {most['call']} calls")
    if most["sweep"] > 1 or most["call"] > 2:
        raise SystemExit("the locks did not hold")


if __name__ == "__main__":
    if sys.argv[1:] == ["pipeline"]:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(pipeline())
    else:
        story(float(sys.argv[1]) if len(sys.argv) > 1 else 10)
