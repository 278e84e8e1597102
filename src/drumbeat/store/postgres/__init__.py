"""The PostgreSQL engine: a cluster on one server. This module puts its parts together and owns their lifetimes.

loop --claims, outcomes--> work link    one connection, one statement for each exchange
     --what people see---> lists link   pages, counts, charts: what may take long, and must not hold up the others
     --everything else---> side link    enqueue, cancel, beats; LISTEN and NOTIFY

Each is opened when it is first needed: a program that only enqueues has one connection, a worker two, and the heart's own
store one.
"""

from types import TracebackType
from typing import Self

from drumbeat.clock import SYSTEM, Clock
from drumbeat.store.postgres import schema
from drumbeat.store.postgres.adding import Adding
from drumbeat.store.postgres.audit import PostgresAudit
from drumbeat.store.postgres.claiming import Bounds, Claiming
from drumbeat.store.postgres.connections import PLANNED_ONCE, Address, Link, address
from drumbeat.store.postgres.ending import Ending
from drumbeat.store.postgres.facts import PostgresFacts
from drumbeat.store.postgres.history import History
from drumbeat.store.postgres.inside import PostgresInside
from drumbeat.store.postgres.inspect import PostgresInspect
from drumbeat.store.postgres.instances import PostgresInstances
from drumbeat.store.postgres.jobs import PostgresJobs
from drumbeat.store.postgres.locks import PostgresLocks
from drumbeat.store.postgres.rooms import PostgresRooms
from drumbeat.store.postgres.schedules import PostgresSchedules
from drumbeat.store.postgres.search import PostgresSearch
from drumbeat.store.postgres.statements import statements
from drumbeat.store.postgres.stats import PostgresStats
from drumbeat.store.postgres.wake import Announcer, PostgresWake
from drumbeat.store.protocol import Audit, Inside, Inspect, Instances, Jobs, Locks, Rooms, Schedules, Stats, Wake

__all__ = ["Address", "PostgresInside", "PostgresStore", "address", "schema"]


class PostgresStore:
    """One PostgreSQL database, as seen from one event loop."""

    def __init__(self, address: Address, *, namespace: str, clock: Clock) -> None:
        """Nothing is opened yet: use `open`."""
        sql = statements(namespace)
        self.url = address.shown
        self._sql = sql
        self._work = Link(address, sql.schema, clock, PLANNED_ONCE)
        self._side = Link(address, sql.schema, clock)
        self._lists = Link(address, sql.schema, clock)
        self._announcer = Announcer(self._side, sql.schema, f"{namespace}.wake", clock)
        bounds = Bounds(clock)
        self._announcer.inner.append(bounds.hear)
        self._adding = Adding(sql, namespace, self._side, self._announcer)
        ending = Ending(sql.jobs, self._adding)
        history = History(sql.jobs, sql.schema, self._side, clock)
        self.jobs: Jobs = PostgresJobs(
            sql.jobs,
            work=self._work,
            side=self._side,
            adding=self._adding,
            ending=ending,
            claiming=Claiming(sql.jobs, bounds),
            history=history,
            announcer=self._announcer,
        )
        self.instances: Instances = PostgresInstances(
            sql, link=self._side, ending=ending, history=history, announcer=self._announcer, clock=clock
        )
        self.locks: Locks = PostgresLocks(sql, link=self._side)
        self.schedules: Schedules = PostgresSchedules(sql, link=self._side, announcer=self._announcer, clock=clock)
        self.rooms: Rooms = PostgresRooms(sql, link=self._side)
        self.stats: Stats = PostgresStats(sql, link=self._side, lists=self._lists)
        self.inspect: Inspect = PostgresInspect(
            sql,
            PostgresSearch(sql, link=self._lists, clock=clock),
            facts=PostgresFacts(sql, link=self._lists, clock=clock),
            link=self._side,
            lists=self._lists,
            clock=clock,
        )
        self.audit: Audit = PostgresAudit(sql, link=self._side)
        self.wake: Wake = PostgresWake(self._side, self._announcer, clock, namespace=namespace)
        self._inside = PostgresInside(address, namespace=namespace, clock=clock)
        self.inside: Inside = self._inside

    @classmethod
    async def open(cls, address: Address, *, namespace: str = "drumbeat", clock: Clock = SYSTEM) -> Self:
        """Connect, and see whether the tables are those that this code knows; they are made by `drumbeat migrate`.

        Raises:
            ConfigError: no entrance, no permission, or the server is read-only or too old, in one line.
            SchemaOutOfDate: there are no tables, or of another age.
            StoreUnavailable: no answer; try again.
        """
        store = cls(address, namespace=namespace, clock=clock)
        try:
            await schema.check(store._side, store._sql)
        except BaseException:
            await store.close()
            raise
        return store

    async def close(self) -> None:
        await self._adding.close()
        await self._announcer.close()
        await self._inside.close()
        for link in (self._work, self._side, self._lists):
            await link.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
