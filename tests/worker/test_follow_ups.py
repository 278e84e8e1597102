"""What follows a success: the task of `on_success`, stored in the step in which its job succeeds."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drumbeat.app import Drumbeat
from drumbeat.context import current_job
from drumbeat.core.job import Job, JobState
from drumbeat.errors import JobError
from drumbeat.retry import SkipRetry
from drumbeat.tasks import Call
from tests.waiting import until
from tests.worker.worker_harness import run_worker


async def test_a_success_is_followed_by_its_job_and_its_typed_result_wherever_it_ran(app: Drumbeat) -> None:
    followed: list[tuple[str, Any, JobState]] = []
    died: list[str] = []

    def note(job: Job, result: Any) -> None:
        followed.append((job.key or "", result, job.state))

    def mourn(job: Job, error: JobError) -> None:
        died.append(job.key or "")

    @app.task(retries=0, on_dead=mourn)
    async def on_loop(numbers: list[int]) -> set[int]:
        if not numbers:
            raise SkipRetry("nothing to add")
        return set(numbers)

    @on_loop.on_success
    async def added(job: Job, result: set[int]) -> None:
        note(job, result)

    @app.task(on_success=note)
    def in_thread() -> None: ...

    @app.task(batch=10, on_success=note)
    async def in_batch(calls: list[Call[int]]) -> list[int | Exception]:
        return [call.value + 1 for call in calls]

    @app.task(on_success=note)
    async def unkeepable() -> Any:
        return object()

    async with app:
        await on_loop.using(key="loop").enqueue([3, 3])
        await on_loop.using(key="dead").enqueue([])
        await in_thread.using(key="thread").enqueue()
        await app.enqueue_many([in_batch.using(key="batch").bind(1), in_batch.using(key="batch").bind(2)])
        await unkeepable.using(key="none").enqueue()
        async with run_worker(app):
            await until(lambda: len(followed) == 5 and died, what="all that follows")
        assert (await app.tasks.show("in_thread")).on_success == "in_thread.on_success"
    assert sorted(followed, key=str) == [
        ("batch", 2, JobState.SUCCEEDED),
        ("batch", 3, JobState.SUCCEEDED),
        ("loop", {3}, JobState.SUCCEEDED),
        ("none", None, JobState.SUCCEEDED),
        ("thread", None, JobState.SUCCEEDED),
    ]
    assert died == ["dead"]


class TestInTheHandlersTransaction:
    @pytest.fixture
    def app_url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path}/jobs.db"

    @pytest.fixture
    def db(self, tmp_path: Path) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(sqlite3.connect(tmp_path / "jobs.db")) as conn:
            yield conn

    async def test_it_is_stored_with_the_commit_and_not_without(self, app: Drumbeat, db: sqlite3.Connection) -> None:
        followed: list[tuple[str | None, Any, int]] = []

        def note(job: Job, result: Any) -> None:
            followed.append((job.key, result, job.failures))

        @app.task(retries=1, backoff=[0], on_success=note)
        async def complete() -> Any:
            await current_job().complete(conn=db, result=[1])
            if current_job().attempt == 1:
                db.rollback()
            else:
                db.commit()

        @app.task(on_success=note)
        async def transact() -> None:
            async with current_job().transaction():
                pass

        async with app, run_worker(app):
            # One after the other: `db` blocks the loop while it waits for a lock that the transaction of the other may hold.
            jobs = [await complete.using(key="own").enqueue()]
            await until(lambda: len(followed) == 1, what="what follows the first")
            jobs.append(await transact.using(key="ours").enqueue())
            await until(lambda: len(followed) == 2, what="what follows the second")
            assert [(await app.jobs.wait(job.id, timeout=10)).state for job in jobs] == [JobState.SUCCEEDED] * 2
            assert len(await app.jobs.list(task="complete.on_success")) == 1
        assert sorted(followed, key=str) == [("ours", None, 0), ("own", [1], 1)]
