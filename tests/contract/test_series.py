"""Intervals by completion: every end of the current job sets the next moment, in its own step, and nothing else does."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from drumbeat.core.claim import ClaimedJob
from drumbeat.core.job import JobState, OutcomeKind
from drumbeat.core.schedule import Overlap, Schedule, ScheduleState
from drumbeat.ids import InstanceId
from drumbeat.store.job_reads import get_job
from drumbeat.store.protocol import Store
from tests.contract.making import claim, end, hold, outcome, release, report, worker
from tests.contract.scheduling import MINUTE, after, change, fire, fired_job, got, put

End = Callable[[Store, InstanceId, ClaimedJob], Awaitable[object]]


async def running(store: Store, **options: object) -> tuple[InstanceId, ClaimedJob]:
    """A series whose first job runs."""
    await fired_job(store, after(**options))  # type: ignore[arg-type]
    me = await worker(store)
    [job] = await claim(store, me)
    return me, job


async def ended_by(kind: OutcomeKind, store: Store, me: InstanceId, job: ClaimedJob) -> None:
    await end(store, me, job, kind)


async def declared_dead(store: Store, me: InstanceId, job: ClaimedJob) -> None:
    await store.instances.declare_dead(me, beat=None, started=None, reason="test")


async def cancelled_and_declared_dead(store: Store, me: InstanceId, job: ClaimedJob) -> None:
    await store.jobs.cancel([job.id])
    await store.instances.declare_dead(me, beat=None, started=None, reason="test")


async def cancelled_and_gone(store: Store, me: InstanceId, job: ClaimedJob) -> None:
    await store.jobs.cancel([job.id])
    await store.instances.deregister(me, "left")


async def cancelled_and_told(store: Store, me: InstanceId, job: ClaimedJob) -> None:
    await store.jobs.cancel([job.id])
    await end(store, me, job, OutcomeKind.RETRY)


async def given_back_and_cancelled(store: Store, me: InstanceId, job: ClaimedJob) -> None:
    await end(store, me, job, OutcomeKind.RETRY, delay=60 * MINUTE)
    await store.jobs.cancel([job.id])


async def blocked_and_expired(store: Store, me: InstanceId, job: ClaimedJob) -> None:
    await end(store, me, job, OutcomeKind.BLOCKED, started_at=None, blocked_on="version:greet@s1")
    await store.jobs.expire_blocked("version:", await store.inspect.now() + 1, 10)


async def with_a_result(store: Store, me: InstanceId, job: ClaimedJob) -> None:
    await end(store, me, job, OutcomeKind.SUCCEEDED, result='"done"')


ENDS: dict[str, End] = {
    "succeeded": lambda *given: ended_by(OutcomeKind.SUCCEEDED, *given),
    "succeeded with a result": with_a_result,
    "dead": lambda *given: ended_by(OutcomeKind.DEAD, *given),
    "crashed at its limit": lambda *given: ended_by(OutcomeKind.CRASHED, *given),
    "declared dead at its limit": declared_dead,
    "cancelled": lambda *given: ended_by(OutcomeKind.CANCELLED, *given),
    "cancelled while it ran, then failed": cancelled_and_told,
    "cancelled while its instance died": cancelled_and_declared_dead,
    "cancelled while its instance left": cancelled_and_gone,
    "cancelled before its retry": given_back_and_cancelled,
    "waited too long": blocked_and_expired,
    "expired": lambda *given: ended_by(OutcomeKind.EXPIRED, *given),
}


@pytest.mark.parametrize("how", ENDS)
async def test_every_end_of_the_current_job_sets_the_next_moment(store: Store, how: str) -> None:
    before = await store.inspect.now()
    me, job = await running(store, crash_limit=1)
    assert (await got(store, "sweep")).next_at is None
    await ENDS[how](store, me, job)
    found = await got(store, "sweep")
    assert (await get_job(store, job.id)).state not in {JobState.PENDING, JobState.RUNNING}
    assert found.current is None
    assert found.next_at is not None
    assert before + MINUTE <= found.next_at <= await store.inspect.now() + MINUTE
    assert (await get_job(store, job.id)).schedule == "sweep"
    assert await store.schedules.advance_stalled() == 0


@pytest.mark.parametrize("facts", [{}, {"result": '"done"'}], ids=["", "with a result"])
@pytest.mark.parametrize("kind", [OutcomeKind.SUCCEEDED, OutcomeKind.DEAD, OutcomeKind.CANCELLED])
async def test_the_next_moment_counts_from_the_record_of_the_end_also_when_it_is_told_late(
    store: Store, kind: OutcomeKind, facts: dict[str, str]
) -> None:
    me, job = await running(store)
    before = await store.inspect.now()
    finished_at = before - 5 * MINUTE
    await end(store, me, job, kind, started_at=finished_at - MINUTE, finished_at=finished_at, **facts)
    found = await got(store, "sweep")
    assert found.next_at is not None
    assert before + MINUTE <= found.next_at <= await store.inspect.now() + MINUTE


async def test_a_late_end_after_which_the_series_is_over_sets_no_moment(store: Store) -> None:
    stop = await store.inspect.now() + MINUTE
    me, job = await running(store, end=stop)
    await end(store, me, job, OutcomeKind.SUCCEEDED, started_at=stop - 9 * MINUTE, finished_at=stop - 8 * MINUTE)
    assert (await got(store, "sweep")).next_at is None


async def test_a_pending_job_that_is_cancelled_sets_the_next_moment(store: Store) -> None:
    job = await fired_job(store, after())
    await store.jobs.cancel([job])
    found = await got(store, "sweep")
    assert (found.current, found.next_at is not None) == (None, True)


@pytest.mark.parametrize("kind", [OutcomeKind.RETRY, OutcomeKind.SNOOZED, OutcomeKind.RELEASED, OutcomeKind.CRASHED])
async def test_a_run_that_is_not_the_last_sets_nothing(store: Store, kind: OutcomeKind) -> None:
    me, job = await running(store)
    await end(store, me, job, kind, delay=MINUTE)
    found = await got(store, "sweep")
    assert (found.current, found.next_at) == (job.id, None)
    assert await store.schedules.advance_stalled() == 0


async def test_an_outcome_that_is_told_twice_sets_it_once(store: Store) -> None:
    me, job = await running(store)
    told = outcome(job, OutcomeKind.SUCCEEDED)
    await report(store, me, told)
    first = await got(store, "sweep")
    await report(store, me, told)
    assert await got(store, "sweep") == first


async def test_a_replay_and_its_end_change_nothing(store: Store) -> None:
    me, job = await running(store)
    await end(store, me, job, OutcomeKind.DEAD)
    before = await got(store, "sweep")
    [replayed] = await store.jobs.replay([job.id])
    assert replayed.replayed
    [again] = await claim(store, me)
    assert (await get_job(store, job.id)).schedule == "sweep"
    await end(store, me, again, OutcomeKind.SUCCEEDED)
    assert await got(store, "sweep") == before


async def test_a_dead_letter_that_is_discarded_changes_nothing(store: Store) -> None:
    me, job = await running(store)
    await end(store, me, job, OutcomeKind.DEAD)
    before = await got(store, "sweep")
    assert await store.jobs.discard([job.id]) == 1
    assert (await get_job(store, job.id)).schedule == "sweep"
    assert await got(store, "sweep") == before


async def test_a_series_that_is_paused_meanwhile_has_no_next_moment(store: Store) -> None:
    me, job = await running(store)
    await change(store, await got(store, "sweep"), ScheduleState.PAUSED)
    await end(store, me, job, OutcomeKind.SUCCEEDED)
    found = await got(store, "sweep")
    assert (found.current, found.next_at) == (None, None)
    assert await store.schedules.advance_stalled() == 0


async def test_a_series_does_not_go_on_beyond_its_end(store: Store) -> None:
    me, job = await running(store, end=await store.inspect.now() + MINUTE // 2)
    await end(store, me, job, OutcomeKind.SUCCEEDED)
    found = await got(store, "sweep")
    assert (found.state, found.current, found.next_at) == (ScheduleState.ACTIVE, None, None)
    assert await store.schedules.advance_stalled() == 0
    assert (await store.schedules.get_due(10)).min_interval is None


async def test_a_queued_fire_of_a_series_runs_before_the_next_moment_is_set(store: Store) -> None:
    me, job = await running(store, overlap=Overlap.QUEUE)
    [queued] = (await fire(store, "sweep", 20)).jobs
    await end(store, me, job, OutcomeKind.SUCCEEDED)
    found = await got(store, "sweep")
    assert (found.current, found.next_at) == (queued, None)
    [second] = await claim(store, me)
    await end(store, me, second, OutcomeKind.SUCCEEDED)
    found = await got(store, "sweep")
    assert (found.current, found.next_at is not None) == (None, True)


async def test_a_series_that_stands_still_is_set_going_by_the_sweep(store: Store) -> None:
    """As if the end of its job had been written by a program that knows no schedules."""
    before = await store.inspect.now()
    for name in ("sweep", "paused", "runs"):
        await put(store, after(name), next_at=None)
    await change(store, await got(store, "paused"), ScheduleState.PAUSED)
    await fire(store, "runs", 10)
    assert await store.schedules.advance_stalled() == 1
    found = await got(store, "sweep")
    assert found.next_at is not None
    assert before <= found.next_at <= await store.inspect.now()
    assert [(await got(store, name)).next_at for name in ("paused", "runs")] == [None, None]
    assert await store.schedules.advance_stalled() == 0


async def test_the_sweep_sets_a_series_going_whose_end_is_more_than_an_interval_away(store: Store) -> None:
    """Nearer to its end it has stopped, and is not started again."""
    before = await store.inspect.now()
    await put(store, after("far", end=before + 60 * MINUTE), next_at=None)
    await put(store, after("over", end=before + MINUTE), next_at=None)
    assert await store.schedules.advance_stalled() == 1
    found = await got(store, "far")
    assert found.next_at is not None
    assert before <= found.next_at <= await store.inspect.now()
    assert (await got(store, "over")).next_at is None
    assert await store.schedules.advance_stalled() == 0


async def test_of_a_release_and_a_cancellation_the_next_moment_is_set_whichever_comes_first(store: Store) -> None:
    for number in range(10):
        await put(store, after(f"s{number}"))
        await fire(store, f"s{number}", 10)
        me = await worker(store)
        [job] = await claim(store, me)
        async with asyncio.TaskGroup() as group:
            group.create_task(release(store, me, hold(job)))
            group.create_task(store.jobs.cancel([job.id]))
        await store.jobs.cancel([job.id])
        found: Schedule = await got(store, f"s{number}")
        assert (found.current, found.next_at is not None) == (None, True)
