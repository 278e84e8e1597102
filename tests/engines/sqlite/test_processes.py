"""Several real processes on one file: created at once, crowded, and fair."""

import asyncio
import json
import os
import sqlite3
import sys
from pathlib import Path
from typing import Any

from drumbeat.core.job import JobState
from drumbeat.core.job_query import JobFilter
from drumbeat.store.job_reads import find_jobs
from drumbeat.store.urls import open_store
from tests.contract.making import new_job

PROCESSES = 8
JOBS = 10_000 if os.environ.get("DRUMBEAT_FULL") else 1_000


async def run_crowd(path: Path, processes: int, jobs: int) -> list[dict[str, Any]]:
    go = path.with_suffix(".go")
    crowd = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.engines.sqlite.contending_worker", str(path), str(jobs), str(go)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        for _ in range(processes)
    ]
    go.touch()
    reports = []
    for process in crowd:
        out, errors = await asyncio.wait_for(process.communicate(), 60 + processes * jobs / 200)
        assert process.returncode == 0, errors.decode()
        assert b"locked" not in errors, errors.decode()
        reports.append(json.loads(out))
    return reports


async def test_a_crowd_on_one_new_file_loses_nothing_doubles_nothing_and_lets_every_heart_beat(path: Path) -> None:
    """The file does not exist: all processes create it at the same moment."""
    reports = await run_crowd(path, PROCESSES, JOBS)
    added = [id for report in reports for id in report["added"]]
    finished = [id for report in reports for id, _ in report["finished"]]
    assert len(added) == len(set(added)) == PROCESSES * JOBS
    assert len(finished) == len(set(finished)), "no job was finished twice"
    assert set(finished) == set(added), "none was lost"
    assert max(report["longest_beat"] for report in reports) < 5, "turns are taken in order"
    async with await open_store(f"sqlite:///{path}") as store:
        [task] = await store.inspect.list_tasks()
        assert (task.succeeded, task.pending, task.running) == (PROCESSES * JOBS, 0, 0)
        assert await find_jobs(store, JobFilter(state=JobState.RUNNING)) == []


async def test_what_was_accepted_survives_kill_9_and_the_file_stays_whole(path: Path) -> None:
    accepted: list[str] = []
    for lines in (1, 200, 40, 500, 90):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.engines.sqlite.killed_enqueuer", str(path)), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        said = [await asyncio.wait_for(process.stdout.readline(), 30) for _ in range(lines)]
        accepted += [line.decode().strip() for line in said]
        process.kill()
        await process.wait()
        rest = (await process.stdout.read()).decode().split("\n")
        accepted += rest[:-1]
    async with await open_store(f"sqlite:///{path}") as store:
        states = {job.id: job.state for job in await find_jobs(store, JobFilter(limit=1_000_000))}
        assert set(accepted) <= states.keys()
        assert len(states) % 20 == 0, "a batch is all or nothing"
        assert (await store.jobs.add([new_job()]))[0].created, "the dead left no lock behind"
    raw = sqlite3.connect(path)
    assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    live = {id for (id,) in raw.execute("SELECT id FROM drumbeat_job")}
    ended = {id for (id,) in raw.execute("SELECT id FROM drumbeat_history")}
    assert not live & ended, "no job is in two places"
    raw.close()


async def test_closed_standard_streams_cost_the_file_none_of_its_locks(path: Path) -> None:
    """SQLite closes what it opens there, and with it the process loses its locks: the next one to leave deleted the log."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.engines.sqlite.closed_streams", str(path))
    )
    assert await asyncio.wait_for(process.wait(), 30) == 0
    raw = sqlite3.connect(path)
    assert raw.execute("SELECT count(*) FROM drumbeat_job").fetchall() == [(2,)]
    raw.close()
