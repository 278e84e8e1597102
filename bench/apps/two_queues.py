"""Drumbeat's program of bench/apps/noop.py, with a second queue. Apart, because a worker pays for each queue it serves."""

from bench.apps.folder import ledger
from bench.apps.noop import app, nap, stamp, stamp_wall

__all__ = ["app", "nap", "other", "stamp", "stamp_wall"]


@app.task(queue="other")
async def other(number: int) -> None:
    ledger.stamp(number)
