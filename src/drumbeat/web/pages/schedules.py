"""Schedules: rule in words, next fire, last runs and their lateness; pause, resume, run now, retire."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

import msgspec
from starlette.responses import Response

from drumbeat.admin import FireInfo, ScheduleInfo
from drumbeat.core.audit import AuditEntry as AuditAct
from drumbeat.core.schedule import CatchUp, Origin, Overlap, ScheduleState
from drumbeat.errors import ConfigError
from drumbeat.ids import JobId, is_job_id
from drumbeat.schedules.preview import PreviewedFire
from drumbeat.web.api import schedules
from drumbeat.web.api.records import JobRecord, to_job_record
from drumbeat.web.api.schedules import FiresQuery, PreviewQuery, SchedulesQuery
from drumbeat.web.request import DashboardRequest
from drumbeat.web.route import AccessRole

from .action_button import ActionButton, build_button
from .formatting import between, quote_segment, span
from .layout import render_page
from .timeline_items import SKIP_REASONS, Lateness, describe_items, fire_item, summarize_lateness
from .timeline_layout import StripMark, TimelineItem, layout_strip

SLOTS = 60
ROWS = 25
RUN_NOW = "schedules.run"
"""Prefix of the audit verbs of manual runs."""
MAX_MANUAL_RUNS = 10
MIN_LATE_SECONDS = 5.0
"""An active schedule whose fire time is longer past than this is late."""
OVERLAP_LABELS = {
    Overlap.SKIP: "a fire is skipped while the previous run is live",
    Overlap.QUEUE: "a run waits for the previous one",
    Overlap.ALLOW: "runs may overlap",
    Overlap.CANCEL: "a new run cancels the previous one",
}


class RunStrip(msgspec.Struct, frozen=True, kw_only=True):
    """The last runs of a schedule."""

    marks: tuple[StripMark, ...]
    words: str
    late: Lateness


class _RunAnswerBody(msgspec.Struct, frozen=True):
    id: str | None = None


class _RunAnswer(msgspec.Struct, frozen=True):
    """The stored response of a manual run: status and body of the API, or the record of the CLI."""

    id: str | None = None
    body: _RunAnswerBody | None = None


class ManualRun(msgspec.Struct, frozen=True, kw_only=True):
    """A manual run."""

    act: AuditAct
    job: JobId | None
    record: JobRecord | None
    """None: pruned, or the audit entry has no job id."""


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True):
    info: ScheduleInfo
    track: RunStrip
    overdue: float | None
    """Seconds since its fire time; None: not late."""
    acts: tuple[ActionButton | None, ...]


def fire_items(request: DashboardRequest, fires: Sequence[FireInfo], now: datetime) -> list[TimelineItem]:
    """Runs of a schedule, with missed and skipped fires."""
    return [
        fire_item(
            fire,
            now,
            request.link_to(f"/jobs/{fire.job}") if fire.job else "",
            request.link_to(f"/schedules/{quote_segment(fire.schedule)}"),
        )
        for fire in fires
    ]


def run_strip(request: DashboardRequest, fires: Sequence[FireInfo], now: datetime) -> RunStrip:
    pieces = fire_items(request, fires, now)
    return RunStrip(marks=layout_strip(pieces, SLOTS), words=describe_items(pieces), late=summarize_lateness(fires))


def overdue_seconds(info: ScheduleInfo, now: datetime) -> float | None:
    if info.state is not ScheduleState.ACTIVE or info.next_at is None:
        return None
    past = (now - info.next_at).total_seconds()
    return past if past > MIN_LATE_SECONDS else None


def policies(info: ScheduleInfo) -> tuple[tuple[str, str], ...]:
    """The policies in words: (name, text)."""
    caught = {
        CatchUp.LATEST: "the latest missed fire runs, the others are skipped",
        CatchUp.NONE: "missed fires are skipped",
        CatchUp.ALL: f"all missed fires run, at most {info.catch_up_limit:,}",
    }
    found = [("Overlap", OVERLAP_LABELS[info.overlap])]
    # An interval after completion misses no fires.
    if info.cron is not None or info.grid:
        found.append(("Catch up", caught[info.catch_up]))
    if info.max_late is not None:
        found.append(("Max late", f"a fire more than {span(info.max_late)} late is skipped"))
    if info.jitter:
        found.append(("Jitter", f"each run is delayed by up to {span(info.jitter)}"))
    return tuple(found)


def is_dynamic(info: ScheduleInfo) -> bool:
    """Created at run time, so it may be changed here; others belong to code."""
    return info.origin is Origin.STORE and info.state is not ScheduleState.RETIRED


async def index(request: DashboardRequest, query: SchedulesQuery) -> Response:
    """GET /schedules."""
    found = await schedules.list_schedules(request, msgspec.structs.replace(query, limit=ROWS))
    now = await request.store_time()
    fires = await schedules.load_fires(request, [info.name for info in found.items], limit=SLOTS)
    rows = [
        ScheduleView(
            info=info,
            track=run_strip(request, fires[info.name], now),
            overdue=overdue_seconds(info, now),
            acts=_buttons(request, info),
        )
        for info in found.items
    ]
    return await render_page(
        request,
        "schedules.html",
        page="schedules",
        title="Schedules",
        rows=rows,
        all=query.all,
        after=query.after,
        next=found.next,
        may_make=request.has_role(AccessRole.ADMIN),
    )


async def show(request: DashboardRequest, name: str, query: FiresQuery) -> Response:
    """GET /schedules/{name}."""
    info = await schedules.show(request, name)
    now = await request.store_time()
    last_fires = (await schedules.load_fires(request, [name], limit=SLOTS))[name]
    fires = last_fires[:ROWS]  # the newest page of the table is a part of what the strip shows
    if query.before is not None:
        fires = (await schedules.list_fires(request, name, FiresQuery(before=query.before, limit=ROWS))).items
    coming: list[PreviewedFire] = []
    if info.state is ScheduleState.ACTIVE:
        with suppress(ConfigError):  # an unreadable rule has no fire times; the page shows the rule
            coming = (await schedules.preview(request, PreviewQuery(name=name, count=10))).items
    return await render_page(
        request,
        "schedule.html",
        page="schedules",
        title=f"Schedule {name}",
        info=info,
        track=run_strip(request, last_fires, now),
        overdue=overdue_seconds(info, now),
        policies=policies(info),
        fires=fires,
        next=fires[-1].at.isoformat() if len(fires) >= ROWS else None,
        before=query.before,
        coming=coming,
        by_hand=await _load_manual_runs(request, name),
        between=between,
        skips=SKIP_REASONS,
        acts=_buttons(request, info, whole=True),
        may_edit=is_dynamic(info) and request.has_role(AccessRole.ADMIN),
    )


async def _load_manual_runs(request: DashboardRequest, name: str) -> list[ManualRun]:
    """Manual runs are no fires: they are read from the audit, with their jobs."""
    acts = await request.app.audit.list(verb=RUN_NOW, target=name, limit=MAX_MANUAL_RUNS)
    jobs = {act.id: enqueued_job(act) for act in acts}
    store = await request.app.store()
    known = await store.inspect.get_jobs([id for id in jobs.values() if id is not None])
    now = await request.store_time()
    return [
        ManualRun(act=act, job=id, record=to_job_record(known[id], now) if id in known else None)
        for act in acts
        if act.outcome != "refused"
        for id in [jobs[act.id]]
    ]


def enqueued_job(act: AuditAct) -> JobId | None:
    """The job that an act has enqueued, from its stored response; None: unknown."""
    try:
        answer = msgspec.json.decode(act.answer or "{}", type=_RunAnswer)
    except msgspec.DecodeError:
        return None
    id = answer.id if answer.body is None else answer.body.id
    return JobId(id) if id is not None and is_job_id(id) else None


def _buttons(request: DashboardRequest, info: ScheduleInfo, *, whole: bool = False) -> tuple[ActionButton | None, ...]:
    if info.state is ScheduleState.RETIRED:
        return ()
    run = build_button(
        request,
        schedules.run_now,
        "Run now",
        f"Run {info.name} now?",
        of=info.name,
        text="Enqueues one extra run; the schedule is unchanged.",
        done=f"One run of {info.name} is enqueued: open its job",
        leads="/jobs/{id}",
    )
    toggle = _toggle_button(request, info)
    return (run, toggle, _delete_button(request, info)) if whole else (run, toggle)


def _toggle_button(request: DashboardRequest, info: ScheduleInfo) -> ActionButton | None:
    if info.state is ScheduleState.ACTIVE:
        text, done = "It does not fire until it is resumed. A run in progress continues.", f"{info.name} is paused"
        return build_button(
            request, schedules.pause, "Pause", f"Pause {info.name}?", of=info.name, text=text, done=done
        )
    text = "It continues with its next fire time; fire times during the pause are recorded as skipped."
    done = f"{info.name} resumed"
    return build_button(request, schedules.resume, "Resume", f"Resume {info.name}?", of=info.name, text=text, done=done)


def _delete_button(request: DashboardRequest, info: ScheduleInfo) -> ActionButton | None:
    comes_back = (
        f" It is declared in the code of {info.app}, and is declared again when an instance of that app starts."
    )
    return build_button(
        request,
        schedules.delete,
        "Retire",
        f"Retire {info.name}?",
        of=info.name,
        name="delete",
        text="It no longer fires; its record is kept." + (comes_back if info.origin is Origin.CODE else ""),
        danger=True,
        done=f"{info.name} is retired",
        then="/schedules",
    )
