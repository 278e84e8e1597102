"""A database connection that is lost costs a job a retry at most, wherever its handler runs.

Seen before: after one lost connection every job that used the ORM failed until the worker was restarted.
"""

import os
import signal

import asyncpg
import pytest

from drumbeat import Drumbeat
from tests.apps.django_site import SETTINGS
from tests.cli.command import start
from tests.conftest import fresh_url
from tests.meta.project import ROOT
from tests.waiting import until

KINDS = ("in_thread", "on_loop", "in_process")


async def run_each(app: Drumbeat, times: int) -> dict[str, set[int]]:
    """The backends of PostgreSQL by which the jobs of each kind reached the database."""
    handles = [(kind, await app.jobs.enqueue(kind)) for kind in KINDS for _ in range(times)]
    used: dict[str, set[int]] = {kind: set() for kind in KINDS}
    for kind, handle in handles:
        used[kind].add(await handle.result(timeout=60))
    return used


async def is_served(app: Drumbeat) -> bool:
    return {name for each in await app.instances.list() for name in each.tasks} >= set(KINDS)


async def kill(url: str, backends: set[int]) -> None:
    connection = await asyncpg.connect(url)
    try:
        for backend in backends:
            assert await connection.fetchval("SELECT pg_terminate_backend($1, 10000)", backend)
    finally:
        await connection.close()


async def test_a_lost_connection_is_replaced_wherever_the_handler_runs(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    url = fresh_url("postgres", tmp_path_factory.getbasetemp())
    environment = SETTINGS | {"SITE_POSTGRES": url}
    words = ("run", "drumbeat.contrib.django.worker:app", "--concurrency", "2", "--log-level", "error")
    with start(*words, folder=ROOT, env=environment) as worker:
        async with Drumbeat(url) as app:
            await until(lambda: is_served(app), deadline=60, what="a worker with these tasks")
            first = await run_each(app, 1)
            used = {each for backends in first.values() for each in backends}
            assert len(used) >= 3  # connections of a thread, of the thread for async code, of a process
            await kill(url, used)
            again = await run_each(app, 6)
            assert not any(used & backends for backends in again.values())
            assert (await app.jobs.counts()).dead == 0
        os.kill(worker.pid, signal.SIGTERM)
        assert worker.wait(30) == 0
