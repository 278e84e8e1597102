"""Celery's program of `python -m bench.canvas`. Chords need a result backend; chains of signatures that take nothing do not."""

import os

from celery import Celery, chain, chord

from bench.apps import URL_NAME
from bench.apps.folder import ledger

app = Celery("bench", broker=os.environ[URL_NAME], backend=os.environ[URL_NAME])
app.conf.update(
    task_acks_late=True,
    worker_enable_remote_control=False,
    worker_disable_rate_limits=True,
    broker_connection_retry_on_startup=True,
)


@app.task(name="link", ignore_result=True)
def link(number):
    ledger.stamp(number)


@app.task(name="part")
def part(number):
    ledger.stamp(number)


def fill_chains(chains: int, length: int, *, bound: bool) -> None:
    for first in range(0, chains * length, length):
        chain(*(link.si(number) for number in range(first, first + length))).apply_async()


def fill_chord(count: int) -> None:
    chord([part.si(number) for number in range(count)], link.si(count)).apply_async()
