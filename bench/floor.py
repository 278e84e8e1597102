"""The floor under Drumbeat: the engine's own statements on its own tables, in a bare loop on one connection.

No handler, no decoding, no loop, no threads: what remains is SQLite, the schema with its indexes and history, and one
fsync for each batch. Set-up (tables, a living instance) is done by the engine itself.
"""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from drumbeat.clock import SYSTEM
from drumbeat.core.instance import NewInstance, Role
from drumbeat.core.job import NewJob
from drumbeat.ids import InstanceId, JobId, new_job_ids
from drumbeat.store.sqlite import SqliteStore
from drumbeat.store.sqlite.connection import SqliteConnection
from drumbeat.store.sqlite.insert import INSERT_WIDTH, insert_row
from drumbeat.store.sqlite.statements import SQL
from drumbeat.store.sqlite.writer import CHECKPOINT_BYTES

INSTANCE = InstanceId("floor")
QUEUE = "default"
ENQUEUE_BATCH = 5_000
BATCH = 500
FINISHED_WIDTH = 7


def measure(path: Path, count: int) -> tuple[float, float]:
    """The seconds that inserting `count` jobs took, and those that claiming and finishing them took."""
    asyncio.run(_prepare(path))
    ids = new_job_ids(count)
    db = SqliteConnection(path, read_only=False)
    try:
        # The engine waits for the disk beside its next transaction; one bare loop can only wait in the commit.
        db.run("PRAGMA synchronous = FULL")
        inserting = _timed(lambda: _insert(db, path, ids))
        draining = _timed(lambda: _drain(db, path, ids))
    finally:
        db.close()
    return inserting, draining


async def _prepare(path: Path) -> None:
    instance = NewInstance(
        id=INSTANCE,
        app="floor",
        version="",
        host="",
        pid=os.getpid(),
        roles=(Role.WORKER,),
        queues=(QUEUE,),
        tasks={},
        concurrency=1,
    )
    async with await SqliteStore.open(path, url=f"sqlite:///{path}") as store:
        await store.instances.register(instance)


def _timed(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _insert(db: SqliteConnection, path: Path, ids: Sequence[JobId]) -> None:
    sample = NewJob(id=ids[0], task="stamp", queue=QUEUE, args='{"number":12345}', signature="0123456789abcdef")
    columns = insert_row(sample)[1:]
    for at in range(0, len(ids), ENQUEUE_BATCH):
        rows = [(id, *columns) for id in ids[at : at + ENQUEUE_BATCH]]
        db.run("BEGIN IMMEDIATE")
        db.run_rows(SQL.jobs.insert, INSERT_WIDTH, rows, (SYSTEM.now_us(),))
        db.run("COMMIT")
        _checkpoint(db, path)


def _drain(db: SqliteConnection, path: Path, ids: Sequence[JobId]) -> None:
    """Finish a batch and claim the next in one transaction, as the worker does.

    Jobs come in the order of their ids, and a first claim's token is its time: nothing has to be read back.
    """
    held: list[tuple[Any, ...]] = []
    history = 0  # its rows are numbered from 1, in the order of their end
    for at in range(0, len(ids) + BATCH, BATCH):
        db.run("BEGIN IMMEDIATE")
        now = SYSTEM.now_us()
        if held:
            finished = db.run_rows(
                SQL.jobs.move_to_history, FINISHED_WIDTH, held, (INSTANCE, "succeeded", "succeeded", now)
            )
            assert finished == len(held), f"{finished} of {len(held)} were finished"
            db.run(SQL.jobs.delete_finished, {"seq": history})
            history += finished
        picked = db.value(SQL.jobs.pick, {"queue": QUEUE, "now": now, "limit": BATCH, "instance": INSTANCE})
        db.run(SQL.jobs.claim, {"picked": picked, "instance": INSTANCE, "now": now})
        db.value(SQL.jobs.claimed_jobs, {"picked": picked})
        db.run("COMMIT")
        _checkpoint(db, path)
        held = [(id, now, now, now, None, None, None) for id in ids[at : at + BATCH]]


def _checkpoint(db: SqliteConnection, path: Path) -> None:
    """By the writer's own rule: it turns SQLite's automatic checkpoints off."""
    if os.stat(f"{path}-wal").st_size >= CHECKPOINT_BYTES:
        db.run("PRAGMA wal_checkpoint(TRUNCATE)")
