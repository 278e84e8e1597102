"""PgQueuer's program: payloads are bytes, and the factory is asked inside the worker's loop.

python -m bench.apps.pgqueuer_app one|pool BATCH_SIZE [MAX_CONCURRENT_TASKS]: its worker by `pgqueuer.run`, which does what
`pgq run` does. The command line itself (1.6.0 with typer 0.29) falls over its option for the log level.
"""

import os
import sys
from contextlib import asynccontextmanager

import asyncpg
import pgqueuer
import uvloop
from pgqueuer import PgQueuer

from bench.apps import URL_NAME
from bench.apps.folder import ledger, member


@asynccontextmanager
async def opened():
    url = os.environ[URL_NAME]
    if sys.argv[1] == "pool":
        async with asyncpg.create_pool(url, min_size=2, max_size=5) as pool:
            yield PgQueuer.from_asyncpg_pool(pool)
    else:
        connection = await asyncpg.connect(url)
        yield PgQueuer.from_asyncpg_connection(connection)
        await connection.close()


@asynccontextmanager
async def create():
    async with opened() as app:
        register(app)
        yield app


def register(app):
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


if __name__ == "__main__":
    batch_size, *most = map(int, sys.argv[2:])
    uvloop.run(pgqueuer.run(create, batch_size=batch_size, max_concurrent_tasks=most[0] if most else None))
