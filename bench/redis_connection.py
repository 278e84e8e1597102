"""What our own reading of replies gains over the driver's, in one run: `python -m bench.redis_connection`.

Both send the same bytes over a connection that the driver has opened; rounds alternate. Kept because ARCHITECTURE.md promises
that `store/redis/connection.py` exists only as long as it is worth it.
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

from redis.asyncio.connection import Connection

from drumbeat.store.redis import parse_address
from drumbeat.store.redis.connection import RedisConnection
from tests.servers.redis import RedisServer

ROUNDS, CALLS = 20, 2_000
SCRIPT = "for i = 1, 10 do redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) end return {redis.call('TIME')[1], ARGV[1]}"
COMMANDS: dict[str, tuple[Any, ...]] = {
    "PING": ("PING",),
    "a script of ten writes": ("EVAL", SCRIPT, 1, "k", "field", "v" * 200),
}


async def time_calls(call: Callable[..., Awaitable[Any]], command: tuple[Any, ...]) -> float:
    begun = time.perf_counter()
    for _ in range(CALLS):
        await call(*command)
    return (time.perf_counter() - begun) / CALLS * 1e6


async def measure(url: str) -> None:
    address = parse_address(url, url)
    own = await RedisConnection.open(address.new_connection(None), url)
    driver = address.new_connection(None)
    assert isinstance(driver, Connection)
    await driver.connect()

    async def by_driver(*command: Any) -> Any:
        async with asyncio.timeout(4.5):
            await driver.send_packed_command([b"".join(driver.pack_command(*command))])
            return await driver.read_response()

    for name, command in COMMANDS.items():
        ours, theirs = [], []
        for _ in range(ROUNDS):
            ours.append(await time_calls(own.execute, command))
            theirs.append(await time_calls(by_driver, command))
        ratios = sorted(b / a for a, b in zip(ours, theirs, strict=True))
        print(
            f"{name}: ours {statistics.median(ours):.0f} µs, driver {statistics.median(theirs):.0f} µs, "
            f"ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f}..{ratios[-1]:.2f})"
        )
    await own.close()
    await driver.disconnect()


if __name__ == "__main__":
    with RedisServer() as server:
        asyncio.run(measure(server.url))
