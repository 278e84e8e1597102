"""A program that works for whoever imports it first, but not in child processes."""

import os

from drumbeat.app import Drumbeat

app = Drumbeat()

if (trouble := os.environ.get("TEST_TROUBLE")) == "raise":
    raise RuntimeError("no database password")
elif trouble == "die":
    os._exit(11)


@app.lifespan
async def resources():  # type: ignore[no-untyped-def]
    if trouble == "lifespan":
        raise RuntimeError("the pool is empty")
    yield


@app.task(pool="process")
def work() -> int:
    return 1
