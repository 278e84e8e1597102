"""What a person should know of a Redis store: the server, what its settings mean for jobs, how full it is."""

from collections.abc import Mapping

from drumbeat.clock import Clock
from drumbeat.model.finding import Finding, Level
from drumbeat.store import facts
from drumbeat.store.facts import fact
from drumbeat.store.redis import schema
from drumbeat.store.redis.connections import Link

_SECTIONS = ("server", "memory", "persistence", "clients", "replication")


class RedisFacts:
    def __init__(self, link: Link, clock: Clock) -> None:
        self._link = link
        self._clock = clock

    async def gather(self) -> list[Finding]:
        told: dict[str, str] = {}
        for section in _SECTIONS:
            told |= await schema.info(self._link, section)
        version = await self._link.command("HGET", self._link.keys.meta, "version")
        is_safe, promise = await schema.promise(self._link)
        return [
            fact("engine", _engine(told)),
            facts.schema(int(version or 0), schema.KNOWN),
            _memory(told),
            _eviction(told.get("maxmemory_policy", "unknown")),
            _durability(is_safe, promise),
            _saving(told),
            await self._clocks(),
            _mode(told),
            _clients(told),
        ]

    async def _clocks(self) -> Finding:
        before = self._clock.now_us()
        seconds, us = await self._link.command("TIME")
        return facts.clock(before, int(seconds) * facts.SECOND + int(us), self._clock.now_us())


def _engine(told: Mapping[str, str]) -> str:
    if "valkey_version" in told:
        return f"Valkey {told['valkey_version']}"
    return f"Redis {told.get('redis_version', 'of an unknown version')}"


def _memory(told: Mapping[str, str]) -> Finding:
    used, most = int(told.get("used_memory", 0)), int(told.get("maxmemory", 0))
    limit = f"of {facts.size(most)}" if most else "without a limit (maxmemory)"
    advice = "a full server refuses new jobs: give it more memory, or keep history for a shorter time (retention)"
    return facts.filled("size", used, most, f"{facts.size(used)} {limit}", advice)


def _eviction(policy: str) -> Finding:
    if policy == "noeviction":
        return fact("eviction", policy)
    advice = "a full server throws jobs away: set maxmemory-policy to noeviction"
    return Finding(name="eviction", level=Level.BAD, value=policy, advice=advice)


def _durability(is_safe: bool, promise: str) -> Finding:
    if is_safe:
        return fact("durability", promise)
    return Finding(
        name="durability", level=Level.WARN, value=promise, advice="switch on AOF: appendonly yes, appendfsync everysec"
    )


def _saving(told: Mapping[str, str]) -> Finding:
    """Whether the server can write what it should. One that cannot soon refuses all writes."""
    watched = {
        "rdb_last_bgsave_status": "snapshot",
        "aof_last_write_status": "AOF",
        "aof_last_bgrewrite_status": "AOF rewrite",
    }
    failed = [name for field, name in watched.items() if told.get(field, "ok") != "ok"]
    if not failed:
        return fact("last save", "ok")
    advice = "its disk is full, or may not be written: see the server's log"
    return Finding(name="last save", level=Level.BAD, value=f"failed: {', '.join(failed)}", advice=advice)


def _mode(told: Mapping[str, str]) -> Finding:
    """What stands behind the server, and what it cannot do for jobs."""
    mode, replicas = (
        told.get("redis_mode") or told.get("server_mode") or "unknown",
        int(told.get("connected_slaves", 0)),
    )
    risks = []
    if replicas:
        risks.append(
            "replication is asynchronous and nobody waits for it: a failover to a replica that is behind loses jobs that were"
            " acknowledged, and nobody is told"
        )
    if mode == "cluster":
        risks.append(
            "the node of the URL must live when a program starts; after a slot has moved or failed over, idle workers keep"
            " their subscription at the old node and are slower to pick up jobs until they are restarted"
        )
    value, advice = f"{mode}, {replicas} replicas", "; ".join(risks)
    return Finding(name="mode", level=Level.NOTE, value=value, advice=advice) if risks else fact("mode", value)


def _clients(told: Mapping[str, str]) -> Finding:
    used, most = int(told.get("connected_clients", 0)), int(told.get("maxclients", 0))
    advice = "new programs may not get in: raise maxclients"
    return facts.filled("connections", used, most, f"{used} of {most}" if most else str(used), advice)
