"""The parts that the operations of one PostgreSQL store share: statements, connections, and what writes jobs."""

from typing import NamedTuple, Self

from drumbeat.clock import Clock
from drumbeat.store.postgres.advance import PostgresAdvancer
from drumbeat.store.postgres.claim import PostgresClaimer, ScanBounds
from drumbeat.store.postgres.claim_filler import ClaimFiller
from drumbeat.store.postgres.completion import PostgresCompletionWriter
from drumbeat.store.postgres.connections import GENERIC_PLAN_SETTINGS, PostgresAddress, PostgresConnection
from drumbeat.store.postgres.history import HistoryPartitions
from drumbeat.store.postgres.insert import PostgresInserter
from drumbeat.store.postgres.lane_claim import PostgresLaneClaimer
from drumbeat.store.postgres.statements import statements
from drumbeat.store.postgres.wake import PostgresNotifier
from drumbeat.store.protocol.wake import Forward
from drumbeat.store.sqlfile import EngineStatements


class PostgresParts(NamedTuple):
    sql: EngineStatements
    clock: Clock
    claim_connection: PostgresConnection
    """For claims and outcomes."""
    connection: PostgresConnection
    """For everything else that is quick: enqueue, cancel, heartbeats; LISTEN and NOTIFY."""
    report_connection: PostgresConnection
    """For pages, counts and charts: they may take long, and must not hold up the others."""
    notifier: PostgresNotifier
    inserter: PostgresInserter
    completion: PostgresCompletionWriter
    claimer: PostgresClaimer
    filler: ClaimFiller
    history: HistoryPartitions
    advancer: PostgresAdvancer

    @classmethod
    def build(cls, address: PostgresAddress, *, namespace: str, clock: Clock, forward: Forward | None) -> Self:
        sql = statements(namespace)
        connection = PostgresConnection(address, sql.schema, clock)
        notifier = PostgresNotifier(connection, sql.schema, f"{namespace}.wake", clock, forward)
        bounds = ScanBounds(clock)
        notifier.internal_listeners.append(bounds.lower_to)
        claimer = PostgresClaimer(sql.jobs, bounds)
        inserter = PostgresInserter(sql, namespace, connection, notifier)
        return cls(
            sql=sql,
            clock=clock,
            claim_connection=PostgresConnection(address, sql.schema, clock, GENERIC_PLAN_SETTINGS),
            connection=connection,
            report_connection=PostgresConnection(address, sql.schema, clock),
            notifier=notifier,
            inserter=inserter,
            completion=PostgresCompletionWriter(sql.jobs, inserter),
            claimer=claimer,
            filler=ClaimFiller(claimer, PostgresLaneClaimer(sql.jobs), notifier),
            history=HistoryPartitions(sql.jobs, sql.schema, connection, clock),
            advancer=PostgresAdvancer(sql.dependencies, connection, notifier),
        )

    async def close(self) -> None:
        await self.inserter.close()
        await self.notifier.close()
        for connection in (self.claim_connection, self.connection, self.report_connection):
            await connection.close()
