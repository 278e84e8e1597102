"""The floor under Drumbeat on PostgreSQL: the engine's own statements on its own tables, in a bare loop.

No worker, no handler, no arguments decoded: two connections claim, believe done and finish, batch by batch, with history and
synchronous_commit on. Whatever a worker does on top can only be slower. `run` is called by the bench; as a program it starts
a server of its own and prints one line for each measurement, also with another session's snapshot held open.
"""

import asyncio
import os
import sys
import time
from collections.abc import Coroutine
from typing import Any

import asyncpg

from drumbeat.clock import SYSTEM
from drumbeat.core.instance import NewInstance, Role
from drumbeat.core.job import NewJob
from drumbeat.ids import InstanceId, new_instance_id, new_job_ids
from drumbeat.redaction import mask_url
from drumbeat.store.postgres import PostgresStore, parse_address, schema
from drumbeat.store.postgres.connections import GENERIC_PLAN_SETTINGS
from drumbeat.store.postgres.insert import insert_arguments
from drumbeat.store.postgres.rows import array_literal
from drumbeat.store.postgres.statements import statements

BATCH = 500
ADDED_AT_ONCE = 5_000
CONNECTIONS = 2
QUEUE = "default"
SQL = statements("drumbeat").jobs


def run(url: str, n: int, *, snapshot: bool = False) -> dict[str, float]:
    """Add and drain n jobs in the database behind this URL, which has its tables: rows and jobs in a second."""
    return asyncio.run(_run(url, n, snapshot))


async def _run(url: str, n: int, snapshot: bool) -> dict[str, float]:
    instance = await _instance(url)
    sessions = [await asyncpg.connect(url, server_settings=GENERIC_PLAN_SETTINGS) for _ in range(CONNECTIONS)]
    other = await asyncpg.connect(url)
    try:
        added = await _timed(_fill(sessions[0], n))
        if snapshot:
            await other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            await other.fetch("SELECT count(*) FROM drumbeat.meta")
        cpu = time.process_time()
        drained = await _timed(_drain_all(sessions, instance))
        cpu = time.process_time() - cpu
    finally:
        for session in (*sessions, other):
            await session.close()
    return {"added_per_s": n / added, "drained_per_s": n / drained, "drain_client_cpu_us": cpu / n * 1e6}


async def _instance(url: str) -> InstanceId:
    id = new_instance_id()
    async with await PostgresStore.open(parse_address(url, mask_url(url))) as store:
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


async def _fill(session: Any, n: int) -> None:
    for start in range(0, n, ADDED_AT_ONCE):
        ids = new_job_ids(min(ADDED_AT_ONCE, n - start))
        jobs = [NewJob(id=id, task="noop", queue=QUEUE, args='{"x":1}', signature="0123456789abcdef") for id in ids]
        await session.execute(SQL.add, *insert_arguments(jobs), ids[0], ids[-1])


async def _drain_all(sessions: list[Any], instance: InstanceId) -> None:
    async with asyncio.TaskGroup() as group:
        for session in sessions:
            group.create_task(_drain(session, instance))


async def _drain(session: Any, instance: InstanceId) -> None:
    """Finish a batch and claim the next until nothing is left; the lower bound is the engine's own rule."""
    held: list[Any] = []
    bounds, first, bound_at = [0] * 10, "{}", SYSTEM.monotonic()
    while True:
        now, count = SYSTEM.now_us(), len(held)
        rows = await session.fetch(
            SQL.report_and_claim,
            instance,
            *(array_literal([row["id"] for row in held]), array_literal([row["token"] for row in held])),
            *(
                array_literal([now] * count),
                array_literal([now] * count),
                [],
                [],
                [QUEUE],
                [BATCH],
                BATCH,
                bounds,
                first,
            ),
        )
        [summary] = [row for row in rows if row["now"] is not None]
        assert summary["recorded_count"] == count, "a finished job was not recorded"
        held = [row for row in rows if row is not summary]
        if not held and not any(bounds):
            return
        if not held or SYSTEM.monotonic() - bound_at > 1:
            bounds, first, bound_at = [0] * 10, "{}", SYSTEM.monotonic()
        else:
            last = max((row["run_at"], str(row["id"])) for row in held)
            is_one_moment = last[0] == min(row["run_at"] for row in held)
            bounds = [last[0] - (0 if is_one_moment else 100_000)] * 10
            first = array_literal([last[1]] * 10) if is_one_moment else "{}"


def main() -> None:
    from tests.servers.postgres import PostgresServer

    n = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with PostgresServer() as server:
        asyncio.run(schema.migrate(parse_address(server.url, mask_url(server.url)), "drumbeat"))
        for snapshot in (False, True):
            for name, value in run(server.url, n, snapshot=snapshot).items():
                print(f"{name:22} {value:12,.1f}{'  under an open snapshot' if snapshot else ''}")


if __name__ == "__main__":
    main()
