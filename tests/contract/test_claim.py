"""Jobs.exchange, the claiming half: which jobs, in which order, under which token."""

from drumbeat.core.claim import WriteStatus, blocked_on_task
from drumbeat.core.job import JobState, OutcomeKind
from drumbeat.ids import new_instance_id, new_job_ids
from drumbeat.store.job_reads import get_job
from drumbeat.store.protocol import Store
from tests.contract.making import (
    HOUR,
    add,
    claim,
    claimed_one,
    end,
    exchange,
    ids,
    new_job,
    outcome,
    wanting,
    worker,
)


async def test_a_job_is_claimed_once(store: Store) -> None:
    one, two = await worker(store), await worker(store)
    [id] = await add(store, new_job())
    assert ids(await claim(store, one)) == [id]
    assert await claim(store, one) == []
    assert await claim(store, two) == []


async def test_a_claimed_job_says_everything_the_worker_must_know(store: Store) -> None:
    instance = await worker(store)
    job = new_job(
        queue="q", args='{"a":"\\"Ä\\u0000"}', priority=1, key="k", retries=2, timeout=5, crash_limit=4, on_dead="later"
    )
    await store.jobs.add([job])
    [claimed] = await claim(store, instance, "q")
    assert (claimed.id, claimed.task, claimed.queue, claimed.priority) == (job.id, "greet", "q", 1)
    assert (claimed.key, claimed.args, claimed.signature) == ("k", job.args, "s1")
    assert (claimed.failures, claimed.crashes, claimed.retries, claimed.timeout) == (0, 0, 2, 5)
    assert (claimed.crash_limit, claimed.on_dead, claimed.replays, claimed.blocked_since) == (4, "later", 0, None)
    assert claimed.created_at == claimed.due_at == claimed.run_at <= claimed.token
    record = await get_job(store, job.id)
    assert (record.state, record.instance, record.token) == (JobState.RUNNING, instance, claimed.token)


async def test_the_token_is_the_stores_time_and_grows_with_each_claim(store: Store) -> None:
    instance = await worker(store)
    before = await store.inspect.now()
    job = await claimed_one(store, instance)
    assert before <= job.token <= await store.inspect.now()
    for _ in range(5):
        await end(store, instance, job, OutcomeKind.RELEASED)
        [again] = await claim(store, instance)
        assert again.token > job.token
        job = again


async def test_a_future_job_is_never_claimed_early(store: Store) -> None:
    instance = await worker(store)
    await add(store, new_job(delay=HOUR))
    assert await claim(store, instance) == []


async def test_order_is_priority_then_due_moment_then_id(store: Store) -> None:
    instance = await worker(store)
    now = await store.inspect.now()
    first, second, third, fourth, fifth = new_job_ids(5)
    await add(
        store,
        new_job(id=fifth, priority=9, run_at=now - 900),
        new_job(id=third, priority=5, run_at=now - 100),
        new_job(id=fourth, priority=5, run_at=now - 100),
        new_job(id=second, priority=5, run_at=now - 200),
        new_job(id=first, priority=0, run_at=now),
    )
    assert ids(await claim(store, instance, limit=2)) == [first, second]
    assert ids(await claim(store, instance)) == [third, fourth, fifth]


async def test_future_jobs_of_a_more_urgent_priority_are_stepped_over(store: Store) -> None:
    instance = await worker(store)
    await add(store, *(new_job(priority=0, delay=HOUR) for _ in range(50)))
    [due] = await add(store, new_job(priority=9))
    assert ids(await claim(store, instance, limit=10)) == [due]


async def test_only_the_named_queues_are_claimed_from(store: Store) -> None:
    instance = await worker(store)
    [mine] = await add(store, new_job(queue="mine"))
    await add(store, new_job(queue="other"))
    assert ids(await claim(store, instance, "mine", "empty")) == [mine]


async def test_each_queue_first_gives_its_share_then_the_rest_is_filled_in_order(store: Store) -> None:
    instance = await worker(store)
    names = {queue: [f"{queue}{number}" for number in range(10)] for queue in ("critical", "default", "low")}
    for queue, tasks in names.items():
        await add(store, *(new_job(task=task, queue=queue) for task in tasks))
    got = await claim(store, instance, ("critical", 6), ("default", 3), ("low", 1), limit=10)
    assert [job.task for job in got] == names["critical"][:6] + names["default"][:3] + names["low"][:1]
    got = await claim(store, instance, ("low", 1), ("default", 2), ("critical", 3), limit=10)
    assert sorted(job.task for job in got) == sorted(
        names["low"][1:6] + names["default"][3:5] + names["critical"][6:9]
    ), "shares 1 + 2 + 3, then four more of the first queue"


async def test_a_queue_without_jobs_leaves_its_share_to_the_others(store: Store) -> None:
    instance = await worker(store)
    await add(store, *(new_job(queue="default") for _ in range(10)))
    assert len(await claim(store, instance, ("critical", 6), ("default", 3), ("low", 1), limit=10)) == 10


async def test_shares_of_the_whole_limit_are_strict_order(store: Store) -> None:
    instance = await worker(store)
    await add(store, *(new_job(queue="b") for _ in range(3)), *(new_job(queue="a") for _ in range(3)))
    assert [job.queue for job in await claim(store, instance, ("a", 4), ("b", 4), limit=4)] == ["a", "a", "a", "b"]


async def test_no_more_than_the_limit_is_claimed(store: Store) -> None:
    instance = await worker(store)
    await add(store, *(new_job(queue=queue) for queue in "abc" for _ in range(5)))
    assert len(await claim(store, instance, ("a", 5), ("b", 5), ("c", 5), limit=7)) == 7
    assert await claim(store, instance, "a", "b", "c", limit=0) == []


async def test_a_paused_queue_gives_nothing_until_it_is_resumed(store: Store) -> None:
    instance = await worker(store)
    [id] = await add(store, new_job(queue="a"))
    [open] = await add(store, new_job(queue="b"))
    await store.jobs.pause_queue("a", by="ada", reason="deploy")
    await store.jobs.pause_queue("a", by="eve", reason="again")
    assert ids(await claim(store, instance, "a", "b")) == [open]
    assert (await exchange(store, instance, claim=wanting("a"))).next_due_at is None
    assert await store.jobs.resume_queue("a") is True
    assert await store.jobs.resume_queue("a") is False
    assert ids(await claim(store, instance, "a", "b")) == [id]


async def test_an_instance_that_is_unknown_or_ended_gets_no_jobs(store: Store) -> None:
    gone, dead, living = await worker(store), await worker(store), await worker(store)
    await store.instances.deregister(gone, "bye")
    await store.instances.declare_dead(dead, beat=None, started=None, reason="test")
    [id] = await add(store, new_job())
    for instance in (new_instance_id(), gone, dead):
        assert await claim(store, instance) == []
    assert ids(await claim(store, living)) == [id]


async def test_an_unfilled_claim_tells_the_next_due_moment_of_its_queues(store: Store) -> None:
    instance = await worker(store)
    now = await store.inspect.now()
    await add(
        store,
        new_job(queue="a", run_at=now + 3 * HOUR),
        new_job(queue="a", run_at=now + 2 * HOUR, priority=9),
        new_job(queue="other", run_at=now + HOUR),
    )
    assert (await exchange(store, instance, claim=wanting("a"))).next_due_at == now + 2 * HOUR
    [id] = await add(store, new_job(queue="a"))
    got = await exchange(store, instance, claim=wanting("a", limit=2))
    assert (ids(got.jobs), got.next_due_at) == ([id], now + 2 * HOUR)
    assert (await exchange(store, instance, claim=wanting("empty"))).next_due_at is None


async def test_a_filled_claim_tells_no_next_due_moment(store: Store) -> None:
    instance = await worker(store)
    await add(store, new_job(), new_job(delay=HOUR))
    assert (await exchange(store, instance, claim=wanting(limit=1))).next_due_at is None


async def test_an_exchange_tells_the_stores_now(store: Store) -> None:
    instance = await worker(store)
    before = await store.inspect.now()
    told = [
        (await exchange(store, instance)).now,
        (await exchange(store, instance, claim=wanting())).now,
        (await exchange(store, instance, [outcome((await claimed_one(store, instance)), OutcomeKind.SUCCEEDED)])).now,
    ]
    moments = [before, *told, await store.inspect.now()]
    assert moments == sorted(moments)


async def test_outcomes_and_the_next_claim_are_one_step(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    [following] = await add(store, new_job())
    got = await exchange(store, instance, [outcome(job, OutcomeKind.RETRY)], wanting())
    assert sorted(ids(got.jobs)) == sorted([following, job.id]), "what the outcome gave back can be claimed at once"


async def test_a_job_that_waits_for_something_is_claimed_only_by_who_wants_it(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance, task="strange")
    blocked = {"blocked_on": blocked_on_task("strange"), "started_at": None}
    assert await end(store, instance, job, OutcomeKind.BLOCKED, **blocked) == "applied"
    got = await exchange(store, instance, claim=wanting())
    assert (got.jobs, got.next_due_at) == ([], None)
    assert await claim(store, instance, wants=["task:other"]) == []
    assert await claim(store, instance, "elsewhere", wants=["task:strange"]) == []
    [again] = await claim(store, instance, wants=["task:a", "task:strange", "task:z"])
    assert again.id == job.id
    assert again.blocked_since is not None and again.blocked_since >= job.token
    record = await get_job(store, job.id)
    assert (record.state, record.blocked_on) == (JobState.RUNNING, None)


async def test_wanted_jobs_come_before_the_queues_by_priority_and_within_the_limit(store: Store) -> None:
    instance = await worker(store)
    tasks = [claimed.id for claimed in [await claimed_one(store, instance, priority=p) for p in (7, 3, 5)]]
    held = {job.id: job for job in await store.jobs.list_running(instance)}
    for id in tasks:
        await store.jobs.report_and_claim(
            instance, [outcome(held[id], OutcomeKind.BLOCKED, blocked_on="task:x", started_at=None)], None
        )
    [urgent] = await add(store, new_job(priority=0))
    assert ids(await claim(store, instance, wants=["task:x"], limit=2)) == [tasks[1], tasks[2]]
    assert ids(await claim(store, instance, wants=["task:x"], limit=2)) == [tasks[0], urgent]


async def test_paused_queues_keep_their_waiting_jobs_too(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await end(store, instance, job, OutcomeKind.BLOCKED, blocked_on="task:x", started_at=None)
    await store.jobs.pause_queue("default", by="ada", reason="")
    assert await claim(store, instance, wants=["task:x"]) == []


async def test_waiting_goes_on_counting_from_its_beginning_until_the_job_has_run(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    blocked = {"blocked_on": "task:x", "started_at": None}
    await end(store, instance, job, OutcomeKind.BLOCKED, **blocked)
    [first] = await claim(store, instance, wants=["task:x"])
    await end(store, instance, first, OutcomeKind.BLOCKED, **blocked)
    [second] = await claim(store, instance, wants=["task:x"])
    assert first.blocked_since == second.blocked_since
    await end(store, instance, second, OutcomeKind.RELEASED, started_at=None)
    [third] = await claim(store, instance)
    assert third.blocked_since == first.blocked_since, "released unharmed: it never ran"
    await end(store, instance, third, OutcomeKind.RETRY)
    [fourth] = await claim(store, instance)
    assert fourth.blocked_since is None


FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The first and the last moment that a datetime can name."""


async def test_any_moment_of_the_past_is_due_now_and_the_last_one_never(store: Store) -> None:
    instance = await worker(store)
    before_1970, year_one, never = new_job(run_at=-HOUR), new_job(run_at=FIRST_US), new_job(run_at=LAST_US)
    await add(store, before_1970, never, year_one, new_job())
    jobs = await claim(store, instance)
    assert [job.id for job in jobs][:2] == [year_one.id, before_1970.id], "oldest due first"
    assert len(jobs) == 3
    assert jobs[0].run_at == jobs[0].due_at == FIRST_US and jobs[1].run_at == -HOUR
    assert (await get_job(store, year_one.id)).run_at.year == 1
    assert (await get_job(store, never.id)).run_at.year == 9999
    for job in jobs:
        assert await end(store, instance, job, OutcomeKind.RELEASED) is WriteStatus.APPLIED
    again = await claim(store, instance)
    assert [job.id for job in again][:2] == [year_one.id, before_1970.id]
    for job in again:
        assert await end(store, instance, job, OutcomeKind.SUCCEEDED) is WriteStatus.APPLIED
    assert (await get_job(store, year_one.id)).due_at.year == 1


async def test_a_large_batch_of_moments_long_past_is_due_now(store: Store) -> None:
    instance = await worker(store)
    await add(store, *(new_job(run_at=-1_000 + number) for number in range(600)))
    jobs = await claim(store, instance, limit=100)
    await add(store, new_job(run_at=FIRST_US))
    jobs += await claim(store, instance, limit=1_000)
    assert len(jobs) == 601
