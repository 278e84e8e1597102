"""Health checks of a Redis store: the server, what its settings mean for jobs, how full it is."""

from collections.abc import Mapping

from drumbeat.clock import Clock
from drumbeat.core.health import HealthCheck, HealthLevel
from drumbeat.store import health
from drumbeat.store.health import healthy
from drumbeat.store.redis import schema
from drumbeat.store.redis.pool import RedisPool

_SECTIONS = ("server", "memory", "persistence", "clients", "replication")


class RedisHealth:
    def __init__(self, pool: RedisPool, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock

    async def check_all(self) -> list[HealthCheck]:
        info: dict[str, str] = {}
        for section in _SECTIONS:
            info |= await schema.read_info(self._pool, section)
        version = await self._pool.command("HGET", self._pool.keys.meta, "version")
        is_safe, promise = await schema.describe_durability(self._pool)
        return [
            healthy("engine", _describe_engine(info)),
            health.check_schema(int(version or 0), schema.LATEST_VERSION),
            _check_memory(info),
            _check_eviction(info.get("maxmemory_policy", "unknown")),
            _check_durability(is_safe, promise),
            _check_last_save(info),
            await self._check_clock(),
            _check_mode(info),
            _check_clients(info),
        ]

    async def _check_clock(self) -> HealthCheck:
        before = self._clock.now_us()
        seconds, us = await self._pool.command("TIME")
        return health.check_clock(before, int(seconds) * health.SECOND_US + int(us), self._clock.now_us())


def _describe_engine(info: Mapping[str, str]) -> str:
    if "valkey_version" in info:
        return f"Valkey {info['valkey_version']}"
    return f"Redis {info.get('redis_version', 'of an unknown version')}"


def _check_memory(info: Mapping[str, str]) -> HealthCheck:
    used, most = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    limit = f"of {health.format_size(most)}" if most else "without a limit (maxmemory)"
    advice = "a full server refuses new jobs: give it more memory, or keep history for a shorter time (retention)"
    return health.check_usage("size", used, most, f"{health.format_size(used)} {limit}", advice)


def _check_eviction(policy: str) -> HealthCheck:
    if policy == "noeviction":
        return healthy("eviction", policy)
    advice = "a full server throws jobs away: set maxmemory-policy to noeviction"
    return HealthCheck(name="eviction", level=HealthLevel.BAD, value=policy, advice=advice)


def _check_durability(is_safe: bool, promise: str) -> HealthCheck:
    if is_safe:
        return healthy("durability", promise)
    return HealthCheck(
        name="durability",
        level=HealthLevel.WARN,
        value=promise,
        advice="switch on AOF: appendonly yes, appendfsync everysec",
    )


def _check_last_save(info: Mapping[str, str]) -> HealthCheck:
    """Check that the server can persist; one that cannot soon refuses all writes."""
    watched = {
        "rdb_last_bgsave_status": "snapshot",
        "aof_last_write_status": "AOF",
        "aof_last_bgrewrite_status": "AOF rewrite",
    }
    failed = [name for field, name in watched.items() if info.get(field, "ok") != "ok"]
    if not failed:
        return healthy("last save", "ok")
    advice = "its disk is full, or may not be written: see the server's log"
    return HealthCheck(name="last save", level=HealthLevel.BAD, value=f"failed: {', '.join(failed)}", advice=advice)


def _check_mode(info: Mapping[str, str]) -> HealthCheck:
    """Check replicas, and what they cannot guarantee for jobs."""
    mode = info.get("redis_mode") or info.get("server_mode") or "unknown"
    replicas = int(info.get("connected_slaves", 0))
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
    return (
        HealthCheck(name="mode", level=HealthLevel.NOTE, value=value, advice=advice)
        if risks
        else healthy("mode", value)
    )


def _check_clients(info: Mapping[str, str]) -> HealthCheck:
    used, most = int(info.get("connected_clients", 0)), int(info.get("maxclients", 0))
    advice = "new programs may not get in: raise maxclients"
    return health.check_usage("connections", used, most, f"{used} of {most}" if most else str(used), advice)
