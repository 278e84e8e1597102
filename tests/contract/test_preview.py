"""Lists may be asked for the beginning of long texts only: 500 jobs with the largest arguments are 131 MB otherwise."""

import json

import msgspec
import pytest

from drumbeat.core.claim import ClaimedJob, ClaimRef
from drumbeat.core.job import Job, OutcomeKind
from drumbeat.core.job_query import JobFilter
from drumbeat.store.job_reads import find_jobs, get_job
from drumbeat.store.protocol import Store
from tests.contract.making import BOOM, HOUR, add, claimed_one, dead_letter, end, new_job, worker

LONG = ("args", "progress", "result")
LENGTHS = [0, 1, 9, 10, 11, 257]
TEXTS = [
    pytest.param("x" * 100_000, id="plain"),
    pytest.param('"' * 3_000, id="quotes"),
    pytest.param("\\" * 3_001, id="backslashes"),
    pytest.param("é€😀" * 2_000, id="wide"),
    pytest.param("\n\t\x01\x1f" * 1_000, id="escaped"),
    pytest.param('a\\"\\u0001é' * 1_000, id="mixed"),
    pytest.param("", id="short"),
]


async def in_every_place(store: Store, text: str) -> None:
    """Jobs with long texts: pending, running, succeeded, dead, discarded, cancelled."""
    long = json.dumps({"text": text}, ensure_ascii=False)
    instance = await worker(store)
    options = {"args": long}

    async def noted(task: str) -> ClaimedJob:
        job = await claimed_one(store, instance, task=task, **options)
        await store.jobs.save_progress(instance, [(ClaimRef(job.id, job.token), json.dumps([text]))])
        return job

    await noted("running")
    await end(store, instance, await noted("succeeded"), OutcomeKind.SUCCEEDED, result=long)
    plain = await claimed_one(store, instance, task="plain", **options)
    await end(store, instance, plain, OutcomeKind.SUCCEEDED, result=long)
    await end(store, instance, await noted("cancelled"), OutcomeKind.CANCELLED)
    await dead_letter(store, instance, task="dead", **options)
    discarded = await dead_letter(store, instance, task="discarded", **options)
    await store.jobs.discard([discarded.id])
    await add(store, new_job(task="pending", delay=HOUR, **options))


def cut(job: Job, preview: int) -> Job:
    texts = {name: text[:preview] for name in LONG if (text := getattr(job, name)) is not None}
    return msgspec.structs.replace(job, **texts)


@pytest.mark.parametrize("text", TEXTS)
async def test_a_preview_is_the_beginning_of_each_text_and_all_else_is_as_it_is(store: Store, text: str) -> None:
    await in_every_place(store, text)
    whole = await find_jobs(store, JobFilter())
    assert len(whole) == 7
    assert whole[-2].result == whole[-2].args
    for preview in LENGTHS:
        wanted = [cut(job, preview) for job in whole]
        page = await store.inspect.find_page(JobFilter(preview=preview))
        assert (page.items, page.next) == (wanted, None)
        assert await find_jobs(store, JobFilter(preview=preview)) == wanted
        assert await store.inspect.get_jobs([job.id for job in whole], preview=preview) == {
            job.id: job for job in wanted
        }
    assert {job.error for job in whole if job.state == "dead"} == {BOOM}


async def test_previews_of_many_large_jobs_are_all_there(store: Store) -> None:
    ids = await add(store, *[new_job(args=json.dumps({"n": n, "text": "x" * 260_000})) for n in range(60)])
    page = await store.inspect.find_page(JobFilter(limit=50, preview=20))
    assert [job.id for job in page.items] == sorted(ids, reverse=True)[:50]
    assert {len(job.args) for job in page.items} == {20}
    found = await store.inspect.get_jobs(ids, preview=20)
    assert (set(found), {len(job.args) for job in found.values()}) == (set(ids), {20})
    assert len((await get_job(store, ids[0])).args) > 260_000
    # A filter that looks into the jobs, too.
    assert len((await store.inspect.find_page(JobFilter(task="greet", key=None, limit=100, preview=1))).items) == 60
