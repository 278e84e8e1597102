"""`/api/v1/schedules`: schedules, their fires and previews."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from drumbeat.admin import FireInfo, ScheduleInfo
from drumbeat.admin.enqueue_by_name import decode_arguments
from drumbeat.admin.views import fire_info, schedule_info
from drumbeat.core.job import Job
from drumbeat.core.schedule import CatchUp, Fire, Overlap
from drumbeat.durations import microseconds, to_us
from drumbeat.errors import ConfigError, InvalidArguments
from drumbeat.ids import JobId
from drumbeat.names import check_name
from drumbeat.redaction import redact_json
from drumbeat.schedules.preview import PreviewedFire
from drumbeat.web.api.jobs import EnqueueResult, JsonArguments, parse_arguments
from drumbeat.web.api.records import MAX_PREVIEW_CHARS, Page, WriteResult, truncate_error
from drumbeat.web.fields import After, Limit, Reason, doc
from drumbeat.web.problem import Problem
from drumbeat.web.request import DashboardRequest, refuse_with
from drumbeat.web.route import ReasonBody, clamp_limit

MAX_BATCH = 1_000
"""Jobs in one call of the store."""
Seconds = float | str
"""Seconds, or text such as 5m."""


class SchedulesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which schedules, by name."""

    all: Annotated[bool, doc("Include retired ones.")] = False
    after: After = None
    limit: Limit = 50


class ScheduleRecord(ScheduleInfo, frozen=True, kw_only=True):
    """A schedule."""

    truncated: Annotated[
        tuple[str, ...],
        doc("Fields that are truncated here: lists have previews. `/schedules/{name}` has the whole."),
    ] = ()


class PreviewQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule, or the name of a schedule."""

    rule: Annotated[
        str | None, doc("A cron expression, or an interval such as 5m. Default: the rule of the schedule `name`.")
    ] = None
    kind: Annotated[Literal["cron", "every"] | None, doc("The kind of rule; null: detected.")] = None
    tz: Annotated[str, doc("A time zone such as Europe/Berlin.")] = "UTC"
    grid: Annotated[bool, doc("With an interval: fixed times, not counted from the end of a run.")] = False
    name: Annotated[str | None, doc("The name that H in an expression is derived from.")] = None
    count: Annotated[int, doc("Number of fire times, 1 to 500.")] = 5
    lenient: Annotated[
        bool,
        doc("For forms: an invalid rule is reported in `error`, with status 200."),
    ] = False


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """The next fire times of a rule, in its own time zone."""

    items: list[PreviewedFire]
    words: Annotated[str, doc("The rule in words: `at 03:00 every day (Europe/Berlin)`.")]
    error: Annotated[str | None, doc("Why the rule is invalid, with `lenient`.")] = None
    argument: Annotated[str | None, doc("The parameter that `error` is about.")] = None


class FiresQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fires of a schedule, newest first."""

    before: Annotated[datetime | None, doc("Only fires before this time: `next` of the previous page.")] = None
    limit: Limit = 50
    jobs: Annotated[bool, doc("False: without the state of their jobs, which is faster.")] = True


class ScheduleFieldsBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of a schedule. Fields left out are unchanged, or use the defaults of the task."""

    cron: Annotated[str | UnsetType, doc("Five fields, or six with seconds first. Excludes every.")] = UNSET
    every: Annotated[Seconds | UnsetType, doc("From the end of one run to the next: seconds, or text such as 5m.")] = (
        UNSET
    )
    grid: Annotated[bool | UnsetType, doc("With every: at fixed times instead.")] = UNSET
    tz: Annotated[str | UnsetType, doc("A time zone such as Europe/Berlin. Default: UTC.")] = UNSET
    args: Annotated[JsonArguments | UnsetType, doc("A JSON object of arguments by name, or the text of one.")] = UNSET
    queue: Annotated[str | UnsetType, doc("Default: the task's queue.")] = UNSET
    priority: Annotated[int | UnsetType, doc("0 first, 9 last.")] = UNSET
    retries: Annotated[int | UnsetType, doc("Number of retries after failures.")] = UNSET
    timeout: Annotated[Seconds | UnsetType | None, doc("Of each run: seconds, or text such as 5m; null: no limit.")] = (
        UNSET
    )
    catch_up: Annotated[CatchUp | UnsetType, doc("Which missed fires run: the latest, none, or all.")] = UNSET
    catch_up_limit: Annotated[int | UnsetType, doc("With catch_up all: the maximum, latest first.")] = UNSET
    max_late: Annotated[Seconds | UnsetType | None, doc("A later fire is skipped; null: no limit.")] = UNSET
    overlap: Annotated[Overlap | UnsetType, doc("What happens to a fire while the previous job is live.")] = UNSET
    jitter: Annotated[Seconds | UnsetType, doc("Maximum random delay of each job: seconds, or text such as 10s.")] = (
        UNSET
    )
    start: Annotated[datetime | UnsetType | None, doc("No fire before this time; null: no bound.")] = UNSET
    end: Annotated[datetime | UnsetType | None, doc("No fire at or after this time; null: no bound.")] = UNSET
    reason: Reason = ""


class NewScheduleBody(ScheduleFieldsBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule to create, for a registered task of this app."""

    task: Annotated[str, doc("The name of the task.")]
    name: Annotated[str | None, doc("Default: the name of the task.")] = None

    def target(self) -> str:
        return self.task if self.name is None else self.name


class ReasonQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: Annotated[str, doc("Recorded in the audit, and shown at the schedule.")] = ""


async def list_schedules(request: DashboardRequest, query: SchedulesQuery) -> Page[ScheduleRecord]:
    limit = clamp_limit(query.limit)
    after = None if query.after is None else check_name("after", query.after)
    store = await request.app.store()
    found = await store.schedules.list_page(after=after, limit=limit, all=query.all)
    return Page(
        items=[_to_record(schedule_info(each), MAX_PREVIEW_CHARS) for each in found],
        next=found[-1].name if len(found) >= limit else None,
    )


async def show(request: DashboardRequest, name: str) -> ScheduleRecord:
    return _to_record(await refuse_with(404, request.app.schedules.show(name)))


async def preview(request: DashboardRequest, query: PreviewQuery) -> Preview:
    schedules, count = request.app.schedules, clamp_limit(query.count)
    if query.rule is None:
        if query.name is None:
            raise InvalidArguments("say a rule, such as 0 3 * * *, or the name of a schedule", "rule")
        schedule = await refuse_with(404, schedules.show(query.name))
        found = [] if schedule.state == "retired" else await schedules.preview(query.name, count=count)
        return Preview(items=found, words=schedule.words)
    rule: Any = {"cron": query.rule, "tz": query.tz}
    if query.kind == "every" or (query.kind is None and _is_interval(query.rule)):
        rule = {"every": query.rule, "grid": query.grid}
    try:
        found = await schedules.preview(query.name, count=count, **rule)
        return Preview(items=found, words=await schedules.in_words(query.name, **rule))
    except ConfigError as error:
        field = "rule" if error.setting in ("cron", "every", None) else error.setting
        if query.lenient:
            return Preview(items=[], words="", error=str(error), argument=field)
        raise Problem(422, str(error), argument=field) from error


def _is_interval(rule: str) -> bool:
    try:
        microseconds(rule, name="rule")
    except ConfigError:
        return False
    return True


async def list_fires(request: DashboardRequest, name: str, query: FiresQuery) -> Page[FireInfo]:
    limit = clamp_limit(query.limit)
    await refuse_with(404, request.app.schedules.show(name))
    before = None if query.before is None else to_us(query.before, name="before")
    found = (await load_fires(request, [name], before=before, limit=limit, jobs=query.jobs))[name]
    return Page(items=found, next=found[-1].at.isoformat() if len(found) >= limit else None)


async def load_fires(
    request: DashboardRequest, names: Sequence[str], *, before: int | None = None, limit: int, jobs: bool = True
) -> dict[str, list[FireInfo]]:
    """The fires of several schedules with their jobs, newest first, in batches: two calls of the store for 1,000 fires."""
    store = await request.app.store()
    found = await store.schedules.list_fires(names, before=before, limit=limit)
    ids = [fire.job for fires in found.values() for fire in fires if jobs and fire.job is not None]
    known: dict[JobId, Job] = {}
    for start in range(0, len(ids), MAX_BATCH):
        known |= await store.inspect.get_jobs(ids[start : start + MAX_BATCH], preview=0)
    return {name: [_to_fire(fire, known) for fire in fires] for name, fires in found.items()}


def _to_fire(fire: Fire, jobs: Mapping[JobId, Job]) -> FireInfo:
    info = fire_info(fire, None if fire.job is None else jobs.get(fire.job))
    return msgspec.structs.replace(info, error=truncate_error(info.error))


async def create(request: DashboardRequest, body: NewScheduleBody) -> ScheduleRecord:
    words = _given_fields(request, body.task, body)
    return _to_record(await request.app.schedules.create(body.task, name=body.name, by=request.caller.name, **words))


async def change(request: DashboardRequest, name: str, body: ScheduleFieldsBody) -> ScheduleRecord:
    schedule = await refuse_with(404, request.app.schedules.show(name))
    words = _given_fields(request, schedule.task, body)
    return _to_record(await request.app.schedules.change(name, by=request.caller.name, **words))


async def delete(request: DashboardRequest, name: str, query: ReasonQuery) -> WriteResult:
    await _check_not_retired(request, name)
    await request.app.schedules.delete(name, reason=query.reason, by=request.caller.name)
    return WriteResult(touched=1)


async def pause(request: DashboardRequest, name: str, body: ReasonBody) -> WriteResult:
    await _check_not_retired(request, name)
    paused = await request.app.schedules.pause(name, reason=body.reason, by=request.caller.name)
    return WriteResult(touched=int(paused))


async def resume(request: DashboardRequest, name: str) -> WriteResult:
    await _check_not_retired(request, name)
    return WriteResult(touched=int(await request.app.schedules.resume(name, by=request.caller.name)))


async def run_now(request: DashboardRequest, name: str) -> EnqueueResult:
    await _check_not_retired(request, name)
    job = await request.app.schedules.run_now(name)
    return EnqueueResult(id=job.id, created=job.created)


async def _check_not_retired(request: DashboardRequest, name: str) -> None:
    """Not found if there is none; 409 if it is retired."""
    schedule = await refuse_with(404, request.app.schedules.show(name))
    if schedule.state == "retired":
        raise Problem(409, f"schedule {name!r} is retired", argument="name")


def _to_record(schedule: ScheduleInfo, preview: int | None = None) -> ScheduleRecord:
    facts = {name: getattr(schedule, name) for name in ScheduleInfo.__struct_fields__}
    is_cut = preview is not None and len(schedule.args) > preview
    facts["args"] = redact_json(schedule.args[:preview])
    return ScheduleRecord(**facts, truncated=("args",) if is_cut else ())


def _given_fields(request: DashboardRequest, task: str, body: ScheduleFieldsBody) -> Any:
    given: dict[str, Any] = {
        name: value
        for name in ScheduleFieldsBody.__struct_fields__
        if name not in ("args", "reason") and (value := getattr(body, name)) is not UNSET
    }
    if body.args is not UNSET:
        given["args"] = decode_arguments(
            request.app.registry[task], parse_arguments(body.args), request.app.settings.payload_limit
        )
    return given
