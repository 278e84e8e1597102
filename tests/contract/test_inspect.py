"""What people look at."""

import pytest

from drumbeat.core.job import JobState, OutcomeKind
from drumbeat.core.job_query import JobFilter, QueueStats, TaskStats
from drumbeat.errors import JobNotFound
from drumbeat.ids import JobId, new_job_id
from drumbeat.store.job_reads import find_jobs, get_job
from drumbeat.store.protocol import Store
from tests.contract.making import (
    HOUR,
    add,
    claim,
    claimed_one,
    dead_letter,
    end,
    ids,
    new_job,
    worker,
)


async def one_of_each(store: Store) -> dict[str, JobId]:
    """A job in every place that a job can be in."""
    instance = await worker(store)
    found: dict[str, JobId] = {}
    for name, kind in {"done": OutcomeKind.SUCCEEDED, "cancelled": OutcomeKind.CANCELLED}.items():
        job = await claimed_one(store, instance, task=name, key=f"key:{name}")
        await end(store, instance, job, kind)
        found[name] = job.id
    discarded = await dead_letter(store, instance, task="discarded", key="key:discarded")
    await store.jobs.discard([discarded.id])
    found["discarded"] = discarded.id
    found["dead"] = (await dead_letter(store, instance, task="dead", key="key:dead")).id
    retrying = await claimed_one(store, instance, task="retrying", key="key:retrying")
    await end(store, instance, retrying, OutcomeKind.RETRY, delay=HOUR)
    found["retrying"] = retrying.id
    found["running"] = (await claimed_one(store, instance, task="running", key="key:running")).id
    [found["pending"]] = await add(store, new_job(task="pending", queue="other", key="key:pending", delay=HOUR))
    return found


async def listed(store: Store, places: dict[str, JobId], **filter: object) -> list[str]:
    names = {id: name for name, id in places.items()}
    return [names[job.id] for job in await find_jobs(store, JobFilter(**filter))]  # type: ignore[arg-type]


async def test_jobs_are_listed_from_everywhere_newest_first(store: Store) -> None:
    places = await one_of_each(store)
    assert await listed(store, places) == sorted(places, key=lambda name: places[name], reverse=True)
    for name, id in places.items():
        [job] = await find_jobs(store, JobFilter(task=name))
        assert job == await get_job(store, id)


async def test_many_jobs_are_looked_up_at_once_and_those_nobody_knows_are_left_out(store: Store) -> None:
    places = await one_of_each(store)
    found = await store.inspect.get_jobs([*places.values(), new_job_id(), JobId("nonsense")])
    assert found == {id: await get_job(store, id) for id in places.values()}
    assert await store.inspect.get_jobs([]) == {}


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (JobState.PENDING, ["pending", "retrying"]),
        (JobState.RUNNING, ["running"]),
        (JobState.SUCCEEDED, ["done"]),
        (JobState.CANCELLED, ["cancelled"]),
        (JobState.DEAD, ["dead", "discarded"]),
    ],
)
async def test_jobs_are_listed_by_state(store: Store, state: JobState, expected: list[str]) -> None:
    places = await one_of_each(store)
    assert await listed(store, places, state=state) == expected
    for name in places:
        wanted = [name] if name in expected else []
        assert await listed(store, places, state=state, task=name) == wanted
        assert await listed(store, places, state=state, key=f"key:{name}") == wanted
        assert await listed(store, places, state=state, task=name, key=f"key:{name}") == wanted


async def test_jobs_are_listed_by_task_queue_key_and_error(store: Store) -> None:
    places = await one_of_each(store)
    assert await listed(store, places, queue="other") == ["pending"]
    assert await listed(store, places, queue="nowhere") == []
    for name in places:
        assert await listed(store, places, task=name) == [name]
        assert await listed(store, places, key=f"key:{name}") == [name]
        assert await listed(store, places, task=name, key=f"key:{name}") == [name]
        assert await listed(store, places, task=name, key="key:nobody") == []
    failed = ["retrying", "dead", "discarded"]
    assert await listed(store, places, error="oom") == failed
    assert await listed(store, places, error="ValueErr") == failed
    assert await listed(store, places, error="Traceback") == [], "a part of the type or the message"
    assert await listed(store, places, error="%") == []


async def test_pages_follow_one_another_without_gap_or_repetition(store: Store) -> None:
    places = await one_of_each(store)
    seen: list[str] = []
    before = None
    while page := await find_jobs(store, JobFilter(before=before, limit=3)):
        assert len(page) <= 3
        seen += ids(page)
        before = page[-1].id
    assert seen == sorted(places.values(), reverse=True)
    for name, id in places.items():
        assert await listed(store, places, task=name, before=id) == []
        assert await listed(store, places, key=f"key:{name}", before=id) == []
        assert await listed(store, places, key=f"key:{name}", task=name, before=id) == []


async def test_an_id_that_never_was_is_not_found(store: Store) -> None:
    for id in (new_job_id(), JobId("nonsense")):
        with pytest.raises(JobNotFound) as caught:
            await get_job(store, id)
        assert caught.value.id == id
    unknown = new_job_id()
    assert await store.inspect.get_attempts([unknown]) == {unknown: []}


async def test_queues_tell_what_lies_in_them(store: Store) -> None:
    instance = await worker(store, queues=("watched", "a"))
    gone = await worker(store, queues=("abandoned",))
    await store.instances.deregister(gone, "bye")
    now = await store.inspect.now()
    blocked = await claimed_one(store, instance, queue="a")
    await end(store, instance, blocked, OutcomeKind.BLOCKED, blocked_on="task:x", started_at=None)
    await claimed_one(store, instance, queue="a")
    await add(
        store,
        new_job(queue="a", run_at=now - 5),
        new_job(queue="a", run_at=now - 9, priority=9),
        new_job(queue="a", delay=HOUR),
        new_job(queue="b", delay=HOUR),
    )
    await store.jobs.pause_queue("b", by="ada", reason="deploy")
    await store.jobs.pause_queue("empty", by="eve", reason="")
    a, b, empty, watched = await store.inspect.list_queues()
    assert a.oldest_due is not None and round(a.oldest_due.timestamp() * 1_000_000) == now - 9
    assert a == QueueStats(name="a", ready=2, scheduled=1, running=1, waiting=1, oldest_due=a.oldest_due)
    assert (b.name, b.ready, b.scheduled, b.oldest_due) == ("b", 0, 1, None)
    assert (b.paused, b.paused_by, b.paused_reason) == (True, "ada", "deploy")
    assert b.paused_at is not None and now <= b.paused_at.timestamp() * 1_000_000
    assert (empty.name, empty.paused, empty.paused_by) == ("empty", True, "eve")
    assert watched == QueueStats(name="watched", ready=0, scheduled=0, running=0, waiting=0, oldest_due=None)


async def test_the_first_who_paused_is_remembered(store: Store) -> None:
    await store.jobs.pause_queue("a", by="ada", reason="deploy")
    await store.jobs.pause_queue("a", by="eve", reason="later")
    [queue] = await store.inspect.list_queues()
    assert (queue.paused_by, queue.paused_reason) == ("ada", "deploy")


async def test_tasks_tell_where_their_jobs_are(store: Store) -> None:
    await worker(store, tasks={"idle": "s"})
    gone = await worker(store, tasks={"forgotten": "s"})
    await store.instances.deregister(gone, "bye")
    await one_of_each(store)
    stats = {each.name: each for each in await store.inspect.list_tasks()}
    nothing = {"pending": 0, "running": 0, "succeeded": 0, "dead": 0, "cancelled": 0}
    expected = {
        "idle": nothing,
        "greet": nothing,
        "pending": nothing | {"pending": 1},
        "retrying": nothing | {"pending": 1},
        "running": nothing | {"running": 1},
        "done": nothing | {"succeeded": 1},
        "cancelled": nothing | {"cancelled": 1},
        "dead": nothing | {"dead": 1},
        "discarded": nothing | {"dead": 1},
    }
    assert stats == {name: TaskStats(name=name, **counts) for name, counts in expected.items()}
    assert list(stats) == sorted(stats)


async def test_instances_are_listed_oldest_first(store: Store) -> None:
    living = [await worker(store) for _ in range(3)]
    gone = await worker(store)
    await store.instances.deregister(gone, "bye")
    assert [each.id for each in await store.inspect.list_instances()] == living
    assert [each.id for each in await store.inspect.list_instances(all=True)] == [*living, gone]


async def test_the_stores_now_goes_on(store: Store) -> None:
    first = await store.inspect.now()
    await claim(store, await worker(store))
    assert first <= await store.inspect.now()
