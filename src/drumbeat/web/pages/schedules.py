"""Schedules: in words, when they fire next, how their last runs went, how late they were; and all that may be done to them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

import msgspec

from drumbeat.errors import ConfigError
from drumbeat.ids import JobId, is_job_id
from drumbeat.model.audit import Act as AuditAct
from drumbeat.model.schedule import CatchUp, Origin, Overlap, ScheduleState
from drumbeat.nouns import FireInfo, ScheduleInfo
from drumbeat.schedules.preview import Previewed
from drumbeat.web.api import schedules
from drumbeat.web.api.records import JobRecord, job_record, store_now
from drumbeat.web.api.schedules import FiresQuery, PreviewQuery, SchedulesQuery
from drumbeat.web.call import Answer, Call, Role

from .acting import Act, act
from .lanes import Mark, Piece, strip
from .pieces import SKIPS, Lateness, lateness, of_fire, tally
from .rendering import render
from .showing import between, part, span

SLOTS = 60
ROWS = 25
RUN_NOW = "schedules.run"
"""How the verbs of the audit begin, of the API and of the command line."""
MOST_BY_HAND = 10
LATE = 5.0
"""Seconds: an active schedule whose moment is longer past than this is late."""
OVERLAPS = {
    Overlap.SKIP: "a moment that comes while the run before is not done is skipped",
    Overlap.QUEUE: "a run waits until the one before is done",
    Overlap.ALLOW: "runs may go on side by side",
    Overlap.CANCEL: "a new run cancels the one before",
}


class SchedulesPage(msgspec.Struct, frozen=True, kw_only=True):
    """What the address may say."""

    all: bool = False
    after: str | None = None


class FiresPage(msgspec.Struct, frozen=True, kw_only=True):
    before: datetime | None = None


class Track(msgspec.Struct, frozen=True, kw_only=True):
    """The last runs of a schedule."""

    marks: tuple[Mark, ...]
    words: str
    late: Lateness


class _Made(msgspec.Struct, frozen=True):
    id: str | None = None


class _Answer(msgspec.Struct, frozen=True):
    """What the audit keeps of a run by hand: of the API status and body, of the command line the record itself."""

    id: str | None = None
    body: _Made | None = None


class ManualRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that somebody asked for."""

    act: AuditAct
    job: JobId | None
    record: JobRecord | None
    """None: it is no longer on record, or the act does not say which job it made."""


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    info: ScheduleInfo
    track: Track
    overdue: float | None
    """Seconds since a moment that should have been fired; None: it is in time."""
    acts: tuple[Act | None, ...]


def pieces_of(call: Call, fires: Sequence[FireInfo], now: datetime) -> list[Piece]:
    """Runs of a schedule, and moments that were missed or skipped."""
    return [
        of_fire(
            fire, now, call.url(f"/jobs/{fire.job}") if fire.job else "", call.url(f"/schedules/{part(fire.schedule)}")
        )
        for fire in fires
    ]


def track_of(call: Call, fires: Sequence[FireInfo], now: datetime) -> Track:
    pieces = pieces_of(call, fires, now)
    return Track(marks=strip(pieces, SLOTS), words=tally(pieces), late=lateness(fires))


def overdue(info: ScheduleInfo, now: datetime) -> float | None:
    if info.state is not ScheduleState.ACTIVE or info.next_at is None:
        return None
    past = (now - info.next_at).total_seconds()
    return past if past > LATE else None


def policies(info: ScheduleInfo) -> tuple[tuple[str, str], ...]:
    """What becomes of moments, in words: (what, how)."""
    caught = {
        CatchUp.LATEST: "the last moment that nobody was there for is run, the others are skipped",
        CatchUp.NONE: "moments that nobody was there for are skipped",
        CatchUp.ALL: f"moments that nobody was there for are all run, at most {info.catch_up_limit:,} of them",
    }
    found = [("Overlap", OVERLAPS[info.overlap])]
    # One run follows the other: such a schedule misses nothing.
    if info.cron is not None or info.grid:
        found.append(("Catching up", caught[info.catch_up]))
    if info.max_late is not None:
        found.append(("Too late", f"a moment older than {span(info.max_late)} is skipped"))
    if info.jitter:
        found.append(("Jitter", f"each run is due up to {span(info.jitter)} later"))
    return tuple(found)


def is_dynamic(info: ScheduleInfo) -> bool:
    """Made at run time, so it may be changed here; others belong to some program's code."""
    return info.origin is Origin.STORE and info.state is not ScheduleState.RETIRED


async def index(call: Call) -> Answer:
    """GET /schedules."""
    query: SchedulesPage = call.query
    found = await call.ask(schedules.list_, query=SchedulesQuery(all=query.all, after=query.after, limit=ROWS))
    now = await store_now(call.host)
    rows = [
        ScheduleRow(info=info, track=await _track(call, info, now), overdue=overdue(info, now), acts=_acts(call, info))
        for info in found.items
    ]
    return await render(
        call,
        "schedules.html",
        page="schedules",
        title="Schedules",
        rows=rows,
        all=query.all,
        after=query.after,
        next=found.next,
        may_make=call.may(Role.ADMIN),
    )


async def show(call: Call) -> Answer:
    """GET /schedules/{name}."""
    name = call.path["name"]
    query: FiresPage = call.query
    info: ScheduleInfo = await call.ask(schedules.show, path={"name": name})
    now = await store_now(call.host)
    fires = await call.ask(schedules.fires, path={"name": name}, query=FiresQuery(before=query.before, limit=ROWS))
    coming: list[Previewed] = []
    if info.state is ScheduleState.ACTIVE:
        with suppress(ConfigError):  # a stored rule that cannot be read has no moments; the page shows the rule
            coming = (await call.ask(schedules.preview, query=PreviewQuery(name=name, count=10))).items
    return await render(
        call,
        "schedule.html",
        page="schedules",
        title=f"Schedule {name}",
        info=info,
        track=await _track(call, info, now),
        overdue=overdue(info, now),
        policies=policies(info),
        fires=fires.items,
        next=fires.next,
        before=query.before,
        coming=coming,
        by_hand=await _by_hand(call, name),
        between=between,
        skips=SKIPS,
        acts=_acts(call, info, whole=True),
        may_edit=is_dynamic(info) and call.may(Role.ADMIN),
    )


async def _by_hand(call: Call, name: str) -> list[ManualRun]:
    """Runs that people asked for are no fires: they are in the audit, and their jobs where jobs are."""
    acts = await call.host.audit.list(verb=RUN_NOW, target=name, limit=MOST_BY_HAND)
    jobs = {act.id: job_of(act) for act in acts}
    store = await call.host.store()
    known = await store.inspect.records([id for id in jobs.values() if id is not None])
    now = await store_now(call.host)
    return [
        ManualRun(act=act, job=id, record=job_record(known[id], now) if id in known else None)
        for act in acts
        if act.outcome != "refused"
        for id in [jobs[act.id]]
    ]


def job_of(act: AuditAct) -> JobId | None:
    """The job that an act has enqueued, as its answer says; None: it does not."""
    try:
        answer = msgspec.json.decode(act.answer or "{}", type=_Answer)
    except msgspec.DecodeError:
        return None
    id = answer.id if answer.body is None else answer.body.id
    return JobId(id) if id is not None and is_job_id(id) else None


async def _track(call: Call, info: ScheduleInfo, now: datetime) -> Track:
    fires = await call.ask(schedules.fires, path={"name": info.name}, query=FiresQuery(limit=SLOTS))
    return track_of(call, fires.items, now)


def _acts(call: Call, info: ScheduleInfo, *, whole: bool = False) -> tuple[Act | None, ...]:
    if info.state is ScheduleState.RETIRED:
        return ()
    address = f"/api/v1/schedules/{part(info.name)}"
    run = act(
        call,
        Role.OPERATOR,
        name="run-now",
        label="Run now",
        url=f"{address}/run-now",
        title=f"Run {info.name} now?",
        text="One job more, at once, beside its own moments; these stay as they are.",
        done=f"One run of {info.name} is enqueued: open its job",
        leads="/jobs/{id}",
    )
    change = _pause(call, info, address) if info.state is ScheduleState.ACTIVE else _resume(call, info, address)
    return (run, change, _delete(call, info, address)) if whole else (run, change)


def _pause(call: Call, info: ScheduleInfo, address: str) -> Act | None:
    return act(
        call,
        Role.OPERATOR,
        name="pause",
        label="Pause",
        url=f"{address}/pause",
        title=f"Pause {info.name}?",
        text="Nothing of it is fired until somebody resumes it. A run that is under way goes on to its end.",
        done=f"{info.name} is paused",
    )


def _resume(call: Call, info: ScheduleInfo, address: str) -> Act | None:
    return act(
        call,
        Role.OPERATOR,
        name="resume",
        label="Resume",
        url=f"{address}/resume",
        title=f"Resume {info.name}?",
        text="It goes on with its next moment. Those of the pause are skipped, on record.",
        done=f"{info.name} goes on",
    )


def _delete(call: Call, info: ScheduleInfo, address: str) -> Act | None:
    comes_back = f" It is declared in the code of {info.app}, and comes back when an instance of that starts."
    return act(
        call,
        Role.ADMIN,
        name="delete",
        label="Retire",
        url=address,
        method="DELETE",
        title=f"Retire {info.name}?",
        text="Nothing of it is fired any more; its record stays." + (comes_back if info.origin is Origin.CODE else ""),
        danger=True,
        done=f"{info.name} is retired",
        then="/schedules",
    )
