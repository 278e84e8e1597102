"""Several controllers and workers at the same schedules: one job for each fire, and no series that stands still."""

import asyncio
from collections import Counter

import pytest

from drumbeat.core.claim import ClaimedJob
from drumbeat.core.job import CancelAnswer, JobState, OutcomeKind
from drumbeat.core.job_query import JobFilter
from drumbeat.core.schedule import FireOutcome, FireRequest, Overlap, PlannedFire, Schedule, ScheduleState
from drumbeat.ids import InstanceId, JobId, new_job_id
from drumbeat.store.job_reads import find_jobs, get_job
from drumbeat.store.protocol import Store
from tests.conftest import OpenAgain
from tests.contract.making import claim, end, outcome, report, worker
from tests.contract.scheduling import SECOND, after, change, fire, firing, got, moment, names, new_schedule, put

MOMENTS = 10


def next_firing(schedule: Schedule) -> FireRequest:
    """One fire, and the next a second later, as a controller would plan it."""
    assert schedule.next_at is not None
    fires = (PlannedFire(at=schedule.next_at, run_at=schedule.next_at, job=new_job_id()),)
    following = schedule.next_at + SECOND if schedule.next_at < MOMENTS * SECOND else None
    return firing(schedule, *fires, next_at=following)


async def control(store: Store, batch: int) -> int:
    """Fire all that is due until nothing is; how many jobs that made."""
    made = 0
    while found := (await store.schedules.get_due(batch)).schedules:
        made += sum(len(fired.jobs) for fired in await store.schedules.fire([next_firing(each) for each in found]))
    return made


async def jobs_of(store: Store) -> list[tuple[str | None, int]]:
    found = await find_jobs(store, JobFilter(limit=10_000))
    return [(job.schedule, round(job.due_at.timestamp() * SECOND)) for job in found]


async def test_three_controllers_that_all_believe_they_lead_make_one_job_for_each_fire(
    store: Store, open_again: OpenAgain
) -> None:
    stores = [store, await open_again(), await open_again()]
    for number in range(20):
        await put(store, new_schedule(f"s{number:02}", overlap=Overlap.ALLOW), next_at=SECOND)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(control(each, batch)) for each, batch in zip(stores, (5, 7, 20), strict=True)]
    expected = {(f"s{number:02}", at * SECOND) for number in range(20) for at in range(1, MOMENTS + 1)}
    assert Counter(await jobs_of(store)) == Counter(expected)
    assert sum(task.result() for task in tasks) == len(expected)
    for number in range(20):
        assert len((await store.schedules.list_fires([f"s{number:02}"]))[f"s{number:02}"]) == MOMENTS


async def test_of_a_fire_that_is_asked_for_by_many_at_once_one_is_done(store: Store, open_again: OpenAgain) -> None:
    stores = [store, await open_again(), await open_again()]
    schedule = await put(store, new_schedule())
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each.schedules.fire([firing(schedule, 10)])) for each in stores * 5]
    assert sum(fired.applied for task in tasks for fired in task.result()) == 1
    assert len(await jobs_of(store)) == 1


async def test_the_same_backfill_by_many_at_once_makes_each_job_once(store: Store, open_again: OpenAgain) -> None:
    stores = [store, await open_again(), await open_again()]
    schedule = await put(store, new_schedule(overlap=Overlap.ALLOW))
    wanted = tuple(range(10, 30))

    async def backfill(mine: Store) -> int:
        [fired] = await mine.schedules.fire([firing(schedule, *wanted, advances=False)])
        assert fired.applied
        return len(fired.jobs)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(backfill(each)) for each in stores]
    assert sorted(task.result() for task in tasks) == [0, 0, len(wanted)]
    assert sorted(at for _, at in await jobs_of(store)) == list(wanted)


async def work(store: Store, me: InstanceId, stop: asyncio.Event) -> list[JobId]:
    """Claim and finish, some well and some not, until told to stop and nothing is left."""
    ran: list[JobId] = []
    outcomes = []
    while True:
        stopping = stop.is_set()
        jobs = await claim(store, me, limit=7)
        if not jobs and stopping:
            return ran
        ran += [job.id for job in jobs]
        cancelled = {hold.id for hold in (await store.instances.heartbeat(me, len(jobs))).cancel_requests}
        outcomes = [outcome(job, ending(job, cancelled)) for job in jobs]
        await report(store, me, *outcomes)


def ending(job: ClaimedJob, cancelled: set[JobId]) -> OutcomeKind:
    if job.id in cancelled:
        return OutcomeKind.CANCELLED
    return OutcomeKind.DEAD if int(job.id[-1], 16) % 5 == 0 else OutcomeKind.SUCCEEDED


@pytest.mark.parametrize("overlap", list(Overlap))
async def test_firing_beside_workers_that_finish_loses_no_job_and_leaves_none_in_line(
    store: Store, open_again: OpenAgain, overlap: Overlap
) -> None:
    """Fires decide while the jobs before them end: whichever comes first, nothing waits for ever."""
    stores = [await open_again() for _ in range(4)]
    for number in range(12):
        await put(store, new_schedule(f"s{number:02}", overlap=overlap), next_at=SECOND)
    workers = [(each, await worker(each)) for each in stores[:2]]
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        working = [group.create_task(work(each, me, stop)) for each, me in workers]
        async with asyncio.TaskGroup() as controllers:
            made = [controllers.create_task(control(each, 5)) for each in stores[2:]]
        stop.set()
    ran = [id for task in working for id in task.result()]
    assert len(ran) == len(set(ran))
    # A line goes on with each end, and its last one may have been set free after a worker's last look.
    me = await worker(store)
    while jobs := await claim(store, me):
        await report(store, me, *(outcome(job, OutcomeKind.SUCCEEDED) for job in jobs))
    found = await find_jobs(store, JobFilter(limit=10_000))
    assert [job for job in found if job.state in {JobState.PENDING, JobState.RUNNING}] == []
    assert len(found) == sum(task.result() for task in made)
    assert await store.schedules.advance_stalled() == 0
    for schedule in await store.schedules.list_page():
        assert (schedule.current, schedule.cursor) == (None, MOMENTS * SECOND)
        records = (await store.schedules.list_fires([schedule.name]))[schedule.name]
        assert len(records) == MOMENTS
        fired = [record.job for record in records if record.outcome is not FireOutcome.SKIPPED]
        assert len(fired) == len([job for job in found if job.schedule == schedule.name])


async def test_the_end_of_a_job_and_a_fire_that_queues_behind_it_never_leave_the_new_one_in_line(
    store: Store, open_again: OpenAgain
) -> None:
    other = await open_again()
    me = await worker(store)
    for number in range(25):
        name = f"s{number}"
        await put(store, new_schedule(name, overlap=Overlap.QUEUE))
        await fire(store, name, 10)
        [job] = await claim(store, me)
        async with asyncio.TaskGroup() as group:
            group.create_task(end(store, me, job, OutcomeKind.SUCCEEDED))
            fired = group.create_task(fire(other, name, 20))
        [queued] = fired.result().jobs
        [second] = await claim(store, me)
        assert second.id == queued == (await got(store, name)).current
        await end(store, me, second, OutcomeKind.SUCCEEDED)


async def test_the_end_of_a_job_and_a_fire_that_cancels_it_leave_one_successor(
    store: Store, open_again: OpenAgain
) -> None:
    other = await open_again()
    me = await worker(store)
    for number in range(25):
        name = f"s{number}"
        await put(store, new_schedule(name, overlap=Overlap.CANCEL))
        await fire(store, name, 10)
        [job] = await claim(store, me)
        async with asyncio.TaskGroup() as group:
            group.create_task(end(store, me, job, OutcomeKind.SUCCEEDED))
            fired = group.create_task(fire(other, name, 20))
        [successor] = fired.result().jobs
        [second] = await claim(store, me)
        assert second.id == successor
        await end(store, me, second, OutcomeKind.SUCCEEDED)
        assert (await got(store, name)).current is None


async def test_a_claim_and_a_fire_that_cancels_agree_on_who_runs(store: Store, open_again: OpenAgain) -> None:
    other = await open_again()
    me = await worker(store)
    for number in range(25):
        name = f"s{number}"
        await put(store, new_schedule(name, overlap=Overlap.CANCEL))
        [first] = (await fire(store, name, 10)).jobs
        async with asyncio.TaskGroup() as group:
            claiming = group.create_task(claim(store, me))
            fired = group.create_task(fire(other, name, 20))
        [second] = fired.result().jobs
        claimed = {job.id: job for job in claiming.result()}
        if first in claimed:
            assert (await get_job(store, first)).cancel_requested
            assert second not in claimed
            await end(store, me, claimed[first], OutcomeKind.CANCELLED)
        else:
            assert (await get_job(store, first)).state is JobState.CANCELLED
        if second not in claimed:
            claimed = {job.id: job for job in await claim(store, me)}
        assert set(claimed) - {first} == {second}
        await end(store, me, claimed[second], OutcomeKind.SUCCEEDED)


async def test_a_person_who_cancels_a_whole_line_while_it_moves_empties_it(store: Store, open_again: OpenAgain) -> None:
    other = await open_again()
    me = await worker(store)
    for number in range(15):
        name = f"s{number}"
        await put(store, new_schedule(name, overlap=Overlap.QUEUE))
        jobs = (await fire(store, name, 10, 20, 30)).jobs
        [job] = await claim(store, me)
        async with asyncio.TaskGroup() as group:
            group.create_task(end(store, me, job, OutcomeKind.SUCCEEDED))
            cancelling = group.create_task(other.jobs.cancel(jobs[::-1]))
        final = {CancelAnswer.CANCELLED, CancelAnswer.SUCCEEDED, CancelAnswer.REQUESTED}
        assert set(cancelling.result()) <= final
        assert await claim(store, me) == []
        await store.schedules.advance_stalled()
        assert (await got(store, name)).current is None


async def test_series_go_on_whatever_happens_to_their_definition_meanwhile(store: Store, open_again: OpenAgain) -> None:
    other = await open_again()
    me = await worker(store)
    for number in range(20):
        name = f"s{number}"
        schedule = await put(store, after(name))
        await fire(store, name, 10)
        [job] = await claim(store, me)
        changed = after(name, rule=str(5 * SECOND))
        async with asyncio.TaskGroup() as group:
            group.create_task(end(store, me, job, OutcomeKind.SUCCEEDED))
            putting = group.create_task(
                other.schedules.put(changed, revision=schedule.revision, cursor=None, next_at=77, by="")
            )
            group.create_task(other.schedules.declare([name]))
        assert putting.result()
        found = await got(store, name)
        assert (found.current, found.next_at is not None) == (None, True)


async def test_a_sweep_beside_fires_sets_nothing_going_that_moves(store: Store, open_again: OpenAgain) -> None:
    other = await open_again()
    me = await worker(store)
    for number in range(10):
        await put(store, after(f"s{number}"), next_at=SECOND)
    swept = 0
    for _ in range(10):
        found = (await store.schedules.get_due(100)).schedules
        async with asyncio.TaskGroup() as group:
            group.create_task(store.schedules.fire([firing(each, moment(each.next_at or 0)) for each in found]))
            sweeps = [group.create_task(other.schedules.advance_stalled()) for _ in range(3)]
        swept += sum(task.result() for task in sweeps)
        jobs = await claim(store, me)
        async with asyncio.TaskGroup() as group:
            group.create_task(report(store, me, *(outcome(job, OutcomeKind.SUCCEEDED) for job in jobs)))
            sweeps = [group.create_task(other.schedules.advance_stalled()) for _ in range(3)]
        swept += sum(task.result() for task in sweeps)
        for name in names(found):
            schedule = await got(store, name)
            await change(store, schedule, ScheduleState.ACTIVE, next_at=SECOND)
    assert swept == 0
