"""Waiting for a job's end: what is raised, and that all who wait share one question."""

import asyncio
import dataclasses
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from drumbeat import Call, Drumbeat
from drumbeat.client import result_poller
from drumbeat.client.result_poller import ResultPoller
from drumbeat.core.job import CancelAnswer, EndedJob, Failure, JobState, OutcomeKind
from drumbeat.errors import (
    JobCancelled,
    JobFailed,
    JobNotFound,
    JobTimedOut,
    ResultNotKept,
    StoreUnavailable,
)
from drumbeat.handle import TIMED_OUT
from drumbeat.ids import JobId, new_job_id
from drumbeat.store.protocol import JobStore
from tests.app.conftest import ManualWorker
from tests.contract import making
from tests.waiting import until


@dataclasses.dataclass
class Receipt:
    customer: int
    amount: Decimal


async def test_a_result_is_typed_by_the_return_annotation(app: Drumbeat, hand: ManualWorker) -> None:
    @app.task
    async def charge() -> Receipt: ...  # type: ignore[empty-body]

    handle = await charge.enqueue()
    await hand.end(OutcomeKind.SUCCEEDED, result='{"customer":42,"amount":"9.90"}')
    assert await handle.result(timeout=5) == Receipt(42, Decimal("9.90"))


async def test_a_result_of_another_type_is_given_as_it_was_returned(app: Drumbeat, hand: ManualWorker) -> None:
    @app.task
    async def charge() -> int: ...  # type: ignore[empty-body]

    handle = await charge.enqueue()
    await hand.end(OutcomeKind.SUCCEEDED, result='"forty-two"')
    assert await handle.result(timeout=5) == "forty-two"  # type: ignore[comparison-overlap]


async def test_the_result_of_one_call_in_a_batch_is_its_own(app: Drumbeat, hand: ManualWorker) -> None:
    @app.task(batch=10)
    async def price(calls: list[Call[int]]) -> list[Decimal | Exception]: ...  # type: ignore[empty-body]

    handle = await price.enqueue(1)
    await hand.end(OutcomeKind.SUCCEEDED, result='"9.90"')
    assert await handle.result(timeout=5) == Decimal("9.90")


@pytest.mark.parametrize(
    ("kind", "error", "raised"),
    [
        (OutcomeKind.DEAD, Failure("ValueError", "no money", "Traceback ..."), JobFailed),
        (OutcomeKind.DEAD, Failure(TIMED_OUT, "after 2s"), JobTimedOut),
        (OutcomeKind.CANCELLED, None, JobCancelled),
    ],
)
async def test_a_job_without_a_result_raises_how_it_ended(
    app: Drumbeat, hand: ManualWorker, kind: OutcomeKind, error: Failure | None, raised: type[Exception]
) -> None:
    @app.task
    async def charge() -> None: ...

    handle = await charge.enqueue()
    await hand.end(kind, error=error)
    with pytest.raises(raised) as told:
        await handle.result(timeout=5)
    assert type(told.value) is raised
    facts: Any = told.value
    assert (facts.id, facts.task) == (handle.id, "charge")
    assert facts.message == ("" if error is None else error.message)


async def test_a_result_that_was_not_kept_is_told(app: Drumbeat, hand: ManualWorker) -> None:
    @app.task
    async def charge() -> None: ...

    handle = await charge.enqueue()
    await hand.end(OutcomeKind.SUCCEEDED, result_error="too large")
    with pytest.raises(ResultNotKept, match="too large"):
        await handle.result(timeout=5)


@pytest.mark.parametrize("timeout", [0, 0.02])
async def test_a_wait_that_is_over_raises_and_the_job_goes_on(app: Drumbeat, timeout: float) -> None:
    @app.task
    async def charge() -> None: ...

    handle = await charge.enqueue()
    with pytest.raises(TimeoutError, match=handle.id):
        await handle.result(timeout=timeout)
    assert (await handle.job()).state is JobState.PENDING


async def test_a_time_out_of_zero_looks_once(app: Drumbeat, hand: ManualWorker) -> None:
    @app.task
    async def charge() -> None: ...

    handle = await charge.enqueue()
    await hand.end(OutcomeKind.SUCCEEDED, result="null")
    assert await handle.result(timeout=0) is None  # type: ignore[func-returns-value]


async def test_an_unknown_job_is_not_found(app: Drumbeat) -> None:
    with pytest.raises(JobNotFound):
        await app.jobs.handle(new_job_id()).result(timeout=5)
    with pytest.raises(JobNotFound):
        app.jobs.handle("not an id")


async def test_a_handle_of_a_known_id_gives_the_same_result(app: Drumbeat, hand: ManualWorker) -> None:
    @app.task
    async def charge() -> int: ...  # type: ignore[empty-body]

    id = (await charge.enqueue()).id
    await hand.end(OutcomeKind.SUCCEEDED, result="42")
    assert await app.jobs.handle(id).result(timeout=5) == 42


async def test_a_pending_job_can_be_cancelled_by_its_handle(app: Drumbeat) -> None:
    @app.task
    async def charge() -> None: ...

    handle = await charge.enqueue()
    assert await handle.cancel() is CancelAnswer.CANCELLED
    assert await handle.cancel() is CancelAnswer.CANCELLED
    with pytest.raises(JobCancelled):
        await handle.result(timeout=5)


def test_sync_code_waits_for_a_result(app_url: str) -> None:
    app = Drumbeat(app_url)

    @app.task
    async def charge() -> None: ...

    handle = charge.enqueue_sync()
    with pytest.raises(TimeoutError):
        handle.result(timeout=0.02)
    handle.cancel()
    with pytest.raises(JobCancelled):
        handle.result(timeout=5)
    app.sync.close()


class Watched:
    """The store's `get_results`, with its calls counted, and an outage on demand."""

    def __init__(self, jobs: JobStore) -> None:
        self._jobs = jobs
        self.asked: list[list[JobId]] = []
        self.is_out = False

    async def get_results(self, ids: Sequence[JobId]) -> list[EndedJob | None]:
        self.asked.append(list(ids))
        if self.is_out:
            raise StoreUnavailable("out")
        return await self._jobs.get_results(ids)


class Waits:
    """Jobs that never run, a poller that watches them, and the power to end them."""

    def __init__(self, jobs: JobStore) -> None:
        self._jobs = jobs
        self.watched = Watched(jobs)
        on: Any = self.watched
        self.poller = ResultPoller(on)

    @property
    def asked(self) -> list[list[JobId]]:
        return self.watched.asked

    async def begin(self, count: int) -> list[JobId]:
        return [added.id for added in await self._jobs.add([making.new_job() for _ in range(count)])]

    async def end(self, *ids: JobId) -> None:
        await self._jobs.cancel(ids)


@pytest.fixture
async def waits(app: Drumbeat) -> Waits:
    return Waits((await app._internals.store()).jobs)


async def test_all_who_wait_share_one_question(waits: Waits) -> None:
    ids = await waits.begin(50)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(waits.poller.wait(id)) for id in ids]
        await until(lambda: any(len(asked) == 50 for asked in waits.asked))
        # Without sharing there would have been 50 by now.
        assert len(waits.asked) <= 5
        await waits.end(*ids)
    assert [task.result().id for task in tasks] == ids


async def test_the_lead_passes_on_when_its_own_job_has_ended_or_is_cancelled(waits: Waits) -> None:
    first, second, third = await waits.begin(3)
    async with asyncio.TaskGroup() as group:
        leader = group.create_task(waits.poller.wait(first))
        await until(lambda: waits.asked)
        heir = group.create_task(waits.poller.wait(second))
        last = group.create_task(waits.poller.wait(third))
        await until(lambda: len(waits.asked[-1]) == 3)
        await waits.end(first)
        await until(leader.done)
        heir.cancel()
        await waits.end(third)
    assert last.result().id == third
    assert heir.cancelled()


async def test_an_heir_that_is_cancelled_as_it_takes_over_passes_the_lead_on(waits: Waits) -> None:
    first, second, third = await waits.begin(3)
    async with asyncio.TaskGroup() as group:
        leader = group.create_task(waits.poller.wait(first))
        await until(lambda: waits.asked)
        heir = group.create_task(waits.poller.wait(second))
        last = group.create_task(waits.poller.wait(third))
        await until(lambda: len(waits.asked[-1]) == 3)
        leader.cancel()
        # Runs right after the leader has let go, before the heir has run.
        leader.add_done_callback(lambda _: heir.cancel())
        await until(heir.done)
        await waits.end(third)
    assert last.result().id == third


async def test_an_unknown_job_does_not_disturb_the_others(waits: Waits) -> None:
    [known] = await waits.begin(1)
    async with asyncio.TaskGroup() as group:
        fine = group.create_task(waits.poller.wait(known))
        with pytest.raises(JobNotFound):
            await waits.poller.wait(new_job_id())
        await waits.end(known)
    assert fine.result().id == known


async def test_waiting_outlasts_an_outage_of_the_store(waits: Waits) -> None:
    [id] = await waits.begin(1)
    waits.watched.is_out = True
    async with asyncio.TaskGroup() as group:
        task = group.create_task(waits.poller.wait(id))
        await until(lambda: len(waits.asked) >= 3)
        await waits.end(id)
        waits.watched.is_out = False
    assert task.result().id == id


async def test_a_newcomer_makes_a_slow_poll_look_at_once(waits: Waits, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_poller, "MAX_POLL_INTERVAL", 600.0)
    monkeypatch.setattr(result_poller, "POLL_INTERVAL_GROWTH", 1e9)
    old, new = await waits.begin(2)
    async with asyncio.TaskGroup() as group, asyncio.timeout(20):
        slow = group.create_task(waits.poller.wait(old))
        await until(lambda: len(waits.asked) == 2)  # the next pause is that of ten minutes
        await waits.end(new)
        assert (await waits.poller.wait(new)).id == new
        await waits.end(old)
        assert (await waits.poller.wait(old)).id == old
    assert slow.result().id == old
