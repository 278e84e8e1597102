"""PgQueuer's program: payloads are bytes, and the factory is asked inside the worker's loop.

python -m bench.apps.pgqueuer_app BATCH_SIZE [MAX_CONCURRENT_TASKS]: its worker by `pgqueuer.run`, which is what `pgq run`
calls. The command line itself falls over its option for the log level with the typer of today.
"""

import os
import sys
from contextlib import asynccontextmanager

import asyncpg
import pgqueuer
import uvloop
from pgqueuer import PgQueuer

from bench.apps import URL_NAME
from bench.apps.place import ledger, member


@asynccontextmanager
async def create():
    connection = await asyncpg.connect(os.environ[URL_NAME])
    app = PgQueuer.from_asyncpg_connection(connection)

    @app.entrypoint("stamp")
    async def stamp(job):
        ledger.stamp(int(job.payload))

    @app.entrypoint("stamp_wall")
    async def stamp_wall(job):
        ledger.stamp_wall(int(job.payload))

    @app.entrypoint("other")
    async def other(job):
        ledger.stamp(int(job.payload))

    @app.entrypoint("nap")
    async def nap(job):
        await member.nap(int(job.payload))

    yield app
    await connection.close()


if __name__ == "__main__":
    batch_size, *most = map(int, sys.argv[1:])
    uvloop.run(pgqueuer.run(create, batch_size=batch_size, max_concurrent_tasks=most[0] if most else None))
