"""A search finds what a filter in plain Python finds among the same jobs; pages have no gap and no repeat; counts agree."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from itertools import combinations
from typing import Any

import msgspec
import pytest

from drumbeat.core.job import Failure, Job, JobState, NewJob, OutcomeKind, PendingView
from drumbeat.core.job_query import JobCounts, JobFilter, JobPage
from drumbeat.durations import from_us
from drumbeat.ids import JobId, created_us, new_job_id, new_job_ids
from drumbeat.store import job_search
from drumbeat.store.job_reads import find_jobs
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
    outcome,
    report,
    worker,
)
from tests.contract.scheduling import fire, fired_job, new_schedule

LATE = Failure("TimeoutError", "too late", "Traceback: late")
EVERYTHING = JobFilter(limit=10_000)
Kinds = dict[str, list[Any]]


async def populate(store: Store) -> None:
    """Jobs in every place and of every word, with much in common across them."""
    one, two = await worker(store), await worker(store, queues=("default", "low"))
    for number, instance in enumerate((one, two, one)):
        common = {"task": ("greet", "charge")[number % 2], "key": ("a", "b", None)[number]}
        for kind in (OutcomeKind.SUCCEEDED, OutcomeKind.CANCELLED, OutcomeKind.DEAD):
            job = await claimed_one(store, instance, **common)
            await end(store, instance, job, kind)
        discarded = await dead_letter(store, instance, queue="low", **common)
        await store.jobs.discard([discarded.id])
        late = await claimed_one(store, instance, **common)
        await end(store, instance, late, OutcomeKind.DEAD, error=LATE)
        healed = await claimed_one(store, instance, **common)
        await end(store, instance, healed, OutcomeKind.RETRY, delay=0)
        [again] = await claim(store, instance)
        await end(store, instance, again, OutcomeKind.SUCCEEDED)
        retrying = await claimed_one(store, instance, queue="low", **common)
        await end(store, instance, retrying, OutcomeKind.RETRY, delay=HOUR)
        crashed = await claimed_one(store, instance, **common)
        await end(store, instance, crashed, OutcomeKind.CRASHED)
        [crashed] = await claim(store, instance)
        await end(store, instance, crashed, OutcomeKind.SNOOZED, delay=HOUR, error=LATE if number else None)
        blocked = await claimed_one(store, instance, **common)
        await end(store, instance, blocked, OutcomeKind.BLOCKED, blocked_on="task:x", started_at=None)
        replayed = await dead_letter(store, instance, **common)
        await store.jobs.replay([replayed.id])
        [replayed] = await claim(store, instance)
        await end(store, instance, replayed, OutcomeKind.RELEASED)
        await store.jobs.cancel([replayed.id])
    for name in ("nightly", "hourly"):
        id = await fired_job(store, new_schedule(name, task="charge"))
        fired = next(job for job in await claim(store, two) if job.id == id)
        await end(store, two, fired, OutcomeKind.SUCCEEDED if name == "hourly" else OutcomeKind.DEAD)
        await fire(store, name, 2)
    await claim(store, one)
    for number in range(3):
        common = {"task": ("greet", "charge")[number % 2], "key": ("a", "b", None)[number]}
        await claimed_one(store, two, queue="low", **common)
        await add(store, new_job(**common), new_job(delay=HOUR, queue="low", **common), new_job(priority=2, **common))  # type: ignore[arg-type]


async def all_jobs(store: Store) -> tuple[list[Job], datetime]:
    return await find_jobs(store, EVERYTHING), from_us(await store.inspect.now())


def is_wanted(job: Job, filter: JobFilter, now: datetime, letters: set[JobId]) -> bool:
    """The filter in plain words."""
    error = "" if job.error is None else f"{job.error.type}\n{job.error.message}"
    return (
        filter.state in (None, job.state)
        and (filter.view is None or job.view(now) == filter.view)
        and filter.task in (None, job.task)
        and filter.queue in (None, job.queue)
        and filter.key in (None, job.key)
        and (filter.error is None or filter.error in error)
        and filter.schedule in (None, job.schedule)
        and filter.instance in (None, job.instance)
        and (filter.since is None or created_us(job.id) >= filter.since)
        and (filter.until is None or created_us(job.id) < filter.until)
        and (filter.id is None or job.id.startswith(filter.id))
        and (filter.id_end is None or job.id.endswith(filter.id_end))
        and (not filter.dead_letters or job.id in letters)
        and (filter.before is None or job.id < filter.before)
    )


def values(jobs: Sequence[Job]) -> Kinds:
    """What to look for, field by field: something that is there, and something that is not."""
    middle, early = jobs[len(jobs) // 2].id, jobs[-3].id
    instances = sorted({job.instance for job in jobs if job.instance is not None})
    running = next(job.id for job in jobs if job.state is JobState.RUNNING)
    return {
        "state": list(JobState),
        "view": list(PendingView),
        "task": ["greet", "charge", "nobody"],
        "queue": ["default", "low", "nowhere"],
        "key": ["a", "b", "c"],
        "error": ["boom", "TimeoutErr", "Traceback"],
        "schedule": ["nightly", "hourly", "never"],
        "instance": [*instances, "0123456789abcdef"],
        "since": [created_us(middle), created_us(early) + 1, created_us(jobs[0].id) + 1_000],
        "until": [created_us(middle), created_us(early) + 1, created_us(jobs[-1].id)],
        "id": [middle, middle[:13], early[:23], early[:8], "ffff"],
        "id_end": [middle[-10:], early[-4:], running[-6:], middle, "0000"],
        "dead_letters": [True],
        "before": [middle],
    }


def filters(kinds: Kinds) -> list[JobFilter]:
    """Every field alone, and all pairs."""
    alone = [{name: value} for name, some in kinds.items() for value in some]
    pairs = [
        {first: one, second: other}
        for first, second in combinations(kinds, 2)
        for one in kinds[first]
        for other in kinds[second]
    ]
    return [JobFilter(limit=10_000, **each) for each in alone + pairs]


async def letters_of(store: Store) -> set[JobId]:
    return set(ids(await find_jobs(store, JobFilter(dead_letters=True, limit=10_000))))


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks that end early among few jobs."""
    for name, number in {"MAX_SMALL_SET": 4, "FIRST_SCAN": 3, "MAX_SCANNED": 5}.items():
        monkeypatch.setattr(job_search, name, number)


async def check_all(store: Store) -> None:
    await populate(store)
    jobs, now = await all_jobs(store)
    assert len({job.view(now) for job in jobs}) == 8, "every word is there"
    letters = await letters_of(store)
    assert 0 < len(letters) < len([job for job in jobs if job.state is JobState.DEAD])
    found = 0
    for filter in filters(values(jobs)):
        wanted = [job for job in jobs if is_wanted(job, filter, now, letters)]
        assert await find_jobs(store, filter) == wanted, filter
        found += bool(wanted)
    assert found > 200, "enough of them find something"


async def test_every_field_alone_and_in_pairs_finds_what_plain_python_finds(store: Store) -> None:
    await check_all(store)


@pytest.mark.usefixtures("short")
async def test_searches_that_end_early_find_the_same_when_they_go_on(store: Store) -> None:
    await check_all(store)


async def pages(store: Store, filter: JobFilter) -> list[JobPage]:
    found = [await store.inspect.find_page(filter)]
    while (following := found[-1].next) is not None:
        assert filter.before is None or following < filter.before, "every page goes further down"
        filter = msgspec.structs.replace(filter, before=following)
        found.append(await store.inspect.find_page(filter))
    return found


@pytest.mark.usefixtures("short")
async def test_a_page_is_never_longer_than_it_should_be_and_the_last_says_so(store: Store) -> None:
    await populate(store)
    jobs, now = await all_jobs(store)
    for wanted in (
        {},
        {"task": "charge"},
        {"queue": "low"},
        {"view": PendingView.READY},
        {"error": "boom"},
        {"dead_letters": True},
    ):
        filter = JobFilter(limit=2, **wanted)
        found = await pages(store, filter)
        assert all(len(page.items) <= 2 for page in found)
        letters = await letters_of(store)
        assert [job for page in found for job in page.items] == [
            job for job in jobs if is_wanted(job, filter, now, letters)
        ]


@pytest.mark.usefixtures("short")
async def test_a_search_that_finds_nothing_ends_early_and_says_where_to_go_on(store: Store) -> None:
    await add(store, *(new_job() for _ in range(40)))
    first = await store.inspect.find_page(JobFilter(schedule="never", limit=5))
    assert first.items == [] and first.next is not None
    found = await pages(store, JobFilter(schedule="never", limit=5))
    assert 2 <= len(found) <= 40 and not any(page.items for page in found)


@pytest.mark.usefixtures("short")
async def test_pages_have_no_gap_and_no_repeat_while_jobs_end_come_and_go_between_them(store: Store) -> None:
    instance = await worker(store)
    made = await add(store, *(new_job(task=("greet", "charge")[number % 2]) for number in range(60)))
    wanted, seen, filter = made[::2], list[JobId](), JobFilter(task="greet", limit=4)
    kinds = [OutcomeKind.SUCCEEDED, OutcomeKind.DEAD, OutcomeKind.CANCELLED, OutcomeKind.RETRY]
    while True:
        page = await store.inspect.find_page(filter)
        seen += ids(page.items)
        if page.next is None:
            break
        filter = msgspec.structs.replace(filter, before=page.next)
        jobs = await claim(store, instance, limit=8)
        await report(store, instance, *(outcome(job, kinds[at % 4]) for at, job in enumerate(jobs[:6])))
        await add(store, new_job(task="greet"))
    assert seen == wanted[::-1]


async def test_ids_that_were_not_added_in_their_order_are_listed_in_their_order(store: Store) -> None:
    made = new_job_ids(40)
    mixed = [*made[20:30], *made[::2][:10], *made[30:], *made[1::2][:10]]
    assert sorted(mixed) == made
    for some in (mixed[:15], mixed[15:]):
        await add(store, *(new_job(id=id) for id in some))
    assert ids(await find_jobs(store, JobFilter(limit=100))) == made[::-1]
    found = await pages(store, JobFilter(limit=7))
    assert [job.id for page in found for job in page.items] == made[::-1]


def counted(jobs: Sequence[Job], now: datetime) -> JobCounts:
    return JobCounts(**Counter(str(job.view(now)) for job in jobs))  # type: ignore[arg-type]


async def test_counts_agree_with_the_jobs_that_a_filter_finds(store: Store) -> None:
    assert await store.inspect.count_jobs(JobFilter()) == JobCounts()
    await populate(store)
    jobs, now = await all_jobs(store)
    assert await store.inspect.count_jobs(JobFilter()) == counted(jobs, now)
    assert await store.inspect.count_jobs(JobFilter(before=jobs[3].id, limit=1)) == counted(jobs, now)
    letters = await letters_of(store)
    kinds = values(jobs)
    del kinds["before"]
    for filter in filters(kinds)[: len(jobs) * 4]:
        wanted = [job for job in jobs if is_wanted(job, filter, now, letters)]
        assert await store.inspect.count_jobs(filter) == counted(wanted, now), filter


async def test_a_count_that_ends_early_says_so(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await add(store, *(new_job(task=("greet", "charge")[number % 2]) for number in range(30)))
    monkeypatch.setattr(job_search, "MAX_COUNTED", 10)
    counts = await store.inspect.count_jobs(JobFilter(task="greet"))
    assert counts.capped and 1 <= counts.ready <= 10
    assert await store.inspect.count_jobs(JobFilter()) == JobCounts(ready=30), "without a filter all are counted"


async def test_a_span_that_cannot_be_finds_nothing(store: Store) -> None:
    await add(store, new_job())
    now = await store.inspect.now()
    for filter in (
        JobFilter(since=now + HOUR),
        JobFilter(until=0),
        JobFilter(since=now, until=now - HOUR),
        JobFilter(id="xyz!"),
        JobFilter(before=JobId("nonsense")),
        JobFilter(limit=0),
        JobFilter(view=PendingView.READY, state=JobState.RUNNING),
    ):
        assert await store.inspect.find_page(filter) == JobPage(items=[], next=None)
        assert await find_jobs(store, filter) == []


async def test_what_comes_while_a_search_is_under_way_is_newer_than_its_next_page(store: Store) -> None:
    made = await add(store, *(new_job() for _ in range(5)))
    first = await store.inspect.find_page(JobFilter(limit=2))
    late: NewJob = new_job(id=new_job_id())
    await add(store, late)
    second = await store.inspect.find_page(JobFilter(limit=5, before=first.next))
    assert ids([*first.items, *second.items]) == made[::-1]
