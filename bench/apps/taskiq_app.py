"""Taskiq's program: a stream with acknowledgements, and the schedules that its own scheduler process sends from."""

import os

from taskiq import TaskiqScheduler
from taskiq_redis import ListRedisScheduleSource, RedisStreamBroker

from bench.apps import URL_NAME
from bench.apps.folder import ledger, member

url = os.environ[URL_NAME]
broker = RedisStreamBroker(url=url)
schedules = ListRedisScheduleSource(url=url)
scheduler = TaskiqScheduler(broker=broker, sources=[schedules])


@broker.task(task_name="stamp")
async def stamp(number):
    ledger.stamp(number)


@broker.task(task_name="stamp_wall")
async def stamp_wall(number):
    ledger.stamp_wall(number)


@broker.task(task_name="nap")
async def nap(number):
    await member.nap(number)
