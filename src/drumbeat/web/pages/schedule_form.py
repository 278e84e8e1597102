"""The form that makes or changes a schedule: what stands in its fields at first. static/schedule.js previews and sends it."""

from __future__ import annotations

import msgspec

from drumbeat.model.schedule import CatchUp, Overlap
from drumbeat.nouns import ScheduleInfo
from drumbeat.web.api import schedules, tasks
from drumbeat.web.call import Answer, Call
from drumbeat.web.problem import Problem

from .rendering import render
from .schedules import OVERLAPS, is_dynamic
from .showing import iso, part

ZONES = (
    *("UTC", "Europe/Berlin", "Europe/London", "America/New_York", "America/Los_Angeles"),
    *("Asia/Kolkata", "Asia/Shanghai", "Asia/Tokyo", "Australia/Sydney"),
)
CATCHES = {
    CatchUp.LATEST: "run the last one",
    CatchUp.NONE: "run none",
    CatchUp.ALL: "run all of them",
}


class NewPage(msgspec.Struct, frozen=True, kw_only=True):
    """What the address may say: a task to begin with."""

    task: str | None = None


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in the fields, as text."""

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


def form_of(info: ScheduleInfo) -> Form:
    """The fields of a schedule that there is."""
    kind = "cron" if info.cron is not None else "grid" if info.grid else "after"
    return Form(
        name=info.name,
        task=info.task,
        kind=kind,
        cron=info.cron or "",
        tz=info.tz,
        every="" if info.every is None else _length(info.every),
        args=info.args,
        queue=info.queue,
        priority=str(info.priority),
        overlap=info.overlap,
        catch_up=info.catch_up,
        catch_up_limit=str(info.catch_up_limit),
        max_late="" if info.max_late is None else _length(info.max_late),
        jitter=_length(info.jitter) if info.jitter else "",
        start="" if info.start is None else iso(info.start),
        end="" if info.end is None else iso(info.end),
    )


def _length(seconds: float) -> str:
    """A length that is read back as the very same: 90m is 90m, and 0.25 is 0.25s."""
    for unit, word in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds and seconds % unit == 0:
            return f"{int(seconds // unit)}{word}"
    return f"{seconds:.6f}".rstrip("0").rstrip(".") + "s"


async def new(call: Call) -> Answer:
    """GET /schedules/new."""
    query: NewPage = call.query
    return await _form(call, Form(task=query.task or ""), "New schedule", editing=False)


async def edit(call: Call) -> Answer:
    """GET /schedules/{name}/edit."""
    name = call.path["name"]
    info: ScheduleInfo = await call.ask(schedules.show, path={"name": name})
    if not is_dynamic(info):
        raise Problem(409, f"schedule {name} is declared in code or retired: it cannot be changed here")
    return await _form(call, form_of(info), f"Edit {name}", editing=True)


async def _form(call: Call, form: Form, title: str, *, editing: bool) -> Answer:
    known = await call.ask(tasks.list_)
    address = f"/api/v1/schedules/{part(form.name)}" if editing else "/api/v1/schedules"
    return await render(
        call,
        "schedule_form.html",
        page="schedules",
        title=title,
        form=form,
        editing=editing,
        address=address,
        tasks=[info.name for info in known.items if info.registered],
        zones=ZONES,
        overlaps=OVERLAPS,
        catches=CATCHES,
    )
