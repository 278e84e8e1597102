"""`/api/v1/tasks`: tasks and their runs."""

from __future__ import annotations

from typing import Annotated

import msgspec

from drumbeat.admin import Run, TaskInfo
from drumbeat.web.api.records import Page, truncate_error
from drumbeat.web.fields import Before, ErrorPart, doc
from drumbeat.web.request import DashboardRequest, refuse_with
from drumbeat.web.route import clamp_limit


class TaskHistoryQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which runs, newest job first."""

    queue: Annotated[str | None, doc("Only jobs of this queue.")] = None
    key: Annotated[str | None, doc("Only jobs with this key.")] = None
    error: ErrorPart = None
    state: Annotated[str | None, doc("The state of the job.")] = None
    before: Before = None
    limit: Annotated[int, doc("Number of jobs, 1 to 500.")] = 50


async def list_tasks(request: DashboardRequest) -> Page[TaskInfo]:
    return Page(items=await request.app.tasks.list())


async def show(request: DashboardRequest, name: str) -> TaskInfo:
    return await refuse_with(404, request.app.tasks.show(name))


async def history(request: DashboardRequest, name: str, query: TaskHistoryQuery) -> Page[Run]:
    await show(request, name)
    wanted = msgspec.structs.asdict(query) | {"limit": clamp_limit(query.limit)}
    page = await request.app.tasks.history(name, **wanted)
    items = [msgspec.structs.replace(run, error=truncate_error(run.error)) for run in page.items]
    return Page(items=items, next=page.next)
