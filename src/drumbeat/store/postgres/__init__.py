"""The PostgreSQL engine: a cluster on one server. This module builds its parts and owns their lifetimes.

loop --claims, outcomes--> claim_connection    one statement for each report_and_claim
     --pages, charts-----> report_connection   what may take long, and must not hold up the others
     --everything else---> connection          enqueue, cancel, heartbeats; LISTEN and NOTIFY

Each is opened when it is first needed: a program that only enqueues has one connection, a worker two, and the store of the
heartbeat one.
"""

from typing import Self

from drumbeat.clock import SYSTEM, Clock
from drumbeat.store.postgres import schema
from drumbeat.store.postgres.audit import PostgresAudit
from drumbeat.store.postgres.connections import PostgresAddress, parse_address
from drumbeat.store.postgres.dependencies import PostgresDependencies
from drumbeat.store.postgres.inspect import PostgresInspect
from drumbeat.store.postgres.instances import PostgresInstances
from drumbeat.store.postgres.jobs import PostgresJobs
from drumbeat.store.postgres.limits import PostgresLimits
from drumbeat.store.postgres.locks import PostgresLocks
from drumbeat.store.postgres.parts import PostgresParts
from drumbeat.store.postgres.rooms import PostgresRooms
from drumbeat.store.postgres.schedules import PostgresSchedules
from drumbeat.store.postgres.stats import PostgresStats
from drumbeat.store.postgres.steps import PostgresSteps
from drumbeat.store.postgres.transactional import PostgresTransactional
from drumbeat.store.postgres.wake import PostgresWake
from drumbeat.store.postgres.workflows import PostgresWorkflows
from drumbeat.store.protocol import Store
from drumbeat.store.protocol.wake import Forward

__all__ = ["PostgresAddress", "PostgresStore", "PostgresTransactional", "parse_address", "schema"]


class PostgresStore(Store):
    """One PostgreSQL database, as seen from one event loop."""

    def __init__(
        self, address: PostgresAddress, *, namespace: str, clock: Clock, forward: Forward | None = None
    ) -> None:
        """Nothing is opened yet: use `open`."""
        parts = PostgresParts.build(address, namespace=namespace, clock=clock, forward=forward)
        self.url = address.masked_url
        self._parts = parts
        self.jobs = PostgresJobs(parts)
        self.steps = PostgresSteps(parts)
        self.dependencies = PostgresDependencies(parts)
        self.workflows = PostgresWorkflows(parts)
        self.instances = PostgresInstances(parts)
        self.limits = PostgresLimits(parts)
        self.locks = PostgresLocks(parts)
        self.schedules = PostgresSchedules(parts)
        self.rooms = PostgresRooms(parts)
        self.stats = PostgresStats(parts)
        self.inspect = PostgresInspect(parts)
        self.audit = PostgresAudit(parts)
        self.wake = PostgresWake(parts.connection, parts.notifier, clock, namespace=namespace)
        self._transactional = PostgresTransactional(address, namespace=namespace, clock=clock)
        self.transactional = self._transactional

    @classmethod
    async def open(
        cls,
        address: PostgresAddress,
        *,
        namespace: str = "drumbeat",
        clock: Clock = SYSTEM,
        forward: Forward | None = None,
    ) -> Self:
        """Connect, and check that the tables are those that this code knows; `drumbeat migrate` creates them.

        Raises:
            ConfigError: access denied, a missing permission, or the server is read-only or too old, in one line.
            SchemaOutOfDate: there are no tables, or of another version.
            StoreUnavailable: no answer; try again.
        """
        store = cls(address, namespace=namespace, clock=clock, forward=forward)
        return await store._open_by(schema.check(store._parts.connection, store._parts.sql))

    async def close(self) -> None:
        await self._transactional.close()
        await self._parts.close()
