"""`/api/v1/jobs`: list and show jobs, enqueue one, act on one or many."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType
from starlette.responses import Response

from drumbeat.admin.bulk import Action
from drumbeat.admin.ended_between import find_ended_between
from drumbeat.admin.explain.reason import Explanation
from drumbeat.admin.filters import read_ended
from drumbeat.core.dependencies import ParentLink
from drumbeat.core.job import Attempt, CancelAnswer
from drumbeat.core.job_query import JobCounts
from drumbeat.ids import JobId
from drumbeat.redaction import HIDDEN
from drumbeat.web.api import records
from drumbeat.web.api.bulk_action import BulkRecord, BulkSelection, Rate, run_bulk_action
from drumbeat.web.api.job_filters import JobCountsQuery, JobListQuery, to_job_filter
from drumbeat.web.api.records import JobRecord, Page
from drumbeat.web.fields import Before, Limit, Reason, doc
from drumbeat.web.problem import Problem
from drumbeat.web.request import DashboardRequest, refuse_with
from drumbeat.web.route import clamp_limit

MAX_LINKS = 50
"""Parents and children of a job that are listed."""
JsonArguments = Annotated[Raw, Meta(extra_json_schema={"type": ["object", "string"]})]
"""A JSON object of arguments by name, or the text of one."""


class EnqueueBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job to enqueue. Fields left out use the defaults of the task."""

    task: Annotated[str, doc("The name of a task that this app or a live worker has registered.")]
    args: Annotated[
        JsonArguments | UnsetType,
        doc(
            "A JSON object of arguments by name, or the text of one. In a browser "
            "prefer the text: it would round large numbers in an object."
        ),
    ] = UNSET
    queue: Annotated[str | None, doc("Default: the task's queue.")] = None
    priority: Annotated[int | None, doc("0 first, 9 last.")] = None
    delay: Annotated[float | str | None, doc("Seconds, or text such as 5m.")] = None
    at: Annotated[datetime | None, doc("With offset. Excludes delay.")] = None
    key: Annotated[str | None, doc("To find, cancel or deduplicate the job.")] = None
    unique: Annotated[
        bool | Literal["pending"] | None,
        doc('With a key. true: not if a live job of the task has the key; "pending": running jobs do not count.'),
    ] = None
    retries: Annotated[int | None, doc("Number of retries after failures.")] = None
    timeout: Annotated[float | str | None, doc("Seconds, or text such as 5m.")] = None
    expires: Annotated[
        float | str | None,
        doc("Seconds after it is due, or text such as 5m: if it has not started by then, it ends as expired."),
    ] = None
    reason: Reason = ""

    def target(self) -> str:
        return self.task


class EnqueueResult(msgspec.Struct, frozen=True, kw_only=True):
    """The enqueued job."""

    id: JobId
    created: Annotated[bool, doc("False: a live job had the key; this is its id.")]


class CancelRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a cancellation."""

    answer: Annotated[
        CancelAnswer,
        doc("cancelled: it never runs; requested: it was running and is asked to stop; else its final state."),
    ]
    job: JobRecord


class BulkBody(BulkSelection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An act on many jobs: by their ids, by a filter, or on all to which it applies."""

    action: Annotated[Action, doc("cancel and run_now are for live jobs, replay and discard for dead letters.")]
    rate: Rate = None

    def verb(self) -> str:
        """The same verb as for a single job."""
        return f"{'dead' if self.action in (Action.REPLAY, Action.DISCARD) else 'jobs'}.{self.action}"


async def list_jobs(
    request: DashboardRequest, query: JobListQuery, preview: int = records.MAX_PREVIEW_CHARS
) -> Page[JobRecord]:
    store = await request.app.store()
    ended = read_ended({"ended_since": query.ended_since, "ended_until": query.ended_until})
    read = None if ended is None else partial(find_ended_between, store, ended)
    return await records.load_job_page(request, to_job_filter(query), preview, read=read)


async def count_jobs(request: DashboardRequest, query: JobCountsQuery) -> JobCounts:
    store = await request.app.store()
    return await store.inspect.count_jobs(to_job_filter(query))


async def enqueue(request: DashboardRequest, body: EnqueueBody) -> EnqueueResult:
    options = msgspec.structs.asdict(body)
    for name in ("task", "args", "reason"):
        del options[name]
    job = await request.app.jobs.enqueue(body.task, parse_arguments(body.args), **options)
    request.touched = int(job.created)
    return EnqueueResult(id=job.id, created=job.created)


def parse_arguments(given: Raw | UnsetType) -> str:
    """The JSON text of arguments given as an object or as text."""
    if given is UNSET:
        return "{}"
    text = bytes(given).decode()
    text = msgspec.json.decode(text, type=str) if text.startswith('"') else text
    if HIDDEN in text:
        raise Problem(422, "args contains a redacted value (•••); enter it again", argument="args")
    return text


class JobDetail(JobRecord, frozen=True, kw_only=True):
    """A job with the jobs that it depends on, and those that depend on it."""

    parents: Annotated[list[ParentLink], doc("Those that it still waits for first; at most 50.")]
    children: Annotated[list[ParentLink], doc("Oldest first; at most 50.")]


async def show(request: DashboardRequest, id: str) -> JobRecord:
    return await records.build_full_record(await request.app.jobs.show(id), await request.store_time())


async def show_detail(request: DashboardRequest, id: str) -> JobDetail:
    job = await show(request, id)
    return JobDetail(
        **{name: getattr(job, name) for name in JobRecord.__struct_fields__},
        parents=await request.app.jobs.parents(id, limit=MAX_LINKS),
        children=await request.app.jobs.children(id, limit=MAX_LINKS),
    )


async def list_attempts(request: DashboardRequest, id: str) -> Page[Attempt]:
    await request.app.jobs.show(id)
    return Page(items=await load_attempts(request, id))


async def load_attempts(request: DashboardRequest, id: str) -> list[Attempt]:
    """The ended runs of a job that exists, oldest first, with secrets hidden."""
    found = await request.app.jobs.attempts(id)
    return [msgspec.structs.replace(each, error=records.mask_error(each.error)) for each in found]


class LineageQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which part of the tree below a job."""

    before: Before = None
    limit: Limit = 50


class LineageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A job of the tree."""

    job: JobRecord
    depth: Annotated[int, doc("Levels below the job that was asked for: 1 is its child.")]
    has_more: Annotated[bool, doc("It has, or may have, children that are not listed here.")]


class LineagePage(msgspec.Struct, frozen=True, kw_only=True):
    """What a job descends from, and what it has enqueued. Jobs are without arguments, progress and result."""

    ancestors: Annotated[list[JobRecord], doc("The first of them first; the last is the parent. At most 20.")]
    missing: Annotated[
        str | None, doc("The parent of the first ancestor (or of the job), if it is pruned or not listed here.")
    ]
    descendants: Annotated[
        list[LineageRecord], doc("Each followed by its own children, newest first, three levels deep, at most `limit`.")
    ]
    next: Annotated[str | None, doc("`before` of the next page of its children; null: these are all.")]


async def show_lineage(request: DashboardRequest, id: str, query: LineageQuery) -> LineagePage:
    found = await request.app.jobs.lineage(id, before=query.before, limit=clamp_limit(query.limit))
    now = await request.store_time()
    return LineagePage(
        ancestors=[records.to_job_record(job, now, 0) for job in found.ancestors],
        missing=found.missing,
        descendants=[
            LineageRecord(job=records.to_job_record(each.job, now, 0), depth=each.depth, has_more=each.has_more)
            for each in found.descendants
        ],
        next=found.next,
    )


async def explain(request: DashboardRequest, id: str) -> Explanation:
    return await request.app.jobs.explain(id)


async def cancel(request: DashboardRequest, id: str) -> CancelRecord:
    await request.app.jobs.show(id)
    [answer] = await request.app.jobs.cancel(id)
    if answer is CancelAnswer.UNKNOWN:
        raise Problem(404, f"no job {id}", argument="id", type="job-not-found")
    request.touched = int(answer in (CancelAnswer.CANCELLED, CancelAnswer.REQUESTED))
    return CancelRecord(answer=answer, job=await show(request, id))


async def run_now(request: DashboardRequest, id: str) -> JobRecord:
    await refuse_with(409, request.app.jobs.run_now(id))
    return await show(request, id)


async def act_on_many(request: DashboardRequest, body: BulkBody) -> BulkRecord | Response:
    return await run_bulk_action(request, body.action, body, body.rate)


async def load_samples(request: DashboardRequest, ids: list[JobId]) -> dict[JobId, JobRecord]:
    """Jobs with their errors, without arguments and results; unknown ids are left out."""
    store = await request.app.store()
    found = await store.inspect.get_jobs(ids, preview=0)
    now = await request.store_time()
    return {id: records.to_job_record(job, now) for id, job in found.items()}
