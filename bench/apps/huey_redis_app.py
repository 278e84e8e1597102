"""Huey's program on Redis."""

import os

from huey import RedisHuey

from bench.apps import URL_NAME
from bench.apps.folder import ledger, member

# results=False: a no-op gives nothing to keep, and keeping it would cost Huey a write.
huey = RedisHuey(url=os.environ[URL_NAME], results=False)


@huey.task()
def stamp(number):
    ledger.stamp(number)


@huey.task()
def stamp_wall(number):
    ledger.stamp_wall(number)


@huey.task()
def nap(number):
    member.nap_in_thread(number)
