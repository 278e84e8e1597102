"""Enqueue, as programs see it: what is stored, what is refused before anything is, and what a second call gives."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from drumbeat import Drumbeat, JobState
from drumbeat.core.job import Cancelled, OutcomeKind
from drumbeat.errors import InvalidArguments
from tests.app.conftest import ManualWorker


async def test_a_job_is_stored_as_it_was_asked_for(app: Drumbeat) -> None:
    @app.task(queue="critical", priority=3)
    async def charge(customer: int) -> None: ...

    at = datetime(2030, 1, 1, tzinfo=UTC)
    handle = await charge.using(at=at, key="cust:42", retries=1, timeout="2s").enqueue(42)
    job = await handle.job()
    assert handle.created
    assert (job.id, job.task, job.queue, job.state) == (handle.id, "charge", "critical", JobState.PENDING)
    assert (job.priority, job.key, job.args) == (3, "cust:42", '{"customer":42}')
    assert (job.run_at, job.retries, job.timeout) == (at, 1, 2.0)


async def test_bad_arguments_are_refused_before_anything_is_stored(app: Drumbeat, tmp_path: Path) -> None:
    unopened = Drumbeat(f"sqlite:///{tmp_path}/unopened.db")

    @unopened.task
    async def charge(customer: int) -> None: ...

    wrong: Any = charge
    with pytest.raises(InvalidArguments, match="customer"):
        wrong.enqueue("42")
    with pytest.raises(InvalidArguments, match="customer"):
        unopened.enqueue_many([charge.bind(1), wrong.bind("42")])  # type: ignore[unused-coroutine]
    assert not (tmp_path / "unopened.db").exists()


async def test_a_unique_job_is_given_again_while_it_lives(app: Drumbeat, hand: ManualWorker) -> None:
    @app.task
    async def charge() -> None: ...

    once = charge.using(key="cust:42", unique=True)
    first, second = await once.enqueue(), await once.enqueue()
    assert (first.created, second.created, second.id) == (True, False, first.id)
    assert (await charge.using(key="cust:43", unique=True).enqueue()).created
    await hand.end(OutcomeKind.SUCCEEDED)
    third = await once.enqueue()
    assert third.created
    assert third.id != first.id


async def test_a_job_unique_among_the_pending_is_made_beside_a_running_one(app: Drumbeat, hand: ManualWorker) -> None:
    @app.task
    async def charge() -> None: ...

    once = charge.using(key="cust:42", unique="pending")
    first = await once.enqueue()
    assert not (await once.enqueue()).created
    await hand.claim()
    second = await once.enqueue()
    assert second.created
    assert second.id != first.id


async def test_many_jobs_are_stored_together_and_answered_in_order(app: Drumbeat) -> None:
    @app.task
    async def charge(customer: int) -> None: ...

    calls = [charge.bind(number) for number in range(1_000)]
    handles = await app.enqueue_many(iter(calls))
    assert [handle.id for handle in handles] == [call.id for call in calls]
    assert all(handle.created for handle in handles)
    assert len(await app.jobs.list(limit=2_000)) == 1_000


async def test_the_same_calls_enqueued_again_are_the_same_jobs(app: Drumbeat) -> None:
    @app.task
    async def charge(customer: int) -> None: ...

    calls = [charge.bind(1), charge.bind(2)]
    await app.enqueue_many(calls)
    again = await app.enqueue_many(calls)
    assert [(handle.id, handle.created) for handle in again] == [(call.id, False) for call in calls]
    assert len(await app.jobs.list()) == 2


async def test_no_jobs_are_no_jobs(app: Drumbeat) -> None:
    assert await app.enqueue_many([]) == []


async def test_enqueue_many_takes_bound_calls_only(app: Drumbeat) -> None:
    @app.task
    async def charge() -> None: ...

    coroutine = charge()
    wrong: Any = [charge.bind(), coroutine]
    with pytest.raises(InvalidArguments, match="bind"):
        app.enqueue_many(wrong)  # type: ignore[unused-coroutine]
    coroutine.close()


@pytest.mark.parametrize(
    ("count", "length", "limit"), [(100_001, 0, "100,000 jobs in one call, not 100,001"), (300, 250_000, "64 MiB")]
)
@pytest.mark.parametrize("how", ["async", "sync", "conn"])
async def test_a_call_that_would_hold_up_everybody_is_refused_with_how_to_split_it(
    app: Drumbeat, count: int, length: int, limit: str, how: str
) -> None:
    @app.task
    async def charge(text: str) -> None: ...

    calls = [charge.bind("x" * length)] * count
    ways = {
        "async": lambda: app.enqueue_many(calls),
        "sync": lambda: asyncio.to_thread(app.sync.enqueue_many, calls),
        "conn": lambda: app.enqueue_many(calls, conn=object()),
    }
    with pytest.raises(InvalidArguments, match=limit) as caught:
        await ways[how]()  # type: ignore[no-untyped-call]
    assert "split it" in str(caught.value) and caught.value.argument == "jobs"
    assert await app.jobs.list() == []


async def test_cancel_by_task_and_key_tells_what_will_not_run_from_what_was_asked_to_stop(
    app: Drumbeat, hand: ManualWorker
) -> None:
    @app.task
    async def charge() -> None: ...

    await charge.using(key="a").enqueue()
    await hand.claim()
    waiting = await charge.using(key="a", delay=60).enqueue()
    other = await charge.using(key="b", delay=60).enqueue()
    assert await app.cancel(task=charge, key="a") == Cancelled(cancelled=1, requested=1)
    assert (await waiting.job()).state is JobState.CANCELLED
    assert (await other.job()).state is JobState.PENDING
    assert await app.cancel(task="charge", key="a") == Cancelled(0, 1), "the running one is asked again"
    assert await app.cancel(task="charge", key="c") == Cancelled(0, 0)


async def test_jobs_of_many_keys_are_cancelled_by_one_call(app: Drumbeat) -> None:
    @app.task
    async def charge() -> None: ...

    await app.enqueue_many([charge.using(key=f"order:{number}", delay=60).bind() for number in range(1_200)])
    assert await app.cancel(task=charge, keys=(f"order:{number}" for number in range(1_100))) == Cancelled(1_100, 0)
    assert await app.cancel(task=charge, keys=[]) == Cancelled(0, 0)
    assert len(await app.jobs.list(state="pending", limit=500)) == 100


@pytest.mark.parametrize(
    "wrong", [{}, {"key": "a", "keys": ["b"]}, {"keys": "abc"}, {"keys": ["a", 5]}, {"keys": [""]}]
)
async def test_a_cancellation_by_key_says_which_keys(app: Drumbeat, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments, match="key"):
        await app.cancel(task="charge", **wrong)


def test_sync_code_can_do_the_same(app_url: str) -> None:
    app = Drumbeat(app_url)

    @app.task
    async def charge(customer: int) -> None: ...

    one = charge.using(key="a", delay=60).enqueue_sync(1)
    many = app.sync.enqueue_many([charge.bind(2), charge.bind(3)])
    assert [handle.job().args for handle in [one, *many]] == ['{"customer":1}', '{"customer":2}', '{"customer":3}']
    assert app.sync.cancel(task="charge", key="a") == Cancelled(1, 0)
    assert one.job().state is JobState.CANCELLED
    assert many[0].cancel() == "cancelled"
    assert {job.id for job in app.sync.jobs.list(state="pending")} == {many[1].id}
    app.sync.close()
