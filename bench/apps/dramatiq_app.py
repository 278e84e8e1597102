"""Dramatiq's program."""

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import Retries

from bench.apps import URL_NAME
from bench.apps.folder import ledger, member

broker = RedisBroker(url=os.environ[URL_NAME], middleware=[Retries()])
dramatiq.set_broker(broker)


@dramatiq.actor
def stamp(number):
    ledger.stamp(number)


@dramatiq.actor
def stamp_wall(number):
    ledger.stamp_wall(number)


@dramatiq.actor(queue_name="other")
def other(number):
    ledger.stamp(number)


@dramatiq.actor
def nap(number):
    member.nap_in_thread(number)
