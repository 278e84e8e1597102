"""Limits at the claim: never more jobs at once, or starts in a time, than each limit over a lane allows, and no job waits
beside room. Room goes back in the step that ends a run."""

import msgspec
import pytest

from drumbeat.core.claim import ClaimedJob, blocked_on_task
from drumbeat.core.job import JobState, OutcomeKind
from drumbeat.core.job_query import JobFilter
from drumbeat.core.limits import Bounds, LineChange
from drumbeat.core.schedule import Overlap
from drumbeat.core.step import StepKind
from drumbeat.core.suspension import Suspension
from drumbeat.ids import JobId
from drumbeat.store.job_reads import find_jobs, get_job
from drumbeat.store.protocol import Store
from tests.contract.graphs import add_child, settle
from tests.contract.lanes import (
    add_jobs,
    ask,
    asking,
    declare,
    finish,
    give_back,
    groups_of,
    lane_job,
    released_into,
    take,
)
from tests.contract.making import HOUR, add, exchange, ids, new_job, outcome, worker
from tests.contract.scheduling import fire, got, new_schedule, put

TWO, ONE = Bounds(2), Bounds(1)


async def test_a_lane_gives_no_more_at_once_than_its_limit_and_goes_on_as_runs_end(store: Store) -> None:
    instance = await worker(store)
    await declare(store, each=TWO)
    wanted = await add_jobs(store, "a", 5)
    first = await take(store, instance)
    assert ids(first) == wanted[:2]
    assert await take(store, instance) == []
    assert await groups_of(store) == {"a": (3, 2)}
    [next_one] = (await exchange(store, instance, [outcome(first[0], OutcomeKind.SUCCEEDED)], asking())).jobs
    assert next_one.id == wanted[2]
    await finish(store, instance, first[1], next_one)
    assert ids(await take(store, instance)) == wanted[3:]


async def test_the_limit_counts_over_all_instances(store: Store) -> None:
    one, two = await worker(store), await worker(store)
    await declare(store, each=TWO)
    await add_jobs(store, "a", 5)
    assert len(await take(store, one, limit=1)) == 1
    assert len(await take(store, two)) == 1
    assert await take(store, one) == []


async def test_groups_have_their_own_room_and_a_full_one_hides_nobody(store: Store) -> None:
    instance = await worker(store)
    await declare(store, each=ONE)
    for group in ("a", "a", "b", "c"):
        await add_jobs(store, group, 3)
    assert len(await take(store, instance)) == 3
    assert await groups_of(store) == {"a": (5, 1), "b": (2, 1), "c": (2, 1)}


async def test_the_whole_line_has_a_limit_over_its_groups(store: Store) -> None:
    instance = await worker(store)
    await declare(store, whole=Bounds(3), each=TWO)
    for group in ("a", "b", "c"):
        await add_jobs(store, group, 3)
    first = await take(store, instance)
    assert len(first) == 3
    assert await take(store, instance) == []
    await finish(store, instance, *first)
    assert len(await take(store, instance)) == 3


async def test_the_queue_has_a_limit_over_its_lines(store: Store) -> None:
    instance = await worker(store)
    await declare(store, "", whole=TWO)
    await declare(store, "greet", each=Bounds(5))
    await add_jobs(store, "a", 4)
    await add_jobs(store, "", 4, line="", task="other")
    first = await take(store, instance)
    assert {job.task for job in first} == {"greet", "other"}, "the lines of a queue take turns"
    assert len(first) == 2
    assert await take(store, instance) == []
    await finish(store, instance, *first)
    assert len(await take(store, instance)) == 2


async def test_no_job_is_claimed_whose_line_was_never_declared(store: Store) -> None:
    instance = await worker(store)
    wanted = await add_jobs(store, "a", 2)
    assert await take(store, instance) == []
    await declare(store, each=TWO)
    assert ids(await take(store, instance)) == wanted


async def test_a_rate_allows_so_many_starts_in_any_time_of_its_length(store: Store) -> None:
    instance = await worker(store)
    per = 300_000
    await declare(store, each=Bounds(rate=2, per=per))
    await add_jobs(store, "a", 6)
    claimed: list[ClaimedJob] = []
    while len(claimed) < 6:
        answer = await ask(store, instance, limit=1 + len(claimed) % 2)
        claimed += answer.jobs
        await finish(store, instance, *answer.jobs)
        if not answer.jobs and len(claimed) < 6:
            assert answer.next_due_at is not None and answer.now < answer.next_due_at <= answer.now + per
    tokens = sorted(job.token for job in claimed)
    assert all(later - earlier >= per for earlier, later in zip(tokens, tokens[2:], strict=False))


async def test_a_release_gives_room_back_but_its_start_stays_counted(store: Store) -> None:
    instance = await worker(store)
    await declare(store, each=Bounds(1, 2, HOUR))
    await add_jobs(store, "a", 3)
    await give_back(store, instance, *await take(store, instance))
    await give_back(store, instance, *await take(store, instance))
    answer = await ask(store, instance)
    assert answer.jobs == []
    assert answer.next_due_at is not None and answer.next_due_at > answer.now + HOUR // 2


@pytest.mark.parametrize("kind", [OutcomeKind.RETRY, OutcomeKind.SNOOZED, OutcomeKind.RELEASED])
async def test_a_run_that_goes_back_gives_its_room_back(store: Store, kind: OutcomeKind) -> None:
    instance = await worker(store)
    await declare(store, each=ONE)
    await add_jobs(store, "a", 2)
    [first] = await take(store, instance)
    await finish(store, instance, first, kind=kind, delay=0 if kind is OutcomeKind.RELEASED else HOUR)
    [second] = await take(store, instance)
    assert (second.id == first.id) == (kind is OutcomeKind.RELEASED)
    await finish(store, instance, second)
    assert await groups_of(store) == {"a": (1, 0)}


async def test_a_job_that_dies_expires_or_is_cancelled_gives_its_room_back(store: Store) -> None:
    instance = await worker(store)
    await declare(store, each=ONE, whole=ONE)
    await add_jobs(store, "a", 5)
    for kind in (OutcomeKind.DEAD, OutcomeKind.EXPIRED, OutcomeKind.CANCELLED):
        [job] = await take(store, instance)
        await finish(store, instance, job, kind=kind)
    [job] = await take(store, instance)
    await store.jobs.cancel([job.id])
    assert await take(store, instance) == [], "it still runs"
    await finish(store, instance, job, kind=OutcomeKind.RETRY)
    assert (await get_job(store, job.id)).state is JobState.CANCELLED
    assert len(await take(store, instance)) == 1


async def test_the_death_of_an_instance_gives_the_room_of_its_runs_back(store: Store) -> None:
    dead, other = await worker(store), await worker(store)
    await declare(store, each=TWO, whole=Bounds(3))
    await add_jobs(store, "a", 4)
    held = await take(store, dead)
    assert await take(store, other) == []
    await store.instances.declare_dead(dead, beat=None, started=None, reason="test")
    again = await take(store, other)
    assert len(again) == 2
    await finish(store, dead, *held)
    assert await take(store, other) == [], "a late outcome gives nothing back"
    await finish(store, other, *again)
    assert len(await take(store, other)) == 2


async def test_an_instance_that_leaves_gives_the_room_of_its_runs_back(store: Store) -> None:
    leaving, other = await worker(store), await worker(store)
    await declare(store, each=ONE)
    await add_jobs(store, "a", 2)
    await take(store, leaving)
    await store.instances.deregister(leaving, reason="test")
    assert len(await take(store, other)) == 1


async def test_a_pending_head_that_is_cancelled_or_expires_holds_nobody(store: Store) -> None:
    instance = await worker(store)
    await declare(store, each=ONE)
    first, second, third = await add_jobs(store, "a", 3)
    await store.jobs.cancel([first])
    [job] = await take(store, instance)
    assert job.id == second
    await store.jobs.cancel([third])
    await finish(store, instance, job)
    assert await take(store, instance) == []
    [last] = await add_jobs(store, "a", 1)
    assert ids(await take(store, instance)) == [last]


async def test_a_future_job_of_a_better_priority_hides_no_due_one(store: Store) -> None:
    instance = await worker(store)
    await declare(store, each=ONE)
    later = lane_job("a", priority=0, delay=HOUR)
    now = lane_job("a", priority=5)
    urgent = lane_job("a", priority=1)
    await add(store, later, now, urgent)
    for wanted in (urgent, now):
        [job] = await take(store, instance)
        assert job.id == wanted.id
        await finish(store, instance, job)
    answer = await ask(store, instance)
    found = await get_job(store, later.id)
    assert answer.jobs == [] and answer.next_due_at is not None
    assert answer.next_due_at / 1e6 == pytest.approx(found.run_at.timestamp(), abs=1e-3)


async def test_run_now_makes_a_future_job_of_a_lane_due(store: Store) -> None:
    instance = await worker(store)
    await declare(store, each=ONE)
    [id] = await add_jobs(store, "a", 1, delay=HOUR)
    assert await take(store, instance) == []
    assert await store.jobs.run_now([id]) == 1
    assert ids(await take(store, instance)) == [id]


async def test_a_replayed_dead_letter_is_in_its_lane_again(store: Store) -> None:
    instance = await worker(store)
    await declare(store, each=ONE)
    [id] = await add_jobs(store, "a", 1)
    await finish(store, instance, *await take(store, instance), kind=OutcomeKind.DEAD)
    assert await take(store, instance) == []
    await add_jobs(store, "a", 1)
    await store.jobs.replay([id])
    first = await take(store, instance)
    assert len(first) == 1
    await finish(store, instance, *first)
    second = await take(store, instance)
    assert id in ids([*first, *second])


async def test_a_blocked_job_holds_no_room_and_comes_back_through_its_lane(store: Store) -> None:
    instance = await worker(store)
    await declare(store, each=ONE)
    wanted = await add_jobs(store, "a", 2)
    [job] = await take(store, instance)
    reason = blocked_on_task("greet")
    await finish(store, instance, job, kind=OutcomeKind.BLOCKED, blocked_on=reason)
    [other] = await take(store, instance)
    assert other.id == wanted[1]
    assert await take(store, instance, unblocks=(reason,)) == [], "the lane is full"
    await finish(store, instance, other)
    assert ids(await take(store, instance, unblocks=(reason,))) == [wanted[0]]


async def test_a_child_enters_its_lane_when_its_parents_have_ended(store: Store) -> None:
    instance = await worker(store)
    await declare(store, each=ONE)
    [parent] = await add(store, new_job())
    child = await add_child(store, parent, group="a", lane="greet a")
    [first] = await take(store, instance)
    assert first.id == parent
    assert await take(store, instance) == []
    await finish(store, instance, first)
    await settle(store)
    await add_jobs(store, "a", 1)
    [job] = await take(store, instance)
    assert job.id == child


async def test_a_sleeper_holds_no_room_and_wakes_in_its_lane(store: Store) -> None:
    instance = await worker(store)
    await declare(store, each=ONE)
    [id, other] = await add_jobs(store, "a", 2)
    [job] = await take(store, instance)
    nap = Suspension(kind=StepKind.SLEEP, name="nap")
    await finish(store, instance, job, kind=OutcomeKind.SUSPENDED, suspension=nap, delay=HOUR)
    [second] = await take(store, instance)
    assert second.id == other
    await store.jobs.run_now([id])
    assert await take(store, instance) == []
    await finish(store, instance, second)
    assert ids(await take(store, instance)) == [id]


async def test_plain_jobs_and_lines_take_turns(store: Store) -> None:
    instance = await worker(store)
    await declare(store, each=Bounds(100))
    await add(store, *(new_job(task="plain") for _ in range(300)))
    await add_jobs(store, "a", 300)
    counts = {"plain": 0, "greet": 0}
    for _ in range(60):
        jobs = await take(store, instance, limit=3)
        for job in jobs:
            counts[job.task] += 1
        await finish(store, instance, *jobs)
    assert sum(counts.values()) == 180
    assert min(counts.values()) >= 50, counts


async def test_a_paused_queue_gives_no_jobs_of_lanes(store: Store) -> None:
    instance = await worker(store)
    await declare(store, each=ONE)
    await add_jobs(store, "a", 1)
    await store.jobs.pause_queue("default", by="me", reason="")
    answer = await ask(store, instance)
    assert (answer.jobs, answer.next_due_at) == ([], None)
    await store.jobs.resume_queue("default")
    assert len(await take(store, instance)) == 1


async def test_jobs_under_limits_are_claimed_for_free_slots_only(store: Store) -> None:
    instance = await worker(store)
    await declare(store, each=Bounds(10))
    await add_jobs(store, "a", 5)
    answer = await ask(store, instance, slots=0)
    assert (answer.jobs, answer.has_limited) == ([], True)
    assert answer.next_due_at is None or answer.next_due_at > answer.now, "it need not ask again before it has a slot"
    assert len(await take(store, instance, slots=2)) == 2
    answer = await ask(store, instance, slots=10)
    assert (len(answer.jobs), answer.has_limited) == (3, False)


async def test_a_claim_that_plain_jobs_fill_says_that_jobs_under_limits_wait_for_slots(store: Store) -> None:
    instance = await worker(store)
    await declare(store, each=Bounds(10))
    await add(store, *(new_job(task="plain") for _ in range(10)))
    answer = await ask(store, instance, limit=2, slots=0)
    assert (len(answer.jobs), answer.has_limited) == (2, False)
    await add_jobs(store, "a", 1)
    for is_expected in (False, True):
        wanted = msgspec.structs.replace(asking(limit=2, slots=0), is_expected=is_expected)
        answer = await exchange(store, instance, (), wanted)
        assert ([job.task for job in answer.jobs], answer.has_limited) == (["plain"] * 2, True)
    answer = await ask(store, instance, limit=4, slots=1)
    assert (sorted(job.task for job in answer.jobs), answer.has_limited) == (
        ["greet", "plain", "plain", "plain"],
        False,
    )


async def test_a_job_that_is_released_into_a_lane_waits_there_under_its_limits(store: Store) -> None:
    instance = await worker(store)
    await declare(store, each=ONE)
    [plain] = await add(store, new_job(group="a"))
    [job] = await take(store, instance)
    assert (job.group, job.lane) == ("a", "")
    [other] = await add_jobs(store, "a", 1)
    [running] = await take(store, instance)
    assert (running.id, running.group, running.lane) == (other, "a", "greet a")
    await exchange(store, instance, [released_into("greet a", job)])
    found = await get_job(store, plain)
    assert (found.state, found.lane, found.attempt, found.error) == (JobState.PENDING, "greet a", 1, None)
    assert await store.inspect.get_attempts([plain]) == {plain: []}
    assert await take(store, instance) == [], "the lane is full"
    assert await groups_of(store) == {"a": (1, 1)}
    await finish(store, instance, running)
    [again] = await take(store, instance)
    assert (again.id, again.lane) == (plain, "greet a")
    assert await groups_of(store) == {"a": (0, 1)}


async def test_a_job_that_moves_to_another_lane_gives_back_the_room_of_its_own(store: Store) -> None:
    instance = await worker(store)
    await declare(store, "greet", each=ONE, whole=ONE)
    await declare(store, "", each=ONE, whole=Bounds(2))
    [first, second] = await add_jobs(store, "a", 2, line="")
    [job] = await take(store, instance)
    assert job.id == first
    await exchange(store, instance, [released_into("greet b", job)])
    found = await get_job(store, first)
    assert (found.group, found.lane) == ("b", "greet b"), "the group is that of the lane"
    both = await take(store, instance)
    assert {each.id: each.lane for each in both} == {first: "greet b", second: " a"}
    assert (await groups_of(store), await groups_of(store, "")) == ({"b": (0, 1)}, {"a": (0, 1)})
    await finish(store, instance, *both)
    lines = await store.limits.list_lines()
    assert {line.line: line.running for line in lines} == {"": 0, "greet": 0}


async def test_a_job_that_moves_out_of_its_lane_is_a_plain_one_again(store: Store) -> None:
    instance = await worker(store)
    await declare(store, each=ONE)
    [first] = await add_jobs(store, "a", 1)
    [job] = await take(store, instance)
    await exchange(store, instance, [released_into("", job)])
    [again] = await take(store, instance)
    assert (again.id, again.lane) == (first, "")
    assert await groups_of(store) == {"a": (0, 0)}


async def test_jobs_that_are_released_into_a_lane_with_an_order_get_their_place_by_age(store: Store) -> None:
    instance = await worker(store)
    await declare(store, order="hold")
    first = await add(store, new_job(priority=9))
    [later] = await add_jobs(store, "a", 1)
    taken = {job.id: job for job in await take(store, instance)}
    await exchange(store, instance, [released_into("greet a", taken[first[0]])])
    await give_back(store, instance, taken[later])
    done = []
    while jobs := await take(store, instance):
        done += ids(jobs)
        await finish(store, instance, *jobs)
    assert done == [*first, later]


async def test_a_schedule_gives_its_jobs_their_group_and_lane(store: Store) -> None:
    instance = await worker(store)
    await declare(store, each=ONE)
    schedule = new_schedule(overlap=Overlap.ALLOW, task="greet", group="a", lane="greet a")
    await put(store, schedule)
    assert (await got(store)).definition == schedule
    fired = await fire(store, schedule.name, 1, 2)
    [job] = await take(store, instance)
    assert (job.id in fired.jobs, job.group, job.lane) == (True, "a", "greet a")
    assert await take(store, instance) == []
    await finish(store, instance, job)
    assert len(await take(store, instance)) == 1


async def test_jobs_of_a_fair_line_without_limits_may_be_claimed_ahead(store: Store) -> None:
    instance = await worker(store)
    await declare(store, fair=True)
    await add_jobs(store, "a", 5)
    assert len(await take(store, instance, slots=0)) == 5


async def test_groups_take_turns_by_their_weights(store: Store) -> None:
    instance = await worker(store)
    await declare(store, fair=True, weights={"heavy": 3})
    for group in ("heavy", "b", "c"):
        await add_jobs(store, group, 120)
    groups = {id: group for group in ("heavy", "b", "c") for id in await group_ids(store, group)}
    for limit in (1, 4, 40):
        counts = {"heavy": 0, "b": 0, "c": 0}
        for _ in range(40 // limit):
            jobs = await take(store, instance, limit=limit)
            assert len(jobs) == limit
            for job in jobs:
                counts[groups[job.id]] += 1
            await finish(store, instance, *jobs)
        assert counts == {"heavy": 24, "b": 8, "c": 8}, limit


async def group_ids(store: Store, group: str) -> list[JobId]:
    return [job.id for job in await find_jobs(store, JobFilter(limit=1_000)) if job.group == group]


async def test_a_group_that_floods_delays_the_others_by_a_turn_at_most(store: Store) -> None:
    instance = await worker(store)
    await declare(store, fair=True)
    await add_jobs(store, "flood", 500)
    for _ in range(3):
        await finish(store, instance, *await take(store, instance, limit=5))
    [id] = await add_jobs(store, "small", 1)
    assert id in ids(await take(store, instance, limit=2))


async def test_limits_that_are_raised_wake_what_waits(store: Store) -> None:
    instance = await worker(store)
    await declare(store, each=ONE)
    await add_jobs(store, "a", 5)
    await add_jobs(store, "b", 5)
    assert len(await take(store, instance)) == 2
    assert await take(store, instance) == []
    await declare(store, each=Bounds(3), version=2)
    assert len(await take(store, instance)) == 4


async def test_lowered_limits_revoke_nobody_and_hold_from_now_on(store: Store) -> None:
    instance = await worker(store)
    await declare(store, each=Bounds(4), whole=Bounds(5))
    await add_jobs(store, "a", 8)
    running = await take(store, instance)
    assert len(running) == 4
    await declare(store, each=TWO, whole=TWO, version=2)
    assert await take(store, instance) == []
    await finish(store, instance, *running[:2])
    assert await take(store, instance) == []
    await finish(store, instance, running[2])
    assert len(await take(store, instance)) == 1


async def test_a_limit_of_the_whole_line_that_comes_later_counts_what_runs_already(store: Store) -> None:
    instance = await worker(store)
    await declare(store, each=Bounds(4))
    await add_jobs(store, "a", 3)
    await add_jobs(store, "b", 3)
    running = await take(store, instance, limit=3)
    await declare(store, each=Bounds(4), whole=Bounds(3), version=2)
    assert await take(store, instance) == []
    await finish(store, instance, running[0])
    assert len(await take(store, instance)) == 1


async def test_an_older_version_does_not_replace_what_a_newer_one_declares(store: Store) -> None:
    await declare(store, each=TWO, version=5)
    await declare(store, each=ONE, version=4)
    [line] = await store.limits.list_lines()
    assert (line.declared.each, line.policy.each) == (TWO, TWO)
    await declare(store, each=ONE, version=5)
    [line] = await store.limits.list_lines()
    assert line.policy.each == ONE


async def test_what_people_set_wins_until_it_is_taken_back(store: Store) -> None:
    instance = await worker(store)
    await declare(store, each=TWO, fair=True)
    await add_jobs(store, "a", 9)
    assert await store.limits.change("default", "greet", LineChange(each=Bounds(3)), by="ada", reason="a calm day")
    assert len(await take(store, instance)) == 3
    await declare(store, each=ONE, fair=True, version=2)
    [line] = await store.limits.list_lines()
    assert (line.policy.each, line.policy.fair, line.declared.each) == (Bounds(3), True, ONE)
    assert (line.changed_by, line.reason, line.change) == ("ada", "a calm day", LineChange(each=Bounds(3)))
    assert line.changed_at is not None
    assert await store.limits.change("default", "greet", None, by="ada", reason="")
    [line] = await store.limits.list_lines()
    assert (line.policy.each, line.change) == (ONE, None)
    assert not await store.limits.change("default", "nobody", None, by="ada", reason="")


async def test_a_group_may_be_an_exception(store: Store) -> None:
    instance = await worker(store)
    await declare(store, each=ONE, fair=True)
    await add_jobs(store, "a", 9)
    await add_jobs(store, "b", 9)
    assert await store.limits.change_group("default", "greet", "a", bounds=Bounds(4), weight=3)
    assert len(await take(store, instance)) == 5
    assert await groups_of(store) == {"a": (5, 4), "b": (8, 1)}
    [a, b] = await store.limits.list_groups("default", "greet")
    assert (a.bounds, a.weight, a.own_bounds, a.own_weight) == (Bounds(4), 3, Bounds(4), 3)
    assert (b.bounds, b.weight, b.own_bounds, b.own_weight) == (ONE, 1, None, None)
    assert await store.limits.change_group("default", "greet", "a", bounds=None, weight=None)
    assert not await store.limits.change_group("default", "nobody", "a", bounds=ONE, weight=None)
    [a, _] = await store.limits.list_groups("default", "greet")
    assert (a.bounds, a.own_bounds) == (ONE, None)


async def test_an_exception_may_come_before_the_first_job_of_its_group(store: Store) -> None:
    instance = await worker(store)
    await declare(store, each=ONE)
    await store.limits.change_group("default", "greet", "a", bounds=Bounds(3), weight=None)
    await add_jobs(store, "a", 5)
    assert len(await take(store, instance)) == 3


async def test_groups_are_listed_by_name_in_pages_and_found_by_lane(store: Store) -> None:
    instance = await worker(store)
    await declare(store, each=Bounds(1, 5, HOUR))
    for group in ("c", "a", "b"):
        await add_jobs(store, group, 2)
    await take(store, instance, limit=1)
    first = await store.limits.list_groups("default", "greet", limit=2)
    rest = await store.limits.list_groups("default", "greet", after="b", limit=2)
    assert [each.group for each in (*first, *rest)] == ["a", "b", "c"]
    assert sum(each.running for each in (*first, *rest)) == 1
    [found, nobody] = await store.limits.find_groups([("default", "greet b"), ("default", "greet z")])
    assert found == first[1] and nobody is None
    busiest = await store.limits.busiest_groups(2)
    assert (len(busiest), busiest[0].running, busiest[0].starts_in_window) == (2, 1, 1)


async def test_lanes_that_are_idle_are_swept_and_come_back_with_their_next_job(store: Store) -> None:
    instance = await worker(store)
    await declare(store, each=ONE)
    for group in ("a", "b", "c"):
        await add_jobs(store, group, 1)
    await store.limits.change_group("default", "greet", "b", bounds=TWO, weight=None)
    await finish(store, instance, *await take(store, instance))
    [waiting] = await add_jobs(store, "c", 1, delay=HOUR)
    assert await take(store, instance) == []
    later = await store.inspect.now() + 1_000_000
    deleted, corrected = await store.limits.sweep(later, 1_000)
    assert (deleted, corrected) == (1, 0)
    assert set(await groups_of(store)) == {"b", "c"}
    [id] = await add_jobs(store, "a", 1)
    assert ids(await take(store, instance)) == [id]
    assert await groups_of(store) == {"a": (0, 1), "b": (0, 0), "c": (1, 0)}
    assert (await get_job(store, waiting)).state is JobState.PENDING


async def test_a_lane_whose_rate_still_counts_starts_is_not_forgotten(store: Store) -> None:
    """It is not full, so it opens at once; but what has started must not start again."""
    instance = await worker(store)
    await declare(store, each=Bounds(rate=2, per=HOUR))
    await add_jobs(store, "a", 1)
    await finish(store, instance, *await take(store, instance))
    assert await take(store, instance) == []
    assert await store.limits.sweep(await store.inspect.now() + 1_000_000, 1_000) == (0, 0)
    await add_jobs(store, "a", 3)
    assert len(await take(store, instance)) == 1


@pytest.mark.parametrize("order", ["", "skip"])
async def test_a_line_that_is_held_goes_on_when_it_loses_its_order_or_may_step_over(store: Store, order: str) -> None:
    instance = await worker(store)
    await declare(store, order="hold", each=ONE)
    _, second = await add_jobs(store, "a", 2)
    [job] = await take(store, instance)
    await finish(store, instance, job, kind=OutcomeKind.RETRY, delay=HOUR)
    assert await take(store, instance) == []
    await declare(store, order=order, each=ONE, version=2)
    assert ids(await take(store, instance)) == [second]


@pytest.mark.parametrize("order", ["hold", "skip"])
async def test_an_order_is_that_of_enqueue_one_after_the_other(store: Store, order: str) -> None:
    instance = await worker(store)
    await declare(store, order=order)
    wanted = [(await add_jobs(store, "a", 1))[0] for _ in range(3)]
    wanted += await add_jobs(store, "a", 3)
    await add_jobs(store, "b", 1)
    done = []
    while jobs := await take(store, instance):
        assert len(jobs) <= 2
        done += [job.id for job in jobs if job.id in wanted]
        await finish(store, instance, *jobs)
    assert done == wanted


async def test_a_retry_holds_the_line_or_is_stepped_over(store: Store) -> None:
    instance = await worker(store)
    for order, task in (("hold", "held"), ("skip", "skipped")):
        await declare(store, task, order=order)
        first, second = await add_jobs(store, "a", 2, line=task, task=task)
        [job] = await take(store, instance)
        assert job.id == first
        await finish(store, instance, job, kind=OutcomeKind.RETRY, delay=HOUR)
        following = await take(store, instance)
        assert ids(following) == ([] if order == "hold" else [second])
        await finish(store, instance, *following)
        await store.jobs.run_now([first])
        [job] = await take(store, instance)
        assert job.id == first
        await finish(store, instance, job)
        for left in await take(store, instance):
            assert left.id == second
            await finish(store, instance, left)


async def test_a_dead_letter_frees_the_line_and_its_replay_joins_at_the_end(store: Store) -> None:
    instance = await worker(store)
    await declare(store, order="hold")
    first, second, third = [(await add_jobs(store, "a", 1))[0] for _ in range(3)]
    [job] = await take(store, instance)
    await finish(store, instance, job, kind=OutcomeKind.DEAD)
    await store.jobs.replay([first])
    order = []
    while jobs := await take(store, instance):
        order += ids(jobs)
        await finish(store, instance, *jobs)
    assert order == [second, third, first]


async def test_a_line_may_get_an_order_while_its_jobs_wait(store: Store) -> None:
    instance = await worker(store)
    await declare(store, each=Bounds(5))
    wanted = [(await add_jobs(store, "a", 1, priority=9 - number))[0] for number in range(3)]
    await declare(store, order="hold", version=2)
    done = []
    while jobs := await take(store, instance):
        assert len(jobs) == 1
        done += ids(jobs)
        await finish(store, instance, *jobs)
    assert done == wanted


async def test_a_thousand_lanes_are_served_to_the_last_job(store: Store) -> None:
    instance = await worker(store)
    await declare(store, each=ONE)
    await store.jobs.add([lane_job(f"g{number}") for number in range(1_000)])
    done, asked = 0, 0
    while done < 1_000:
        answer = await ask(store, instance, limit=100)
        asked += 1
        done += len(answer.jobs)
        if done < 1_000 and len(answer.jobs) < 100:
            assert answer.next_due_at is not None and answer.next_due_at <= answer.now + 10_000
        await finish(store, instance, *answer.jobs)
    assert asked <= 30
