"""The Redis engine: a cluster of workers on one Redis or Valkey. This module puts its parts together and owns their lifetimes.

loop --everything--> Link    a few connections; every operation is one script, atomic on the server
     <--hints, jobs-- Ear    one connection more that is subscribed, while somebody listens
"""

from types import TracebackType
from typing import Self

from drumbeat.clock import SYSTEM, Clock
from drumbeat.store.protocol import Audit, Inside, Inspect, Instances, Jobs, Locks, Rooms, Schedules, Stats, Wake
from drumbeat.store.redis import schema
from drumbeat.store.redis.audit import RedisAudit
from drumbeat.store.redis.connections import Address, Link, address
from drumbeat.store.redis.ending import Exchanging
from drumbeat.store.redis.facts import RedisFacts
from drumbeat.store.redis.inside import RedisInside
from drumbeat.store.redis.inspect import RedisInspect
from drumbeat.store.redis.instances import RedisInstances
from drumbeat.store.redis.jobs import RedisJobs
from drumbeat.store.redis.locks import RedisLocks
from drumbeat.store.redis.rooms import RedisRooms
from drumbeat.store.redis.schedules import RedisSchedules
from drumbeat.store.redis.stats import RedisStats
from drumbeat.store.redis.wake import RedisWake

__all__ = ["Address", "RedisInside", "RedisStore", "address", "schema"]


class RedisStore:
    """One database of a Redis server, as seen from one event loop."""

    def __init__(self, address: Address, *, namespace: str, clock: Clock) -> None:
        """Nothing is opened yet: use `open`."""
        self.url = address.shown
        self._link = Link(address, namespace)
        exchanging = Exchanging(self._link)
        self.jobs: Jobs = RedisJobs(self._link, exchanging)
        self.instances: Instances = RedisInstances(self._link)
        self.schedules: Schedules = RedisSchedules(self._link)
        self.locks: Locks = RedisLocks(self._link)
        self.rooms: Rooms = RedisRooms(self._link)
        self.stats: Stats = RedisStats(self._link)
        self.inspect: Inspect = RedisInspect(self._link, RedisFacts(self._link, clock))
        self.audit: Audit = RedisAudit(self._link)
        self.wake: Wake = RedisWake(self._link, clock, exchanging)
        self.inside: Inside = RedisInside()

    @classmethod
    async def open(cls, address: Address, *, namespace: str = "drumbeat", clock: Clock = SYSTEM) -> Self:
        """Connect, and see whether the store is one that this code knows; an empty database becomes one.

        Raises:
            ConfigError: no entrance, a replica, too old, or a server that may throw keys away, in one line.
            SchemaOutOfDate: it belongs to a newer Drumbeat.
            StoreUnavailable: no answer; try again.
        """
        store = cls(address, namespace=namespace, clock=clock)
        try:
            await schema.check(store._link)
        except BaseException:
            await store.close()
            raise
        return store

    async def close(self) -> None:
        await self._link.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
