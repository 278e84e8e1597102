"""What a person should know of a PostgreSQL store: the server, what its settings mean for jobs, and what slows claims."""

from typing import Any

from drumbeat.clock import Clock
from drumbeat.model.finding import Finding, Level
from drumbeat.store import facts
from drumbeat.store.facts import fact
from drumbeat.store.postgres import schema
from drumbeat.store.postgres.connections import LONG, Link, Session
from drumbeat.store.postgres.failures import KNOWN
from drumbeat.store.postgres.statements import Statements

_LONG_OPEN = 300.0
"""Seconds. While a transaction is open, no row that died since can be removed, in any table."""
_MANY_DEAD = 200_000
"""Ten times what sets autovacuum going on this table."""


class PostgresFacts:
    def __init__(self, sql: Statements, *, link: Link, clock: Clock) -> None:
        self._sql = sql
        self._link = link
        self._clock = clock

    async def gather(self) -> list[Finding]:
        version = (await schema.found(self._link, self._sql)).version
        before, server, after = await self._link.call(self._server, patience=LONG)
        transactions = await self._link.call(lambda session: session.fetchrow(self._sql.facts.transactions))
        vacuum = await self._link.call(lambda session: session.fetchrow(self._sql.facts.vacuum))
        return [
            fact("engine", f"PostgreSQL {server['version']}"),
            facts.schema(version, KNOWN),
            fact("size", f"{facts.size(server['size'])} of a database of {facts.size(server['database_size'])}"),
            _durability(server),
            facts.clock(before, server["now"], after),
            _pooler(self._link.pooled),
            _connections(server),
            _transactions(transactions),
            _autovacuum(server["autovacuum"], vacuum),
        ]

    async def _server(self, session: Session) -> tuple[int, Any, int]:
        before = self._clock.now_us()
        server = await session.fetchrow(self._sql.facts.server)
        return before, server, self._clock.now_us()


def _durability(server: Any) -> Finding:
    off = [name for name in ("fsync", "full_page_writes") if server[name] == "off"]
    if off:
        advice = "a crash of the machine may damage the whole database: switch it on"
        return Finding(name="durability", level=Level.BAD, value=f"{' and '.join(off)} off", advice=advice)
    value = f"fsync on, synchronous_commit {server['synchronous_commit']}"
    if server["synchronous_commit"] != "off":
        return fact("durability", value)
    advice = "a crash of the server loses the last acknowledged jobs: set synchronous_commit to on for this user"
    return Finding(name="durability", level=Level.WARN, value=value, advice=advice)


def _pooler(pooled: bool) -> Finding:
    if not pooled:
        return fact("pooler", "none, or one of sessions")
    value = "transactions: nothing can be heard through it, workers look twice a second"
    return Finding(name="pooler", level=Level.NOTE, value=value, advice="connect workers directly for quicker pickups")


def _connections(server: Any) -> Finding:
    used, most = server["connections"], server["max_connections"]
    advice = "new programs may not get in: raise max_connections, or put a pooler before the server"
    return facts.filled("connections", used, most, f"{used} of {most}", advice)


def _transactions(row: Any) -> Finding:
    if not row["open"]:
        return fact("long transactions", "none")
    value = f"{row['open']} open, the oldest for {facts.age(row['seconds'])}"
    if row["seconds"] < _LONG_OPEN:
        return fact("long transactions", value)
    advice = "while it is open no dead row can be removed and claims get slower: end it, and set a time-out for such sessions"
    return Finding(name="long transactions", level=Level.WARN, value=f"{value} ({row['what']})", advice=advice)


def _autovacuum(setting: str, row: Any) -> Finding:
    if setting == "off":
        advice = "dead rows of the queue are never removed, and claims get slower and slower: switch it on"
        return Finding(name="autovacuum", level=Level.BAD, value="off", advice=advice)
    if row is None:
        return Finding(name="autovacuum", level=Level.NOTE, value="on; nothing is known of the table of jobs")
    last = "never yet" if row["seconds"] is None else f"{facts.age(row['seconds'])} ago"
    value = f"on; {row['dead']:,} dead rows beside {row['live']:,} live jobs, last vacuum {last}"
    if row["dead"] <= max(_MANY_DEAD, row["live"]):
        return fact("autovacuum", value)
    advice = "it does not keep up, or a long transaction keeps it from removing them; claims get slower"
    return Finding(name="autovacuum", level=Level.WARN, value=value, advice=advice)
