"""SAQ's program, and, as a program of its own, the making of its tables."""

import asyncio
import os

from saq import Queue

from bench.apps import URL_NAME
from bench.apps.folder import ledger, member

queue = Queue.from_url(os.environ[URL_NAME])


async def stamp(context, *, number):
    ledger.stamp(number)


async def stamp_wall(context, *, number):
    ledger.stamp_wall(number)


async def nap(context, *, number):
    await member.nap(number)


many = {"queue": queue, "functions": [stamp, stamp_wall, nap], "concurrency": 20, "timers": {"schedule": 0.1}}
few = many | {"concurrency": 10}
# On Redis the interval is a lock's life as well, in whole seconds.
many_on_redis = many | {"concurrency": 50, "timers": {"schedule": 1}}
few_on_redis = few | {"timers": {"schedule": 1}}


async def make_tables():
    await queue.connect()
    await queue.disconnect()


if __name__ == "__main__":
    asyncio.run(make_tables())
