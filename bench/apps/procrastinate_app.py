"""Procrastinate's program."""

import os

from procrastinate import App, PsycopgConnector

from bench.apps import URL_NAME
from bench.apps.folder import ledger, member

app = App(connector=PsycopgConnector(conninfo=os.environ[URL_NAME], min_size=1, max_size=20))


@app.task(name="stamp")
async def stamp(number):
    ledger.stamp(number)


@app.task(name="stamp_wall")
async def stamp_wall(number):
    ledger.stamp_wall(number)


@app.task(name="other", queue="other")
async def other(number):
    ledger.stamp(number)


@app.task(name="nap")
async def nap(number):
    await member.nap(number)
