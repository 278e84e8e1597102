"""Drumbeat on PostgreSQL, and the floor under it."""

import os
import sys

from bench.apps import URL_NAME
from bench.contender import BACKLOG, FLOOR, KEYS, SNAPSHOT, Producer
from bench.contenders.drumbeat import DrumbeatOnServer, DrumbeatProducer, DrumbeatThreadsOnServer, FloorOnServer
from bench.contenders.postgres import LOAD_MEASURES, PostgresContender


class DrumbeatPostgresProducer(DrumbeatProducer):
    calls_at_once = 2


class DrumbeatPostgres(DrumbeatOnServer, PostgresContender):
    measures = LOAD_MEASURES | {BACKLOG, KEYS}
    tuning = f"{DrumbeatOnServer.tuning}; two bulk calls at a time, over its one connection"

    def open_producer(self) -> Producer:
        return DrumbeatPostgresProducer(self.client_module)

    def load(self) -> None:
        import asyncpg  # noqa: F401

        from drumbeat import Drumbeat  # noqa: F401

    def preparations(self) -> list[list[str]]:
        return [[sys.executable, "-m", "drumbeat", "migrate"]]


class DrumbeatThreads(DrumbeatThreadsOnServer, DrumbeatPostgres):
    pass


class FloorProducer(DrumbeatProducer):
    def floor(self, count: int, *, snapshot: bool) -> tuple[float, float]:
        from bench.floor_postgres import run

        rates = run(os.environ[URL_NAME], count, snapshot=snapshot)
        return rates["added_per_s"], rates["drained_per_s"]


class DrumbeatFloor(FloorOnServer, DrumbeatPostgres):
    """See bench/floor_postgres.py."""

    tuning = (
        "the PostgreSQL engine's own statements in a bare loop: no handler, no decoding; two connections, batches of 500, "
        "history on"
    )
    measures = frozenset({FLOOR, SNAPSHOT})

    def open_producer(self) -> Producer:
        return FloorProducer(self.module)
