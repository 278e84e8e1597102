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
from drumbeat.store.postgres.audit import PostgresAudit
from drumbeat.store.postgres.claim import PostgresClaimer, ScanBounds
from drumbeat.store.postgres.completion import PostgresCompletionWriter
from drumbeat.store.postgres.connections import (
    GENERIC_PLAN_SETTINGS,
    PostgresAddress,
    PostgresConnection,
    parse_address,
)
from drumbeat.store.postgres.health import PostgresHealth
from drumbeat.store.postgres.history import HistoryPartitions
from drumbeat.store.postgres.insert import PostgresInserter
from drumbeat.store.postgres.inspect import PostgresInspect
from drumbeat.store.postgres.instances import PostgresInstances
from drumbeat.store.postgres.jobs import PostgresJobs
from drumbeat.store.postgres.locks import PostgresLocks
from drumbeat.store.postgres.rooms import PostgresRooms
from drumbeat.store.postgres.schedules import PostgresSchedules
from drumbeat.store.postgres.search import PostgresSearch
from drumbeat.store.postgres.statements import statements
from drumbeat.store.postgres.stats import PostgresStats
from drumbeat.store.postgres.transactional import PostgresTransactional
from drumbeat.store.postgres.wake import PostgresNotifier, PostgresWake
from drumbeat.store.protocol import (
    AuditStore,
    Inspector,
    InstanceStore,
    JobStore,
    LockStore,
    RoomStore,
    ScheduleStore,
    StatsStore,
    Transactional,
    Wake,
)
from drumbeat.store.protocol.wake import Forward

__all__ = ["PostgresAddress", "PostgresStore", "PostgresTransactional", "parse_address", "schema"]


class PostgresStore:
    """One PostgreSQL database, as seen from one event loop."""

    def __init__(
        self, address: PostgresAddress, *, namespace: str, clock: Clock, forward: Forward | None = None
    ) -> None:
        """Nothing is opened yet: use `open`."""
        sql = statements(namespace)
        self.url = address.masked_url
        self._sql = sql
        self._claim_connection = PostgresConnection(address, sql.schema, clock, GENERIC_PLAN_SETTINGS)
        self._connection = PostgresConnection(address, sql.schema, clock)
        self._report_connection = PostgresConnection(address, sql.schema, clock)
        self._notifier = PostgresNotifier(self._connection, sql.schema, f"{namespace}.wake", clock, forward)
        bounds = ScanBounds(clock)
        self._notifier.internal_listeners.append(bounds.lower_to)
        self._inserter = PostgresInserter(sql, namespace, self._connection, self._notifier)
        completion = PostgresCompletionWriter(sql.jobs, self._inserter)
        history = HistoryPartitions(sql.jobs, sql.schema, self._connection, clock)
        self.jobs: JobStore = PostgresJobs(
            sql.jobs,
            claim_connection=self._claim_connection,
            connection=self._connection,
            inserter=self._inserter,
            completion=completion,
            claimer=PostgresClaimer(sql.jobs, bounds),
            history=history,
            notifier=self._notifier,
        )
        self.instances: InstanceStore = PostgresInstances(
            sql,
            connection=self._connection,
            completion=completion,
            history=history,
            notifier=self._notifier,
            clock=clock,
        )
        self.locks: LockStore = PostgresLocks(sql, connection=self._connection)
        self.schedules: ScheduleStore = PostgresSchedules(
            sql, connection=self._connection, notifier=self._notifier, clock=clock
        )
        self.rooms: RoomStore = PostgresRooms(sql, connection=self._connection)
        self.stats: StatsStore = PostgresStats(
            sql, connection=self._connection, report_connection=self._report_connection
        )
        self.inspect: Inspector = PostgresInspect(
            sql,
            PostgresSearch(sql, connection=self._report_connection, clock=clock),
            health=PostgresHealth(sql, connection=self._report_connection, clock=clock),
            connection=self._connection,
            report_connection=self._report_connection,
            clock=clock,
        )
        self.audit: AuditStore = PostgresAudit(sql, connection=self._connection)
        self.wake: Wake = PostgresWake(self._connection, self._notifier, clock, namespace=namespace)
        self._transactional = PostgresTransactional(address, namespace=namespace, clock=clock)
        self.transactional: Transactional = self._transactional

    @classmethod
    async def open(
        cls,
        address: PostgresAddress,
        *,
        namespace: str = "drumbeat",
        clock: Clock = SYSTEM,
        forward: Forward | None = None,
    ) -> Self:
        """Connect, and see whether the tables are those that this code knows; they are made by `drumbeat migrate`.

        Raises:
            ConfigError: no entrance, no permission, or the server is read-only or too old, in one line.
            SchemaOutOfDate: there are no tables, or of another age.
            StoreUnavailable: no answer; try again.
        """
        store = cls(address, namespace=namespace, clock=clock, forward=forward)
        try:
            await schema.check(store._connection, store._sql)
        except BaseException:
            await store.close()
            raise
        return store

    async def close(self) -> None:
        await self._inserter.close()
        await self._notifier.close()
        await self._transactional.close()
        for link in (self._claim_connection, self._connection, self._report_connection):
            await link.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
