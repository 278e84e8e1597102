"""Releases: what the end of a job leaves for its children (lua/_releases.lua)."""

from drumbeat.store.redis.pool import RedisPool


async def follow_releases(pool: RedisPool, is_releasing: int) -> None:
    """Follow releases until none is left, after a script that has followed some of them."""
    while is_releasing:
        is_releasing = await pool.run("advance_releases")
