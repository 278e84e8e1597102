"""`/api/v1/dead`: dead letters, groups of them by error, and acts on one or many."""

from __future__ import annotations

from typing import Annotated

import msgspec
from starlette.responses import Response

from drumbeat.admin.bulk import Action
from drumbeat.core.dead_letter import DeadLetterGroup
from drumbeat.redaction import mask_urls
from drumbeat.web.api.bulk_action import BulkRecord, BulkSelection, Rate, run_bulk_action
from drumbeat.web.api.job_filters import JobListQuery, to_job_filter
from drumbeat.web.api.records import MAX_PREVIEW_CHARS, JobRecord, Page, build_full_record, load_job_page
from drumbeat.web.fields import Before, ErrorPart, Key, Limit, QueueName, TaskName, doc
from drumbeat.web.request import DashboardRequest, refuse_with
from drumbeat.web.route import clamp_limit


class DeadLettersQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters to list, newest first."""

    task: TaskName = None
    queue: QueueName = None
    key: Key = None
    error: ErrorPart = None
    id: Annotated[str | None, doc("An id, or a prefix of at least 4 characters.")] = None
    before: Before = None
    limit: Limit = 50


class DeadGroupsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, doc("Number of groups, 1 to 500.")] = 50


class ReplayBody(BulkSelection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters to replay: by their ids, by a filter, or all."""

    rate: Rate = None


class DiscardBody(BulkSelection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters to discard: they stay in history until it is pruned."""


async def list_dead_letters(request: DashboardRequest, query: DeadLettersQuery) -> Page[JobRecord]:
    filter = to_job_filter(JobListQuery(state="dead", **msgspec.structs.asdict(query)))
    return await load_job_page(request, msgspec.structs.replace(filter, dead_letters=True))


async def list_groups(request: DashboardRequest, query: DeadGroupsQuery) -> Page[DeadLetterGroup]:
    store = await request.app.store()
    found = await store.inspect.group_dead_letters(clamp_limit(query.limit))
    return Page(
        items=[msgspec.structs.replace(each, message=mask_urls(each.message)[:MAX_PREVIEW_CHARS]) for each in found]
    )


async def show(request: DashboardRequest, id: str) -> JobRecord:
    job = await refuse_with(409, request.app.dead.show(id))
    return await build_full_record(job, await request.store_time())


async def replay(request: DashboardRequest, id: str) -> BulkRecord:
    await refuse_with(409, request.app.dead.replay(id))
    return BulkRecord(action=Action.REPLAY, matched=1, touched=1, dry_run=False)


async def discard(request: DashboardRequest, id: str) -> BulkRecord:
    await refuse_with(409, request.app.dead.discard(id))
    return BulkRecord(action=Action.DISCARD, matched=1, touched=1, dry_run=False)


async def replay_many(request: DashboardRequest, body: ReplayBody) -> BulkRecord | Response:
    return await run_bulk_action(request, Action.REPLAY, body, body.rate)


async def discard_many(request: DashboardRequest, body: DiscardBody) -> BulkRecord | Response:
    return await run_bulk_action(request, Action.DISCARD, body)
