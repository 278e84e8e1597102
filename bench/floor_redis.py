"""The floor under Drumbeat on Redis: the engine's own scripts on its own keys, in a bare loop.

No worker, no handler, no arguments decoded: two connections claim, believe done and finish, batch by batch, with history.
Whatever a worker does on top can only be slower. `run` is called by the bench; as a program it starts servers of its own and
prints one line for each measurement, also with a million future jobs waiting and with the memory that each of those takes.
"""

import asyncio
import os
import sys
import time
from collections.abc import Coroutine
from typing import Any

from drumbeat.clock import SYSTEM
from drumbeat.core.instance import NewInstance, Role
from drumbeat.core.job import NewJob
from drumbeat.ids import InstanceId, new_instance_id, new_job_ids
from drumbeat.redaction import mask_url
from drumbeat.store.redis import RedisStore, parse_address
from drumbeat.store.redis.insert import insert_arguments
from drumbeat.store.redis.pool import RedisPool

BATCH = 500
ADDED_AT_ONCE = 5_000
CONNECTIONS = 2
QUEUE = "default"
HOUR = 3_600_000_000


def run(url: str, n: int, *, future: int = 0) -> dict[str, float]:
    """Add and drain n jobs in the database behind this URL, behind this many future ones: jobs in a second, and what the server
    itself needed for one."""
    return asyncio.run(_run(url, n, future))


async def _run(url: str, n: int, future: int) -> dict[str, float]:
    instance = await _instance(url)
    pool = RedisPool(parse_address(url, mask_url(url)), "drumbeat")
    try:
        await _fill(pool, future, delay=HOUR)
        added = await _timed(_fill(pool, n))
        served = await _served(pool)
        cpu = time.process_time()
        drained = await _timed(_drain_all(pool, instance, n))
        cpu = time.process_time() - cpu
        served = await _served(pool) - served
    finally:
        await pool.close()
    return {
        "added_per_s": n / added,
        "drained_per_s": n / drained,
        "drain_client_cpu_us": cpu / n * 1e6,
        "drain_server_cpu_us": served / n,
    }


def memory(url: str, n: int, **options: Any) -> float:
    """Bytes of server memory for each of n future jobs beyond its arguments."""
    return asyncio.run(_memory(url, n, options))


async def _memory(url: str, n: int, options: dict[str, Any]) -> float:
    pool = RedisPool(parse_address(url, mask_url(url)), "drumbeat")
    try:
        before = await _used(pool)
        await _fill(pool, n, delay=HOUR, **options)
        return (await _used(pool) - before) / n - len(_job(new_job_ids(1)[0]).args)
    finally:
        await pool.close()


async def _used(pool: RedisPool) -> int:
    facts = await pool.command("INFO", "memory")
    return int(facts.split(b"used_memory_dataset:")[1].split()[0])


async def _served(pool: RedisPool) -> float:
    """Microseconds of processor time that the server has used."""
    facts = await pool.command("INFO", "cpu")
    return sum(float(facts.split(name)[1].split()[0]) for name in (b"used_cpu_sys:", b"used_cpu_user:")) * 1e6


async def _instance(url: str) -> InstanceId:
    id = new_instance_id()
    async with await RedisStore.open(parse_address(url, mask_url(url))) as store:
        await store.instances.register(
            NewInstance(
                id=id,
                app="floor",
                version="",
                host="",
                pid=os.getpid(),
                roles=(Role.WORKER,),
                queues=(QUEUE,),
                tasks={},
                concurrency=1,
            )
        )
    return id


async def _timed(work: Coroutine[Any, Any, None]) -> float:
    started = time.perf_counter()
    await work
    return time.perf_counter() - started


def _job(id: Any, **options: Any) -> NewJob:
    return NewJob(id=id, task="noop", queue=QUEUE, args='{"x":1}', signature="0123456789abcdef", **options)


async def _fill(pool: RedisPool, n: int, *, keys: str = "", **options: Any) -> None:
    for start in range(0, n, ADDED_AT_ONCE):
        ids = new_job_ids(min(ADDED_AT_ONCE, n - start))
        if keys:
            jobs = [_job(id, key=f"{keys}{start + number}", **options) for number, id in enumerate(ids)]
        else:
            jobs = [_job(id, **options) for id in ids]
        await pool.run("add_jobs", *insert_arguments(jobs))


async def _drain_all(pool: RedisPool, instance: InstanceId, n: int) -> None:
    async with asyncio.TaskGroup() as group:
        drains = [group.create_task(_drain(pool, instance)) for _ in range(CONNECTIONS)]
    assert sum(drain.result() for drain in drains) == n, "some were not drained"


async def _drain(pool: RedisPool, instance: InstanceId) -> int:
    """Finish a batch and claim the next until nothing is left; how many."""
    held: list[bytes] = []
    drained = token = 0
    claim = (BATCH, "", 1, QUEUE, BATCH, 0)
    while True:
        now = SYSTEM.now_us()
        record = b'[%d,"succeeded","succeeded",%d,"%b",%d]' % (now, now, instance.encode(), token)
        good = [value for id in held for value in (id, record)]
        group = (1, token, "noop", len(held)) if held else (0,)
        token, _, unsure, ids, *_ = await pool.run("report_and_claim", instance, *claim, *group, *good, 0)
        assert not unsure, "a finished job was not recorded"
        drained += len(held)
        held = ids
        if not held:
            return drained


def main() -> None:
    from tests.servers.redis import RedisServer

    n = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    for kind in ("valkey", "redis6"):
        for future in (0, 1_000_000):
            with RedisServer(kind) as server:
                for name, value in run(server.url, n, future=future).items():
                    print(
                        f"{kind:8} {name:22} {value:12,.1f}{'  behind a million future jobs' if future else ''}",
                        flush=True,
                    )
        for keys in ("", "customer:"):
            with RedisServer(kind) as server:
                used = memory(server.url, 1_000_000, keys=keys)
                print(
                    f"{kind:8} {'bytes_of_a_future_job':22} {used:12,.1f}{'  with a key' if keys else ''}", flush=True
                )


if __name__ == "__main__":
    main()
