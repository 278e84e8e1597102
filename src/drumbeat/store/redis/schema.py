"""What a Redis store is: its version, and a server that keeps what it was given.

An empty database becomes a store when it is opened: there are no tables to make. What a server's settings mean for jobs that
were acknowledged is said here, in words.
"""

import os

from drumbeat.errors import ConfigError, SchemaOutOfDate, StoreError
from drumbeat.store.migrations import SchemaVersion
from drumbeat.store.redis.address import RedisAddress
from drumbeat.store.redis.pool import RedisPool

LATEST_VERSION = 1
"""The version that this code creates and understands."""
MIN_CODE_VERSION = 1
"""The smallest LATEST_VERSION of code that can use a store of this version."""


def new_store_fields() -> tuple[int, int, str]:
    """Return the description of a new store: version, oldest usable code, a random id."""
    return LATEST_VERSION, MIN_CODE_VERSION, os.urandom(8).hex()


async def check(pool: RedisPool) -> None:
    """Check that this code can use the store and the server keeps data; initialise an empty one.

    Raises:
        ConfigError: keys may be thrown away.
        SchemaOutOfDate: the store is newer than this code can use.
    """
    await check_policy(pool)
    version, oldest_code, _ = await pool.run("open_schema", *new_store_fields())
    if int(version) > LATEST_VERSION and int(oldest_code) > LATEST_VERSION:
        raise SchemaOutOfDate(found=int(version), known=LATEST_VERSION)


async def read_schema(address: RedisAddress, namespace: str) -> SchemaVersion:
    """Read the version of the store; nothing is changed."""
    pool = RedisPool(address, namespace)
    try:
        version, oldest_code = await pool.command("HMGET", pool.keys.meta, "version", "oldest_code")
    finally:
        await pool.close()
    return SchemaVersion(version=int(version or 0), oldest_code=int(oldest_code or 0))


async def check_policy(pool: RedisPool) -> None:
    """Raises:
    ConfigError: the server may throw keys away, and nobody has accepted that.
    """
    if pool.address.eviction_accepted:
        return
    policy = (await read_info(pool, "memory")).get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise ConfigError(
            f"{pool.address.display_url}: maxmemory-policy is {policy}: a full server would evict jobs; set it to "
            "noeviction, or add ?eviction=accepted to the URL",
            "url",
        )


async def describe_durability(pool: RedisPool) -> tuple[bool, str]:
    """Return whether acknowledged jobs survive the end of the server, and which do not, in words."""
    if (await read_info(pool, "persistence")).get("aof_enabled") == "1":
        match await _read_setting(pool, "appendfsync"):
            case "always":
                return True, "AOF with appendfsync always: acknowledged jobs survive a crash of the server"
            case "everysec":
                return True, "AOF with appendfsync everysec: a crash of the machine loses about the last second"
            case "no":
                return False, "AOF with appendfsync no: a crash of the machine loses what its kernel had not written"
            case _:
                return True, "AOF; this user may not see appendfsync, so what a crash of the machine loses is not known"
    match await _read_setting(pool, "save"):
        case None:
            return (
                False,
                "no AOF; this user may not see whether there are snapshots: a crash of the server may lose all jobs",
            )
        case "":
            return False, "neither AOF nor RDB: a restart of the server loses all jobs"
        case _:
            return False, "RDB snapshots only: a crash of the server loses everything since the last one"


async def read_info(pool: RedisPool, section: str) -> dict[str, str]:
    """Return the INFO of the server."""
    lines = (await pool.command("INFO", section)).decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


async def _read_setting(pool: RedisPool, name: str) -> str | None:
    """Return a setting of the server; None if CONFIG is forbidden, as providers often do."""
    try:
        found = await pool.command("CONFIG", "GET", name)
    except (StoreError, ConfigError):
        return None
    return found[1].decode() if found else None
