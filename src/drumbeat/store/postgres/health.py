"""Health checks of a PostgreSQL store: the server, what its settings mean for jobs, and what slows claims."""

from typing import Any

from drumbeat.core.health import HealthCheck, HealthLevel
from drumbeat.store import health
from drumbeat.store.health import healthy, unhealthy
from drumbeat.store.postgres import schema
from drumbeat.store.postgres.connections import LONG_TIMEOUT, Session
from drumbeat.store.postgres.error_translation import LATEST_VERSION
from drumbeat.store.postgres.parts import PostgresParts

_LONG_TRANSACTION_S = 300.0
"""Seconds. While a transaction is open, rows that died since cannot be vacuumed, in any table."""
_MAX_DEAD_ROWS = 200_000
"""Ten times what starts autovacuum on this table."""


class PostgresHealth:
    def __init__(self, parts: PostgresParts) -> None:
        self._sql = parts.sql
        self._connection = parts.report_connection
        self._clock = parts.clock

    async def check_all(self) -> list[HealthCheck]:
        version = (await schema.load_schema(self._connection, self._sql)).version
        before, server, after = await self._connection.call(self._read_server, timeout=LONG_TIMEOUT)
        transactions = await self._connection.call(lambda session: session.fetchrow(self._sql.health.transactions))
        vacuum = await self._connection.call(lambda session: session.fetchrow(self._sql.health.vacuum))
        return [
            healthy("engine", f"PostgreSQL {server['version']}"),
            health.check_schema(version, LATEST_VERSION),
            healthy(
                "size",
                f"{health.format_size(server['size'])} of a database of {health.format_size(server['database_size'])}",
            ),
            _durability(server),
            health.check_clock(before, server["now"], after),
            _pooler(self._connection.pooled),
            _connections(server),
            _transactions(transactions),
            _autovacuum(server["autovacuum"], vacuum),
        ]

    async def _read_server(self, session: Session) -> tuple[int, Any, int]:
        before = self._clock.now_us()
        server = await session.fetchrow(self._sql.health.server)
        return before, server, self._clock.now_us()


def _durability(server: Any) -> HealthCheck:
    off = [name for name in ("fsync", "full_page_writes") if server[name] == "off"]
    if off:
        advice = "a crash of the machine may damage the whole database: switch it on"
        return unhealthy(HealthLevel.BAD, "durability", f"{' and '.join(off)} off", advice)
    value = f"fsync on, synchronous_commit {server['synchronous_commit']}"
    if server["synchronous_commit"] != "off":
        return healthy("durability", value)
    advice = "a crash of the server loses the last acknowledged jobs: set synchronous_commit to on for this user"
    return unhealthy(HealthLevel.WARN, "durability", value, advice)


def _pooler(pooled: bool) -> HealthCheck:
    if not pooled:
        return healthy("pooler", "none, or in session mode")
    value = "transaction mode: LISTEN does not work through it, workers poll twice a second"
    return unhealthy(HealthLevel.NOTE, "pooler", value, "connect workers directly for quicker pickups")


def _connections(server: Any) -> HealthCheck:
    used, limit = server["connections"], server["max_connections"]
    advice = "new programs may not be able to connect: raise max_connections, or put a pooler before the server"
    return health.check_usage("connections", used, limit, f"{used} of {limit}", advice)


def _transactions(row: Any) -> HealthCheck:
    if not row["open"]:
        return healthy("long transactions", "none")
    value = f"{row['open']} open, the oldest for {health.format_age(row['seconds'])}"
    if row["seconds"] < _LONG_TRANSACTION_S:
        return healthy("long transactions", value)
    advice = "while it is open no dead row can be removed and claims get slower: end it, and set a time-out for such sessions"
    return unhealthy(HealthLevel.WARN, "long transactions", f"{value} ({row['what']})", advice)


def _autovacuum(setting: str, row: Any) -> HealthCheck:
    if setting == "off":
        advice = "dead rows of the queue are never removed, and claims get slower and slower: switch it on"
        return unhealthy(HealthLevel.BAD, "autovacuum", "off", advice)
    if row is None:
        return unhealthy(HealthLevel.NOTE, "autovacuum", "on; nothing is known of the table of jobs")
    last = "never yet" if row["seconds"] is None else f"{health.format_age(row['seconds'])} ago"
    value = f"on; {row['dead']:,} dead rows beside {row['live']:,} live jobs, last vacuum {last}"
    if row["dead"] <= max(_MAX_DEAD_ROWS, row["live"]):
        return healthy("autovacuum", value)
    advice = "it does not keep up, or a long transaction keeps it from removing them; claims get slower"
    return unhealthy(HealthLevel.WARN, "autovacuum", value, advice)
