"""Celery's program."""

import os

from celery import Celery

from bench.apps import URL_NAME
from bench.apps.folder import ledger, member

app = Celery("bench", broker=os.environ[URL_NAME])
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    task_routes={"other": {"queue": "other"}},
    worker_enable_remote_control=False,
    worker_disable_rate_limits=True,
    broker_connection_retry_on_startup=True,
)


@app.task(name="stamp")
def stamp(number):
    ledger.stamp(number)


@app.task(name="stamp_wall")
def stamp_wall(number):
    ledger.stamp_wall(number)


@app.task(name="other")
def other(number):
    ledger.stamp(number)


@app.task(name="nap")
def nap(number):
    member.nap_in_thread(number)
