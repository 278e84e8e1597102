"""What contenders on PostgreSQL have in common."""

import os
from typing import Any

from bench.apps import URL_NAME
from bench.async_producer import AsyncProducer
from bench.contender import BURST, COMMON_MEASURES, CONTENTION, SNAPSHOT, Contender

LOAD_MEASURES = COMMON_MEASURES | {BURST, CONTENTION, SNAPSHOT}


class PostgresContender(Contender):
    engine = "postgres"
    durability = "synchronous_commit on, fsync on"
    measures = LOAD_MEASURES


class SqlProducer(AsyncProducer):
    """A producer with a connection of the harness's own besides the library's."""

    unfinished_sql: str
    """How many jobs that are due are not finished: none or some, so it may stop at the first."""

    async def open(self) -> None:
        import asyncpg

        self.sql: Any = await asyncpg.connect(os.environ[URL_NAME])

    async def shut(self) -> None:
        await self.sql.close()

    async def count_unfinished(self) -> int:
        return int(await self.sql.fetchval(self.unfinished_sql))
