"""The app that `drumbeat demo` runs: one task for each way a job can end."""

from __future__ import annotations

import random

from drumbeat import Backoff, Drumbeat, SkipRetry, current_job
from drumbeat.clock import SYSTEM

app = Drumbeat(name="demo")

QUICK = Backoff(base=0.3, cap=1.5)
STEPS = 40
"""Of the long job, 0.1 s each."""


@app.task
async def resize(picture: int) -> str:
    """One of many small jobs."""
    await SYSTEM.sleep(random.uniform(0.01, 0.06))
    return f"picture-{picture}.webp"


@app.task(queue="critical")
async def greet(name: str) -> str:
    """Succeeds at once."""
    return f"Hello, {name}!"


@app.task(queue="critical")
async def remind(customer: int) -> None:
    """Delayed: runs when it is due, and not before."""
    await SYSTEM.sleep(0.01)


@app.task(retries=4, backoff=QUICK)
async def charge(order: int, cents: int) -> str:
    """Transient: the bank does not answer twice, then it does."""
    if current_job().attempt <= 2:
        raise ConnectionError(f"the bank did not answer (order {order})")
    return f"charged {cents}"


@app.task(retries=2, backoff=QUICK)
async def deliver(order: int, address: str, api_key: str) -> None:
    """Permanent: fails at every attempt, until its retries are used up."""
    raise ValueError(f"no such address: {address!r}")


@app.task(retries=5)
async def refund(order: int, reason: str) -> None:
    """Permanent: raises SkipRetry at the first attempt."""
    raise SkipRetry(f"order {order} was never paid: {reason}")


@app.task(queue="low")
async def report(pages: int) -> str:
    """Long: its worker is killed in the middle of it."""
    for step in range(1, STEPS + 1):
        await SYSTEM.sleep(0.1)
        current_job().progress({"page": pages * step // STEPS, "of": pages})
    return f"{pages} pages"


@app.every(5, grid=True)
async def tidy() -> str:
    """By a schedule: every five seconds, once in the whole cluster."""
    await SYSTEM.sleep(0.02)
    return "tidy"
