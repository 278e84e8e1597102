"""What is particular to searches in Redis: lists of ids beside the jobs, and looks that are not of one moment."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from drumbeat.core.job import Failure, JobState, OutcomeKind
from drumbeat.core.job_query import JobFilter
from drumbeat.ids import new_job_ids, pack_id
from drumbeat.store.redis import RedisStore
from drumbeat.store.redis.keys import bucket
from tests.contract.making import HOUR, add, claim, claimed_one, dead_letter, end, ids, new_job, outcome, report, worker

Hook = Callable[[], Awaitable[Any]]


async def all_but(redis: RedisStore, number: int, left: int) -> list[str]:
    """So many jobs of one bucket, of which all have succeeded but the first few, which are dead letters: their ids."""
    instance = await worker(redis)
    added = await add(redis, *(new_job(id=id) for id in new_job_ids(number)))
    while jobs := await claim(redis, instance, limit=1_000):
        kinds = [OutcomeKind.DEAD if job.id in added[:left] else OutcomeKind.SUCCEEDED for job in jobs]
        await report(redis, instance, *(outcome(job, kind) for job, kind in zip(jobs, kinds, strict=True)))
    return [*added]


async def prune(redis: RedisStore, limit: int = 1_000) -> None:
    before = await redis.inspect.now() + HOUR
    while await redis.jobs.prune(before, limit):
        pass


def after(monkeypatch: pytest.MonkeyPatch, redis: RedisStore, name: str, hook: Hook) -> None:
    """Do something once, right after the script or before the command of this name."""
    done: list[bool] = []
    run, command = redis._pool.run, redis._pool.command

    async def once() -> None:
        if not done:
            done.append(True)
            await hook()

    async def running(script: str, *args: Any, **options: Any) -> Any:
        answer = await run(script, *args, **options)
        if script == name:
            await once()
        return answer

    async def commanding(*args: Any, **options: Any) -> Any:
        if args[0] == name:
            await once()
        return await command(*args, **options)

    monkeypatch.setattr(redis._pool, "run", running)
    monkeypatch.setattr(redis._pool, "command", commanding)


@pytest.mark.parametrize("left", [1, 40])
async def test_few_that_are_left_of_a_bucket_keep_no_ids_of_the_others(redis: RedisStore, left: int) -> None:
    added = await all_but(redis, 3_000, left)
    await prune(redis)
    name = bucket(pack_id(added[0]))  # type: ignore[arg-type]
    assert await redis._pool.command("LLEN", redis._pool.keys.prefix + "ids:" + name) == left
    assert await redis._pool.command("EXISTS", redis._pool.keys.runs(name)) == 0
    page = await redis.inspect.find_page(JobFilter(limit=100))
    assert (ids(page.items), page.next) == (added[:left][::-1], None)


async def test_a_page_meets_all_of_a_bucket_that_is_listed_anew_meanwhile(
    redis: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = await all_but(redis, 3_000, 20)
    after(monkeypatch, redis, "HGET", lambda: prune(redis))
    page = await redis.inspect.find_page(JobFilter(limit=100))
    assert (ids(page.items), page.next) == (added[:20][::-1], None)


async def test_a_letter_that_is_discarded_between_two_looks_is_met(
    redis: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    letter = await dead_letter(redis, await worker(redis))

    async def one_by_one(commands: list[Any], **options: Any) -> list[Any]:
        answers = []
        for each in commands:
            answers.append(await redis._pool.command(*each, **options))
            await redis.jobs.discard([letter.id])
        return answers

    monkeypatch.setattr(redis._pool, "pipeline", one_by_one)
    assert ids((await redis.inspect.find_page(JobFilter(state=JobState.DEAD))).items) == [letter.id]


async def test_a_job_that_dies_between_two_looks_is_told_once(
    redis: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = await worker(redis)
    job = await claimed_one(redis, instance)
    await end(redis, instance, job, OutcomeKind.RETRY, error=Failure("Boom", "bang"))
    [job] = await claim(redis, instance)
    filter = JobFilter(error="Boom")

    async def die() -> None:
        await end(redis, instance, job, OutcomeKind.DEAD, error=Failure("Boom", "bang"))

    after(monkeypatch, redis, "list_live_ids", die)
    assert ids((await redis.inspect.find_page(filter)).items) == [job.id]


async def test_a_job_that_dies_between_two_looks_is_counted_once(
    redis: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = await worker(redis)
    job = await claimed_one(redis, instance)
    await end(redis, instance, job, OutcomeKind.RETRY, error=Failure("Boom", "bang"))
    [job] = await claim(redis, instance)

    async def die() -> None:
        await end(redis, instance, job, OutcomeKind.DEAD, error=Failure("Boom", "bang"))

    after(monkeypatch, redis, "list_live_ids", die)
    counts = await redis.inspect.count_jobs(JobFilter(error="Boom"))
    assert (counts.dead, counts.running) == (1, 0)
