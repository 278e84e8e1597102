"""The form that creates or changes a schedule: its initial values. static/schedule.js previews and sends it."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from drumbeat.admin import ScheduleInfo
from drumbeat.core.schedule import CatchUp, Overlap
from drumbeat.web.api import schedules, tasks
from drumbeat.web.problem import Problem
from drumbeat.web.request import DashboardRequest

from .formatting import iso, quote_segment
from .layout import render_page
from .schedules import OVERLAP_LABELS, is_dynamic

ZONES = (
    *("UTC", "Europe/Berlin", "Europe/London", "America/New_York", "America/Los_Angeles"),
    *("Asia/Kolkata", "Asia/Shanghai", "Asia/Tokyo", "Australia/Sydney"),
)
CATCH_UP_LABELS = {
    CatchUp.LATEST: "run the latest",
    CatchUp.NONE: "run none",
    CatchUp.ALL: "run all",
}


class NewScheduleQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Query of the page."""

    task: str | None = None


class ScheduleForm(msgspec.Struct, frozen=True, kw_only=True):
    """Values of the fields, as text."""

    name: str = ""
    task: str = ""
    kind: str = "cron"
    """cron, grid or after."""
    cron: str = "0 3 * * *"
    tz: str = "UTC"
    every: str = "5m"
    args: str = "{}"
    queue: str = ""
    priority: str = ""
    overlap: Overlap = Overlap.SKIP
    catch_up: CatchUp = CatchUp.LATEST
    catch_up_limit: str = "100"
    max_late: str = ""
    jitter: str = ""
    start: str = ""
    end: str = ""


def form_of(info: ScheduleInfo) -> ScheduleForm:
    """The values of an existing schedule."""
    same = ("name", "task", "tz", "args", "queue", "overlap", "catch_up")
    return ScheduleForm(
        **{name: getattr(info, name) for name in same},
        kind="cron" if info.cron is not None else "grid" if info.grid else "after",
        cron=info.cron or "",
        every="" if info.every is None else _format_interval(info.every),
        priority=str(info.priority),
        catch_up_limit=str(info.catch_up_limit),
        max_late="" if info.max_late is None else _format_interval(info.max_late),
        jitter=_format_interval(info.jitter) if info.jitter else "",
        start="" if info.start is None else iso(info.start),
        end="" if info.end is None else iso(info.end),
    )


def _format_interval(seconds: float) -> str:
    """A duration that parses to the same value: 90m, 0.25s."""
    for unit, word in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds and seconds % unit == 0:
            return f"{int(seconds // unit)}{word}"
    return f"{seconds:.6f}".rstrip("0").rstrip(".") + "s"


async def new(request: DashboardRequest, query: NewScheduleQuery) -> Response:
    """GET /schedules/new."""
    return await _render_form(request, ScheduleForm(task=query.task or ""), "New schedule", editing=False)


async def edit(request: DashboardRequest, name: str) -> Response:
    """GET /schedules/{name}/edit."""
    info = await schedules.show(request, name)
    if not is_dynamic(info):
        raise Problem(409, f"schedule {name} is declared in code, or retired, and cannot be changed here")
    return await _render_form(request, form_of(info), f"Edit {name}", editing=True)


async def _render_form(request: DashboardRequest, form: ScheduleForm, title: str, *, editing: bool) -> Response:
    known = await tasks.list_tasks(request)
    address = f"/api/v1/schedules/{quote_segment(form.name)}" if editing else "/api/v1/schedules"
    return await render_page(
        request,
        "schedule_form.html",
        page="schedules",
        title=title,
        form=form,
        editing=editing,
        address=address,
        tasks=[info.name for info in known.items if info.registered],
        zones=ZONES,
        overlaps=OVERLAP_LABELS,
        catches=CATCH_UP_LABELS,
    )
