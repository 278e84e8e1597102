"""Dead letters: replay, discard, and waits that nobody ended."""

import msgspec
import pytest

from drumbeat.core.follow_up import DeadLetterPayload
from drumbeat.core.job import Failure, JobState, OutcomeKind, ReplayResult, Unique
from drumbeat.core.job_query import JobFilter
from drumbeat.ids import new_job_id
from drumbeat.store.job_reads import find_jobs, get_job
from drumbeat.store.protocol import Store
from tests.contract.making import (
    BOOM,
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


async def test_a_replay_is_a_new_life_under_the_same_id(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance, key="k", crash_limit=5, on_dead="mourn", group="t")
    await end(store, instance, job, OutcomeKind.CRASHED)
    [job] = await claim(store, instance)
    await end(store, instance, job, OutcomeKind.DEAD)
    before = await store.inspect.now()
    assert await store.jobs.replay([job.id]) == [ReplayResult(job.id, True)]
    found = await get_job(store, job.id)
    assert (found.state, found.replays, found.failures, found.crashes) == (JobState.PENDING, 1, 0, 0)
    assert (found.error, found.instance, found.finished_at, found.cancel_requested) == (None, None, None, False)
    assert before <= found.run_at.timestamp() * 1_000_000 <= await store.inspect.now()
    [again] = await claim(store, instance)
    assert (again.id, again.args, again.key, again.on_dead, again.replays) == (job.id, job.args, "k", "mourn", 1)
    assert again.token > job.token
    assert [attempt.outcome for attempt in (await store.inspect.get_attempts([job.id]))[job.id]] == ["crashed", "dead"]


async def test_only_dead_letters_are_replayed(store: Store) -> None:
    instance = await worker(store)
    done = await claimed_one(store, instance)
    await end(store, instance, done, OutcomeKind.SUCCEEDED)
    discarded = await dead_letter(store, instance)
    await store.jobs.discard([discarded.id])
    [pending] = await add(store, new_job())
    dead = await dead_letter(store, instance)
    wanted = [done.id, discarded.id, pending, new_job_id(), dead.id, dead.id]
    answers = await store.jobs.replay(wanted)
    assert [answer.id for answer in answers] == wanted
    assert [answer.replayed for answer in answers] == [False, False, False, False, True, False]
    assert [answer.conflict for answer in answers] == [None] * 6
    assert await store.jobs.replay([]) == []


@pytest.mark.parametrize("unique", [Unique.LIVE, Unique.PENDING])
async def test_a_replay_onto_a_held_key_is_refused_and_names_the_holder(store: Store, unique: Unique) -> None:
    instance = await worker(store)
    dead = await dead_letter(store, instance, key="k", unique=unique)
    free = await dead_letter(store, instance, key="free", unique=unique)
    [holder] = await add(store, new_job(key="k", unique=unique))
    assert await store.jobs.replay([dead.id, free.id]) == [
        ReplayResult(dead.id, False, holder),
        ReplayResult(free.id, True),
    ]
    assert (await get_job(store, dead.id)).state == JobState.DEAD


async def test_a_running_holder_refuses_a_replay_that_is_unique_as_live(store: Store) -> None:
    instance = await worker(store)
    dead = await dead_letter(store, instance, key="k", unique=Unique.LIVE)
    holder = await claimed_one(store, instance, key="k", unique=Unique.LIVE)
    assert await store.jobs.replay([dead.id]) == [ReplayResult(dead.id, False, holder.id)]


async def test_two_dead_letters_of_one_key_do_not_both_come_back(store: Store) -> None:
    instance = await worker(store)
    first = await dead_letter(store, instance, key="k", unique=Unique.LIVE)
    second = await dead_letter(store, instance, key="k", unique=Unique.LIVE)
    answers = await store.jobs.replay([first.id, second.id])
    assert answers == [ReplayResult(first.id, True), ReplayResult(second.id, False, first.id)]


async def test_discarded_letters_are_history_as_dead(store: Store) -> None:
    instance = await worker(store)
    job = await dead_letter(store, instance)
    seen = await get_job(store, job.id)
    assert await store.jobs.discard([job.id, new_job_id()]) == 1
    assert await store.jobs.discard([job.id]) == 0
    assert await store.jobs.discard([]) == 0
    assert await get_job(store, job.id) == seen
    assert ids(await find_jobs(store, JobFilter(state=JobState.DEAD))) == [job.id]
    assert [attempt.outcome for attempt in (await store.inspect.get_attempts([job.id]))[job.id]] == ["dead"]


async def blocked_job(store: Store, instance: str, blocked_on: str, **options: object) -> str:
    job = await claimed_one(store, instance, **options)  # type: ignore[arg-type]
    await end(store, instance, job, OutcomeKind.BLOCKED, blocked_on=blocked_on, started_at=None)  # type: ignore[arg-type]
    return job.id


async def test_letters_are_listed_apart_from_the_dead_that_were_discarded(store: Store) -> None:
    instance = await worker(store)
    await add(store, new_job())
    discarded = await dead_letter(store, instance)
    letter = await dead_letter(store, instance)
    await store.jobs.discard([discarded.id])
    assert ids(await find_jobs(store, JobFilter(state=JobState.DEAD))) == [letter.id, discarded.id]
    for filter in (JobFilter(dead_letters=True), JobFilter(dead_letters=True, state=JobState.DEAD)):
        assert ids(await find_jobs(store, filter)) == [letter.id]


async def test_waits_that_last_too_long_are_dead_letters_with_their_follow_up(store: Store) -> None:
    instance = await worker(store)
    old = await blocked_job(store, instance, "version:greet@s9", on_dead="mourn", priority=3, group="t")
    other = await blocked_job(store, instance, "task:strange")
    moment = await store.inspect.now() + 1
    assert await store.jobs.expire_blocked("version:", moment - HOUR, 10) == 0
    assert await store.jobs.expire_blocked("version:", moment, 10) == 1
    assert await store.jobs.expire_blocked("version:", moment, 10) == 0
    found = await get_job(store, old)  # type: ignore[arg-type]
    assert (found.state, found.failures, found.crashes) == (JobState.DEAD, 0, 0)
    assert found.error == Failure("WaitExpired", "no worker registered version 's9' of task 'greet' within 0 h")
    assert (await get_job(store, other)).state == JobState.PENDING  # type: ignore[arg-type]
    [mourning] = await claim(store, instance)
    assert (mourning.task, mourning.queue, mourning.priority) == ("mourn", "default", 3)
    obituary = msgspec.json.decode(mourning.args, type=DeadLetterPayload)
    assert (obituary.job.id, obituary.error) == (old, found.error)


async def test_at_most_the_limit_of_waits_expires_at_once(store: Store) -> None:
    instance = await worker(store)
    for number in range(5):
        await blocked_job(store, instance, f"version:greet@{number % 2}")
    moment = await store.inspect.now() + 1
    assert [await store.jobs.expire_blocked("version:", moment, 3) for _ in range(3)] == [3, 2, 0]


async def test_an_expired_wait_can_be_replayed(store: Store) -> None:
    instance = await worker(store)
    id = await blocked_job(store, instance, "version:greet@s9")
    await store.jobs.expire_blocked("version:", await store.inspect.now() + 1, 10)
    await store.jobs.replay([id])  # type: ignore[list-item]
    [again] = await claim(store, instance)
    assert (again.id, again.replays, again.blocked_since) == (id, 1, None)
    assert (await store.inspect.get_attempts([id]))[id] == []  # type: ignore[index, list-item]


async def test_the_error_of_a_dead_letter_is_kept_whole(store: Store) -> None:
    instance = await worker(store)
    job = await dead_letter(store, instance)
    assert (await get_job(store, job.id)).error == BOOM
