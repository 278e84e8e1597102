"""C3: with no controller at all, jobs, retries and locks still work, and the jobs of a dead worker are found. Nobody leads."""

import os

from drumbeat.app import Drumbeat
from drumbeat.context import current_job
from drumbeat.core.job import OutcomeKind
from drumbeat.core.lock import NewTicket
from drumbeat.events import LeaderChanged
from drumbeat.retry import Backoff
from tests.contract.making import claim, ids, worker
from tests.worker.worker_harness import EventRecorder, run_worker

QUICK = Backoff(base=0.05, cap=0.05)


async def test_jobs_retries_and_locks_work_without_a_controller(store_url: str) -> None:
    app = Drumbeat(store_url)
    recorder = EventRecorder(app)
    inside = 0

    @app.task(retries=3, backoff=QUICK)
    async def flaky() -> int:
        if current_job().attempt < 3:
            raise RuntimeError("not yet")
        return current_job().attempt

    @app.task
    async def alone() -> int:
        nonlocal inside
        async with app.lock("shared"):
            inside += 1
            await app.jobs.counts()  # others may come in between
            seen, inside = inside, inside - 1
        return seen

    @app.task
    async def limited() -> str:
        async with app.lock("rate", limit=5, per=0.2):
            return "served"

    async with app:
        store = await app._internals.store()
        gone = await worker(store)  # registered, and never heard of again
        abandoned = await flaky.enqueue()
        assert ids(await claim(store, gone)) == [abandoned.id]
        dead_holder = NewTicket(lock="shared", id=os.urandom(8).hex(), lease=300_000, owner="gone", what="test")
        await store.locks.acquire(dead_holder)

        async with run_worker(app, role="worker", concurrency=8):
            retried = await flaky.enqueue()
            delayed = await flaky.using(delay=0.2).enqueue()
            holders = [await alone.enqueue() for _ in range(5)]
            starts = [await limited.enqueue() for _ in range(8)]
            assert [await job.result(timeout=60) for job in (retried, delayed)] == [3, 3]
            assert [await job.result(timeout=60) for job in holders] == [1] * 5  # once the dead holder's lease is over
            assert [await job.result(timeout=60) for job in starts] == ["served"] * 8
            await abandoned.result(timeout=60)
            attempts = await app.jobs.attempts(abandoned.id)
            assert attempts[0].outcome in (OutcomeKind.CRASHED, OutcomeKind.RELEASED)
            assert await store.inspect.get_leader() is None
    assert recorder.of(LeaderChanged) == []
