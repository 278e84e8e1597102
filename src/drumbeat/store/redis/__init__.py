"""The Redis engine, for Redis and Valkey. This module builds its parts and owns their lifetimes.

loop --everything--> RedisPool            a few connections; every operation is one script, atomic on the server
     <--hints, jobs-- RedisSubscription    one more connection, subscribed while there are listeners
"""

from typing import Self

from drumbeat.clock import SYSTEM, Clock
from drumbeat.store.protocol import Store
from drumbeat.store.redis import schema
from drumbeat.store.redis.address import RedisAddress, parse_address
from drumbeat.store.redis.audit import RedisAudit
from drumbeat.store.redis.completion import CompletionClient
from drumbeat.store.redis.dependencies import RedisDependencies
from drumbeat.store.redis.health import RedisHealth
from drumbeat.store.redis.inspect import RedisInspect
from drumbeat.store.redis.instances import RedisInstances
from drumbeat.store.redis.jobs import RedisJobs
from drumbeat.store.redis.limits import RedisLimits
from drumbeat.store.redis.locks import RedisLocks
from drumbeat.store.redis.pool import RedisPool
from drumbeat.store.redis.rooms import RedisRooms
from drumbeat.store.redis.schedules import RedisSchedules
from drumbeat.store.redis.stats import RedisStats
from drumbeat.store.redis.steps import RedisSteps
from drumbeat.store.redis.transactional import RedisTransactional
from drumbeat.store.redis.wake import RedisWake
from drumbeat.store.redis.workflows import RedisWorkflows

__all__ = ["RedisAddress", "RedisStore", "RedisTransactional", "parse_address", "schema"]


class RedisStore(Store):
    """One database of a Redis server, as seen from one event loop."""

    def __init__(self, address: RedisAddress, *, namespace: str, clock: Clock) -> None:
        """Use `open`: the constructor opens nothing."""
        self.url = address.display_url
        self._pool = RedisPool(address, namespace)
        completion = CompletionClient(self._pool)
        self.jobs = RedisJobs(self._pool, completion)
        self.steps = RedisSteps(self._pool)
        self.dependencies = RedisDependencies(self._pool)
        self.instances = RedisInstances(self._pool)
        self.schedules = RedisSchedules(self._pool)
        self.limits = RedisLimits(self._pool)
        self.locks = RedisLocks(self._pool)
        self.rooms = RedisRooms(self._pool)
        self.stats = RedisStats(self._pool)
        inspect = RedisInspect(self._pool, RedisHealth(self._pool, clock))
        self.inspect = inspect
        self.workflows = RedisWorkflows(self._pool, inspect)
        self.audit = RedisAudit(self._pool)
        self.wake = RedisWake(self._pool, clock, completion)
        self.transactional = RedisTransactional()

    @classmethod
    async def open(cls, address: RedisAddress, *, namespace: str = "drumbeat", clock: Clock = SYSTEM) -> Self:
        """Connect and check the version of the store; initialise an empty database.

        Raises:
            ConfigError: no entrance, a replica, too old, or a server that may throw keys away, in one line.
            SchemaOutOfDate: it belongs to a newer Drumbeat.
            StoreUnavailable: no answer; try again.
        """
        store = cls(address, namespace=namespace, clock=clock)
        return await store._open_by(schema.check(store._pool))

    async def close(self) -> None:
        await self._pool.close()
