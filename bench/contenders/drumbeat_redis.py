"""Drumbeat on Redis, and the floor under it."""

import os

from bench.apps import URL_NAME
from bench.contender import BACKLOG, KEYS, Producer
from bench.contenders.drumbeat import DrumbeatOnServer, DrumbeatProducer, DrumbeatThreadsOnServer, FloorOnServer
from bench.contenders.redis import LOAD_MEASURES, RedisContender


class DrumbeatRedisProducer(DrumbeatProducer):
    calls_at_once = 2


class DrumbeatRedis(DrumbeatOnServer, RedisContender):
    drain_jobs = 200_000
    measures = LOAD_MEASURES | {BACKLOG, KEYS}
    tuning = f"{DrumbeatOnServer.tuning}; two bulk calls at a time"

    def open_producer(self) -> Producer:
        return DrumbeatRedisProducer(self.client_module)

    def load(self) -> None:
        import redis.asyncio  # noqa: F401

        import drumbeat.store.redis  # noqa: F401


class DrumbeatThreads(DrumbeatThreadsOnServer, DrumbeatRedis):
    pass


class FloorProducer(DrumbeatProducer):
    def floor(self, count: int, *, snapshot: bool) -> tuple[float, float]:
        from bench.floor_redis import run

        assert not snapshot, "another session's snapshot is asked for on PostgreSQL only"
        rates = run(os.environ[URL_NAME], count)
        return rates["added_per_s"], rates["drained_per_s"]


class DrumbeatFloor(FloorOnServer, DrumbeatRedis):
    """See bench/floor_redis.py."""

    tuning = (
        "the Redis engine's own scripts in a bare loop: no handler, no decoding; two connections, batches of 500, "
        "history on"
    )

    def load(self) -> None:
        super().load()
        import bench.floor_redis  # noqa: F401

    def open_producer(self) -> Producer:
        return FloorProducer(self.module)
