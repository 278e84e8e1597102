"""A fire: one job for each moment, by the rule of overlap, and the cursor, in one step."""

import pytest

from drumbeat.core.job import JobState, OutcomeKind
from drumbeat.core.schedule import FireResult, Overlap, ScheduleState, SkippedRange
from drumbeat.ids import JobId
from drumbeat.store.job_reads import get_job
from drumbeat.store.protocol import Store
from drumbeat.store.protocol.wake import Subscriber
from tests.contract.making import HOUR, claim, end, exchange, ids, new_job, wanting, worker
from tests.contract.scheduling import (
    MINUTE,
    SECOND,
    after,
    change,
    fire,
    fired_job,
    firing,
    got,
    moment,
    new_schedule,
    outcomes,
    put,
)
from tests.waiting import until


async def state(store: Store, id: JobId) -> JobState:
    return (await get_job(store, id)).state


async def waits(store: Store, id: JobId) -> str | None:
    return (await get_job(store, id)).blocked_on


async def test_a_fire_makes_the_job_that_the_definition_says(store: Store) -> None:
    options = {"task": "charge", "queue": "critical", "args": '{"a": 1.10}', "signature": "s7", "priority": 2}
    options |= {"retries": 4, "timeout": 3 * SECOND, "crash_limit": 1, "on_dead": "refund"}
    await put(store, new_schedule(**options))  # type: ignore[arg-type]
    [id] = (await fire(store, "nightly", moment(1_000, run_at=1_500))).jobs
    job = await get_job(store, id)
    assert (job.task, job.queue, job.args, job.signature, job.priority) == (
        *("charge", "critical", '{"a": 1.10}', "s7", 2),
    )
    assert (job.retries, job.timeout, job.crash_limit, job.on_dead) == (4, 3.0, 1, "refund")
    assert (job.state, job.schedule, job.key, job.blocked_on) == (JobState.PENDING, "nightly", None, None)
    assert (job.due_at.timestamp(), job.run_at.timestamp()) == (0.001, 0.0015)
    [claimed] = await claim(store, await worker(store), "critical")
    assert (claimed.id, claimed.due_at, claimed.run_at, claimed.args) == (id, 1_000, 1_500, '{"a": 1.10}')


async def test_a_fire_moves_the_cursor_and_the_next_moment(store: Store) -> None:
    await put(store, new_schedule())
    fired = await fire(store, "nightly", 10, cursor=12, next_at=99)
    assert (fired.name, fired.applied, len(fired.jobs), fired.skipped) == ("nightly", True, 1, 0)
    found = await got(store)
    assert (found.cursor, found.next_at, found.current) == (12, 99, fired.jobs[0])


async def test_a_second_fire_from_the_same_cursor_is_refused(store: Store) -> None:
    schedule = await put(store, new_schedule(overlap=Overlap.ALLOW))
    first, second = firing(schedule, 10), firing(schedule, 10)
    refused = FireResult(name="nightly", applied=False)
    assert await store.schedules.fire([first, second]) == [
        FireResult(name="nightly", applied=True, jobs=(first.fires[0].job,)),
        refused,
    ]
    assert await store.schedules.fire([first]) == [refused]
    assert [job.id for job in await claim(store, await worker(store))] == [first.fires[0].job]


async def test_what_is_not_active_or_has_changed_is_refused(store: Store) -> None:
    schedule = await put(store, new_schedule())
    await change(store, schedule, ScheduleState.PAUSED)
    paused = await got(store)
    asked = [firing(paused, 10), firing(paused, 10, advances=False), firing(schedule, 10)]
    assert [fired.applied for fired in await store.schedules.fire(asked)] == [False] * 3
    await change(store, paused, ScheduleState.ACTIVE)
    stranger = await put(store, new_schedule("stranger"))
    asked = [firing(schedule, 10), firing(stranger, 10), firing(await got(store), 10)]
    assert [fired.applied for fired in await store.schedules.fire(asked)] == [False, True, True]


async def test_a_name_that_nobody_has_given_is_refused(store: Store) -> None:
    schedule = await put(store, new_schedule())
    await fire(store, "nightly", 10)
    missing = firing(schedule, 20)
    [fired] = await store.schedules.fire([type(missing)(name="missing", revision=1, expected_cursor=None)])
    assert not fired.applied
    assert await store.schedules.fire([]) == []


async def test_what_is_skipped_is_recorded_and_moves_the_cursor_without_a_job(store: Store) -> None:
    await put(store, new_schedule())
    stretch = SkippedRange(first=3, last=9, count=4, reason="late")
    fired = await fire(store, "nightly", skipped=(stretch,), cursor=9, next_at=50)
    assert (fired.applied, fired.jobs) == (True, ())
    found = await got(store)
    assert (found.cursor, found.next_at, found.current) == (9, 50, None)
    assert await outcomes(store, "nightly") == [(3, "skipped")]


async def test_a_backfill_leaves_the_cursor_and_passes_over_what_was_fired(store: Store) -> None:
    await put(store, new_schedule(overlap=Overlap.ALLOW))
    await fire(store, "nightly", 10, 30, skipped=(SkippedRange(first=20, last=20, count=1, reason="late"),))
    before = await got(store)
    [fired] = await store.schedules.fire([firing(before, 10, 20, 30, 40, advances=False, cursor=None, next_at=None)])
    assert (fired.applied, len(fired.jobs), fired.skipped) == (True, 2, 2)
    found = await got(store)
    assert (found.cursor, found.next_at) == (before.cursor, before.next_at)
    assert await outcomes(store, "nightly") == [
        *((10, "fired"), (20, "fired"), (20, "skipped"), (30, "fired"), (40, "fired")),
    ]
    again = await fire(store, "nightly", 20, advances=False)
    assert (again.applied, again.jobs, again.skipped) == (True, (), 1)


async def test_a_moment_that_is_skipped_twice_has_one_record_the_first(store: Store) -> None:
    await put(store, new_schedule())
    for count in (3, 7):
        await fire(store, "nightly", skipped=(SkippedRange(first=20, last=20 + count, count=count, reason="late"),))
    [record] = (await store.schedules.list_fires(["nightly"]))["nightly"]
    assert (record.at, record.last, record.count) == (20, 23, 3)


async def test_many_schedules_fire_together_each_by_its_own_rule(store: Store) -> None:
    rules = list(Overlap) * 10
    schedules = [
        await put(store, new_schedule(f"s{number:02}", overlap=rule, args=f'{{"n":{number}}}'))
        for number, rule in enumerate(rules)
    ]
    fired = await store.schedules.fire([firing(schedule, 10, 20) for schedule in schedules])
    assert [each.name for each in fired] == [schedule.name for schedule in schedules]
    expected = {Overlap.SKIP: 1, Overlap.QUEUE: 2, Overlap.ALLOW: 2, Overlap.CANCEL: 1}
    assert [len(each.jobs) for each in fired] == [expected[rule] for rule in rules]
    found = {id: await get_job(store, id) for each in fired for id in each.jobs}
    assert all(found[id].schedule == each.name for each in fired for id in each.jobs)
    assert {found[each.jobs[0]].args for each in fired} == {f'{{"n":{number}}}' for number in range(40)}


# Overlap: what becomes of a fire while the job of the one before is live.


async def test_skip_leaves_a_record_and_no_job(store: Store) -> None:
    first = await fired_job(store, new_schedule(overlap=Overlap.SKIP))
    fired = await fire(store, "nightly", 20, 30)
    assert (fired.jobs, fired.skipped) == ((), 2)
    assert await outcomes(store, "nightly") == [(1, "fired"), (20, "skipped"), (30, "skipped")]
    assert (await store.schedules.list_fires(["nightly"]))["nightly"][0].reason == "overlap"
    found = await got(store)
    assert (found.cursor, found.current) == (30, first)


async def test_a_job_that_waits_for_its_retry_counts_as_live(store: Store) -> None:
    await fired_job(store, new_schedule(overlap=Overlap.SKIP))
    me = await worker(store)
    [job] = await claim(store, me)
    await end(store, me, job, OutcomeKind.RETRY, delay=60 * MINUTE)
    assert (await fire(store, "nightly", 20)).jobs == ()


async def test_once_the_job_before_has_ended_the_next_is_fired(store: Store) -> None:
    await fired_job(store, new_schedule(overlap=Overlap.SKIP))
    me = await worker(store)
    [job] = await claim(store, me)
    assert (await fire(store, "nightly", 20)).jobs == ()
    await end(store, me, job, OutcomeKind.SUCCEEDED)
    assert (await got(store)).current is None
    assert len((await fire(store, "nightly", 30)).jobs) == 1


async def test_queue_lets_jobs_go_on_one_after_the_other(store: Store) -> None:
    first = await fired_job(store, new_schedule(overlap=Overlap.QUEUE))
    second, third = (await fire(store, "nightly", 20, 30)).jobs
    assert await outcomes(store, "nightly") == [(1, "fired"), (20, "queued"), (30, "queued")]
    assert [await waits(store, id) for id in (first, second, third)] == [None, "schedule:nightly", "schedule:nightly"]
    me = await worker(store)
    for expected in (first, second, third):
        assert (await got(store)).current == expected
        [job] = await claim(store, me)
        assert job.id == expected
        await end(store, me, job, OutcomeKind.SUCCEEDED)
    assert (await got(store)).current is None


async def test_nobody_but_the_end_of_the_job_before_sets_a_queued_one_free(store: Store) -> None:
    await fired_job(store, new_schedule(overlap=Overlap.QUEUE))
    [queued] = (await fire(store, "nightly", 20)).jobs
    me = await worker(store)
    wanted = ("schedule:nightly", "task:greet")
    assert len(await claim(store, me, wants=wanted[1:])) == 1
    pulse = await store.instances.heartbeat(me, 1)
    assert pulse.blocked_on == []
    assert await store.jobs.run_now([queued]) == 1
    assert await claim(store, me, wants=wanted[1:]) == []


async def test_many_queued_jobs_do_not_hide_what_else_is_waited_for(store: Store) -> None:
    me = await worker(store)
    await store.jobs.add([new_job()])
    [strange] = await claim(store, me)
    await end(store, me, strange, OutcomeKind.BLOCKED, started_at=None, blocked_on="task:greet")
    schedules = [await put(store, new_schedule(f"s{n}", overlap=Overlap.QUEUE, queue="far")) for n in range(3)]
    await store.schedules.fire([firing(schedule, 10, 20) for schedule in schedules])
    assert (await store.instances.heartbeat(me, 0)).blocked_on == ["task:greet"]
    assert ids(await claim(store, me, wants=["task:greet"])) == [strange.id]


async def test_allow_lets_them_run_beside_each_other(store: Store) -> None:
    first = await fired_job(store, new_schedule(overlap=Overlap.ALLOW))
    jobs = (await fire(store, "nightly", 20, 30)).jobs
    assert len(jobs) == 2
    assert (await got(store)).current == jobs[1]
    me = await worker(store)
    claimed = {job.id: job for job in await claim(store, me)}
    assert set(claimed) == {first, *jobs}
    await end(store, me, claimed[first], OutcomeKind.SUCCEEDED)
    assert (await got(store)).current == jobs[1]


async def test_cancel_takes_the_place_of_a_pending_job_at_once(store: Store) -> None:
    first = await fired_job(store, new_schedule(overlap=Overlap.CANCEL))
    [second] = (await fire(store, "nightly", 20)).jobs
    assert await state(store, first) is JobState.CANCELLED
    assert (await get_job(store, first)).schedule == "nightly"
    assert await waits(store, second) is None
    assert (await got(store)).current == second
    assert ids(await claim(store, await worker(store))) == [second]


async def test_cancel_asks_a_running_job_to_stop_and_waits_for_its_end(store: Store) -> None:
    await fired_job(store, new_schedule(overlap=Overlap.CANCEL))
    me = await worker(store)
    [running] = await claim(store, me)
    [second] = (await fire(store, "nightly", 20)).jobs
    [third] = (await fire(store, "nightly", 30)).jobs
    assert [hold.id for hold in (await store.instances.heartbeat(me, 1)).cancel_requests] == [running.id]
    assert await state(store, second) is JobState.CANCELLED
    assert (await waits(store, third), (await got(store)).current) == ("schedule:nightly", running.id)
    assert await claim(store, me) == []
    await end(store, me, running, OutcomeKind.CANCELLED)
    assert ids(await claim(store, me)) == [third]
    assert (await got(store)).current == third


async def test_cancel_gives_a_job_only_to_the_last_of_several_moments(store: Store) -> None:
    await put(store, new_schedule(overlap=Overlap.CANCEL))
    fired = await fire(store, "nightly", 10, 20, 30)
    assert (len(fired.jobs), fired.skipped) == (1, 2)
    assert await outcomes(store, "nightly") == [(10, "skipped"), (20, "skipped"), (30, "fired")]
    assert (await store.schedules.list_fires(["nightly"]))["nightly"][0].job == fired.jobs[0]


async def test_cancelling_a_queued_job_leaves_the_others_in_line(store: Store) -> None:
    first = await fired_job(store, new_schedule(overlap=Overlap.QUEUE))
    second, third = (await fire(store, "nightly", 20, 30)).jobs
    await store.jobs.cancel([second])
    assert (await got(store)).current == first
    await store.jobs.cancel([first])
    assert (await got(store)).current == third
    assert await waits(store, third) is None


async def test_cancelling_all_of_a_line_at_once_empties_it(store: Store) -> None:
    first = await fired_job(store, new_schedule(overlap=Overlap.QUEUE))
    others = (await fire(store, "nightly", 20, 30)).jobs
    await store.jobs.cancel([first, *others])
    assert [await state(store, id) for id in (first, *others)] == [JobState.CANCELLED] * 3
    await store.schedules.advance_stalled()
    assert len((await fire(store, "nightly", 40)).jobs) == 1


@pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.QUEUE, Overlap.CANCEL])
async def test_a_manual_job_of_the_same_task_is_no_overlap(store: Store, overlap: Overlap) -> None:
    await put(store, new_schedule(overlap=overlap))
    await store.jobs.add([new_job()])
    [id] = (await fire(store, "nightly", 20)).jobs
    assert await waits(store, id) is None


async def test_with_an_interval_by_completion_there_is_no_next_moment_while_the_job_is_live(store: Store) -> None:
    await put(store, after())
    fired = await fire(store, "sweep", 10, next_at=77)
    found = await got(store, "sweep")
    assert (found.next_at, found.cursor, found.current) == (None, 10, fired.jobs[0])
    assert await store.schedules.put(after(rule="5"), revision=found.revision, cursor=None, next_at=88, by="")
    assert (await got(store, "sweep")).next_at is None
    await change(store, await got(store, "sweep"), ScheduleState.PAUSED)
    await change(store, await got(store, "sweep"), ScheduleState.ACTIVE, next_at=99)
    assert (await got(store, "sweep")).next_at is None


async def test_a_skipped_moment_of_an_interval_by_completion_has_a_next_one(store: Store) -> None:
    await put(store, after())
    await fire(store, "sweep", skipped=(SkippedRange(first=1, last=1, count=1, reason="late"),), cursor=1, next_at=77)
    assert (await got(store, "sweep")).next_at == 77


async def test_fires_wake_workers(store: Store) -> None:
    await put(store, new_schedule())
    heard: list[int] = []
    async with store.wake.listen(Subscriber(heard.append)) as address:
        await worker(store, wake=address)
        await fire(store, "nightly", 20)

        async def told() -> bool:
            await store.inspect.now()
            return bool(heard)

        await until(told)


async def test_a_job_in_line_is_not_told_as_the_next_that_is_due(store: Store) -> None:
    later = await store.inspect.now() + HOUR
    await put(store, new_schedule(overlap=Overlap.QUEUE))
    assert len((await fire(store, "nightly", 10, moment(20, run_at=later))).jobs) == 2
    answer = await exchange(store, await worker(store), claim=wanting())
    assert (len(answer.jobs), answer.next_due_at) == (1, None)
