"""arq's program."""

import os

from arq.connections import RedisSettings

from bench.apps import URL_NAME
from bench.apps.folder import ledger, member


async def stamp(context, number):
    ledger.stamp(number)


async def stamp_wall(context, number):
    ledger.stamp_wall(number)


async def nap(context, number):
    await member.nap(number)


quiet = {"version": 1, "root": {"level": "WARNING"}}


class Many:
    functions = (stamp, stamp_wall, nap)
    redis_settings = RedisSettings.from_dsn(os.environ[URL_NAME])
    max_jobs = 300
    poll_delay = 0.01
    keep_result = 0
    log_results = False


# A copy, because arq does not look at what a class inherits.
Few = type("Few", (), {**vars(Many), "max_jobs": 10})
