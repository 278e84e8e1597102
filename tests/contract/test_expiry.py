"""Jobs that must have started by a time: how it is stored, and how they end if they have not."""

from datetime import datetime
from itertools import product
from typing import Any, NamedTuple, cast

import pytest

from drumbeat.core.claim import WriteStatus
from drumbeat.core.job import CancelAnswer, EndedJob, Job, JobState, OutcomeKind, Unique
from drumbeat.core.job_query import JobFilter
from drumbeat.core.transitions import has_expired
from drumbeat.durations import from_us, to_us
from drumbeat.store.job_reads import find_jobs, get_job
from drumbeat.store.protocol import Store
from tests.contract.making import HOUR, add, claim, claimed_one, end, ids, new_job, outcome, report, wanting, worker
from tests.contract.rules import load
from tests.contract.scheduling import MINUTE, after, fire, got, moment, new_schedule, put

LONG_AGO, FAR = 1_000_000, 4_000_000_000_000_000


def expiry(job: Job) -> int | None:
    return None if job.expires_at is None else to_us(job.expires_at)


@pytest.mark.parametrize("count", [1, 20, 600])
async def test_a_length_counts_from_when_it_is_due_and_a_time_is_kept(store: Store, count: int) -> None:
    """However many are stored at once: engines have a statement for one, for many alike, and for bulk."""
    given: list[dict[str, Any]] = [{"expires": HOUR}, {"expires": HOUR, "delay": MINUTE}, {"expires_at": FAR}, {}]
    for options in given:
        jobs = [new_job(**options, key=key) for key in (None, "k") for _ in range(count)]
        await store.jobs.add(jobs)
        for job in (await load(store, ids(jobs))).values():
            due = to_us(job.due_at)
            wanted = due + options["expires"] if "expires" in options else options.get("expires_at")
            assert (expiry(job), due - to_us(job.created_at)) == (wanted, options.get("delay", 0))
    mixed = [new_job(**given[number % 4]) for number in range(count)]
    await store.jobs.add(mixed)
    found = await load(store, ids(mixed))
    assert [found[job.id].expires_at is None for job in mixed] == [number % 4 == 3 for number in range(count)]


@pytest.mark.parametrize("count", [1, 20, 600])
async def test_a_job_keeps_its_expiry_beside_its_parent_and_its_trace(store: Store, count: int) -> None:
    parent = new_job().id
    for given in product((None, HOUR), (None, parent), (None, "00-trace")):
        options: dict[str, Any] = dict(zip(("expires", "parent", "trace"), given, strict=True))
        jobs = [new_job(**options) for _ in range(count)]
        await store.jobs.add(jobs)
        found = [*(await load(store, ids(jobs))).values()]
        kept = {
            (expiry(job) and to_us(job.expires_at or job.due_at) - to_us(job.due_at), job.parent, job.trace)
            for job in found
        }
        assert (len(found), kept) == (count, {given})


async def test_a_time_at_the_beginning_of_1970_is_a_time(store: Store) -> None:
    await store.jobs.add([job := new_job(expires_at=0)])
    assert expiry((await load(store, [job.id]))[job.id]) == 0


async def test_a_claim_says_when_its_job_expires_and_ends_it_as_expired(store: Store) -> None:
    instance = await worker(store)
    options: dict[str, Any] = {"expires": 1, "key": "k", "unique": Unique.LIVE, "on_dead": "mourn", "run_at": LONG_AGO}
    job = await claimed_one(store, instance, **options)
    assert job.expires_at == LONG_AGO + 1
    told: dict[str, Any] = {"started_at": None, "finished_at": None}
    assert await end(store, instance, job, OutcomeKind.EXPIRED, **told) is WriteStatus.APPLIED
    assert await end(store, instance, job, OutcomeKind.EXPIRED, **told) is WriteStatus.DUPLICATE
    found = await get_job(store, job.id)
    assert (found.state, found.started_at, found.failures, found.attempts) == (JobState.EXPIRED, None, 0, 0)
    assert found.finished_at is not None and expiry(found) == LONG_AGO + 1
    assert (await store.inspect.get_attempts([job.id]))[job.id] == []
    assert await store.jobs.get_results([job.id]) == [EndedJob(id=job.id, task="greet", state=JobState.EXPIRED)]
    assert await store.jobs.cancel([job.id]) == [CancelAnswer.EXPIRED]
    assert (await get_job(store, job.id)).state is JobState.EXPIRED
    # Its key is free, and nothing follows.
    [again] = await store.jobs.add([new_job(key="k", unique=Unique.LIVE)])
    assert again.created
    assert ids(await claim(store, instance)) == [again.id]


class SweepCase(NamedTuple):
    expires_at: int | None
    failures: int
    crashes: int
    replays: int
    place: str


SWEEP_CASES = [
    SweepCase(*values)
    for values in product((None, LONG_AGO, FAR), (0, 1), (0, 1), (0, 1), ("pending", "future", "blocked", "running"))
]


async def test_the_sweep_ends_what_the_rule_says_and_nothing_that_runs(store: Store) -> None:
    instance = await worker(store)
    jobs = [new_job(expires_at=case.expires_at, crash_limit=9) for case in SWEEP_CASES]
    cases = dict(zip(await add(store, *jobs), SWEEP_CASES, strict=True))

    async def end_all(kind: OutcomeKind, wanted: set[Any], **facts: Any) -> None:
        """Claim everything; end these so, and give back the others."""
        request = wanting(limit=1_000, wants=["task:x"])
        claimed = (await store.jobs.report_and_claim(instance, [], request)).jobs
        back = {"started_at": None, "finished_at": None}
        outcomes = [
            outcome(job, kind, **facts) if job.id in wanted else outcome(job, OutcomeKind.RELEASED, **back)
            for job in claimed
        ]
        assert await report(store, instance, *outcomes) == [WriteStatus.APPLIED] * len(claimed)

    await end_all(OutcomeKind.DEAD, {id for id, case in cases.items() if case.replays})
    await store.jobs.replay([id for id, case in cases.items() if case.replays])
    await end_all(OutcomeKind.RETRY, {id for id, case in cases.items() if case.failures})
    await end_all(OutcomeKind.CRASHED, {id for id, case in cases.items() if case.crashes})
    await end_all(OutcomeKind.SNOOZED, {id for id, case in cases.items() if case.place == "future"}, delay=HOUR)
    unstarted = {"started_at": None, "finished_at": None, "blocked_on": "task:x"}
    await end_all(OutcomeKind.BLOCKED, {id for id, case in cases.items() if case.place == "blocked"}, **unstarted)
    ready = {id for id, case in cases.items() if case.place == "pending"}
    held = [job for job in await claim(store, instance, limit=1_000) if job.id in ready]
    back = [outcome(job, OutcomeKind.RELEASED, started_at=None, finished_at=None) for job in held]
    assert await report(store, instance, *back) == [WriteStatus.APPLIED] * len(ready)
    before, now = await load(store, list(cases)), await store.inspect.now()
    for id, case in cases.items():
        record = before[id]
        assert (record.failures, record.crashes, record.replays) == (case.failures, case.crashes, case.replays)
    expected = {id for id, case in cases.items() if case.place != "running" and has_expired(cast("Any", case), now)}
    assert len(expected) == 3
    assert [await store.jobs.expire(limit) for limit in (2, 2, 2)] == [2, 1, 0]
    after = await load(store, list(cases))
    assert {id for id, job in after.items() if job.state is JobState.EXPIRED} == expected
    running = {id for id, job in after.items() if job.state is JobState.RUNNING}
    assert running == {id for id, case in cases.items() if case.place == "running"}
    # Counted, found by its state, and no longer claimed.
    counts = await store.inspect.count_jobs(JobFilter())
    [task] = [each for each in await store.inspect.list_tasks() if each.name == "greet"]
    assert (counts.expired, counts.total, task.expired, task.succeeded) == (3, len(cases), 3, 0)
    assert set(ids(await find_jobs(store, JobFilter(state=JobState.EXPIRED)))) == expected
    assert not expected & set(ids(await claim(store, instance, limit=1_000)))


async def test_a_running_job_that_comes_back_still_expires(store: Store) -> None:
    instance = await worker(store)
    job = await claimed_one(store, instance, expires_at=LONG_AGO)
    assert await store.jobs.expire(10) == 0
    assert (await get_job(store, job.id)).state is JobState.RUNNING
    await end(store, instance, job, OutcomeKind.SNOOZED, delay=0)
    [again] = await claim(store, instance)
    assert has_expired(again, await store.inspect.now())


async def test_jobs_of_a_schedule_expire_after_their_fire_time_and_the_schedule_goes_on(store: Store) -> None:
    instance = await worker(store)
    await put(store, new_schedule(expires=MINUTE))
    [id] = (await fire(store, "nightly", moment(LONG_AGO, run_at=LONG_AGO + 5))).jobs
    assert expiry(await get_job(store, id)) == LONG_AGO + MINUTE
    [job] = await claim(store, instance)
    assert job.expires_at == LONG_AGO + MINUTE
    await end(store, instance, job, OutcomeKind.RELEASED, started_at=None, finished_at=None)
    await put(store, after(expires=MINUTE))
    [of_series] = (await fire(store, "sweep", LONG_AGO)).jobs
    assert (await got(store, "sweep")).next_at is None
    assert await store.jobs.expire(10) == 2
    found = await got(store, "sweep")
    assert (await get_job(store, of_series)).state is JobState.EXPIRED
    assert found.current is None and found.next_at is not None
    assert (await got(store, "nightly")).current is None


async def test_history_forgets_expired_jobs_like_others(store: Store) -> None:
    [id] = await add(store, new_job(expires_at=LONG_AGO))
    assert await store.jobs.expire(10) == 1
    finished_at = (await get_job(store, id)).finished_at
    assert isinstance(finished_at, datetime) and finished_at > from_us(LONG_AGO)
    assert await store.jobs.prune(await store.inspect.now() + HOUR, 10) == 1
    assert (await store.inspect.count_jobs(JobFilter())).total == 0
    assert await report(store, await worker(store)) == []
