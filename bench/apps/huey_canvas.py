"""Huey's program of `python -m bench.canvas`."""

import os

from huey import RedisHuey

from bench.apps import URL_NAME
from bench.apps.folder import ledger

huey = RedisHuey(url=os.environ[URL_NAME], results=False)


@huey.task()
def link(number):
    ledger.stamp(number)


def fill_chains(chains: int, length: int, *, bound: bool) -> None:
    for first in range(0, chains * length, length):
        pipeline = link.s(first)
        for number in range(first + 1, first + length):
            pipeline = pipeline.then(link, number)
        huey.enqueue(pipeline)
