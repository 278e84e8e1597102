"""Jobs.cancel, cancel_keys and run_now."""

from drumbeat.core.job import CancelAnswer, JobState, OutcomeKind, PendingView, Unique
from drumbeat.ids import new_job_id
from drumbeat.store.job_reads import get_job
from drumbeat.store.protocol import Store
from tests.contract.making import HOUR, add, claim, claimed_one, dead_letter, end, hold, ids, new_job, worker


async def test_a_pending_job_is_cancelled_at_once_and_never_runs(store: Store) -> None:
    instance = await worker(store)
    due, future = await add(store, new_job(), new_job(delay=HOUR))
    assert await store.jobs.cancel([due, future]) == [CancelAnswer.CANCELLED] * 2
    assert await claim(store, instance) == []
    found = await get_job(store, due)
    assert (found.state, found.instance, found.started_at) == (JobState.CANCELLED, None, None)
    assert found.finished_at is not None
    assert (await store.inspect.get_attempts([due]))[due] == []


async def test_a_running_job_is_asked_to_stop_and_hears_of_it_in_its_next_beat(store: Store) -> None:
    instance = await worker(store)
    job, other = await claimed_one(store, instance), await claimed_one(store, instance)
    assert (await store.instances.heartbeat(instance, 2)).cancel_requests == []
    assert await store.jobs.cancel([job.id]) == [CancelAnswer.REQUESTED]
    assert await store.jobs.cancel([job.id]) == [CancelAnswer.REQUESTED]
    found = await get_job(store, job.id)
    assert (found.state, found.cancel_requested) == (JobState.RUNNING, True)
    assert (await store.instances.heartbeat(instance, 2)).cancel_requests == [hold(job)]
    assert await store.jobs.list_running(instance) == [hold(job), hold(other)]


async def test_an_ended_job_answers_its_final_state(store: Store) -> None:
    instance = await worker(store)
    done = await claimed_one(store, instance)
    await end(store, instance, done, OutcomeKind.SUCCEEDED)
    dead = await dead_letter(store, instance)
    discarded = await dead_letter(store, instance)
    await store.jobs.discard([discarded.id])
    [gone] = await add(store, new_job())
    await store.jobs.cancel([gone])
    answers = await store.jobs.cancel([done.id, dead.id, discarded.id, gone, new_job_id()])
    assert answers == ["succeeded", "dead", "dead", "cancelled", "unknown"]
    assert await store.jobs.cancel([]) == []


async def test_answers_come_in_the_order_of_the_ids_also_for_one_named_twice(store: Store) -> None:
    instance = await worker(store)
    running = await claimed_one(store, instance)
    [pending] = await add(store, new_job())
    assert await store.jobs.cancel([pending, running.id, pending]) == ["cancelled", "requested", "cancelled"]


async def test_a_waiting_job_can_be_cancelled(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await end(store, instance, job, OutcomeKind.BLOCKED, blocked_on="task:x", started_at=None)
    assert await store.jobs.cancel([job.id]) == [CancelAnswer.CANCELLED]
    assert await claim(store, instance, wants=["task:x"]) == []


async def test_all_live_jobs_of_a_task_and_key_are_cancelled_together(store: Store) -> None:
    instance = await worker(store)
    running = await claimed_one(store, instance, key="k")
    done = await claimed_one(store, instance, key="k")
    await end(store, instance, done, OutcomeKind.SUCCEEDED)
    await add(store, new_job(key="k"), new_job(key="k", delay=HOUR))
    others = await add(store, new_job(key="other"), new_job(task="other", key="k"), new_job())
    assert sorted(await store.jobs.cancel_keys("greet", ["k"])) == ["cancelled", "cancelled", "requested"]
    assert await store.jobs.cancel_keys("greet", ["k"]) == ["requested"]
    assert await store.jobs.cancel_keys("greet", ["nobody"]) == []
    assert sorted(ids(await claim(store, instance))) == sorted(others)
    assert (await get_job(store, running.id)).cancel_requested


async def test_jobs_of_many_keys_are_cancelled_in_one_step(store: Store) -> None:
    instance = await worker(store)
    await claimed_one(store, instance, key="key 0")
    await add(store, *(new_job(key=f"key {number}", unique=Unique.LIVE) for number in range(1, 300)))
    kept = await add(store, new_job(key="key 300"), new_job(task="other", key="key 1"), new_job())
    keys = ["nobody", *(f"key {number}" for number in range(300)), "key 7"]
    answers = await store.jobs.cancel_keys("greet", keys)
    assert (answers.count(CancelAnswer.CANCELLED), answers.count(CancelAnswer.REQUESTED)) == (299, 1)
    assert len(answers) == 300
    assert await store.jobs.cancel_keys("greet", keys) == [CancelAnswer.REQUESTED]
    assert await store.jobs.cancel_keys("greet", []) == []
    assert sorted(ids(await claim(store, instance))) == sorted(kept)


async def test_run_now_makes_pending_jobs_due_and_passes_over_others(store: Store) -> None:
    instance = await worker(store)
    running = await claimed_one(store, instance)
    future, due = await add(store, new_job(delay=HOUR), new_job())
    assert await store.jobs.run_now([future, due, running.id, new_job_id()]) == 2
    assert await store.jobs.run_now([]) == 0
    assert sorted(ids(await claim(store, instance))) == sorted([future, due])
    assert (await get_job(store, running.id)).run_at.timestamp() * 1_000_000 <= running.token


async def test_run_now_does_not_move_a_due_job_back_in_line(store: Store) -> None:
    instance = await worker(store)
    first, second = await add(store, new_job(), new_job())
    await store.jobs.run_now([first])
    assert ids(await claim(store, instance)) == [first, second]


async def test_run_now_does_not_end_a_wait_for_something_else(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance)
    await end(store, instance, job, OutcomeKind.BLOCKED, blocked_on="task:x", started_at=None)
    await store.jobs.run_now([job.id])
    assert await claim(store, instance) == []
    record = await get_job(store, job.id)
    assert record.view(record.run_at) is PendingView.WAITING
