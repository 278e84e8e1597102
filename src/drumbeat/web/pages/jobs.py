"""Jobs: search, tabs with counts, a table that stays put, and acts on some or all of what matches."""

from __future__ import annotations

from datetime import datetime

import msgspec

from drumbeat.errors import InvalidArguments
from drumbeat.ids import is_job_id
from drumbeat.model.job import JobCounts, JobState, View
from drumbeat.web.api import jobs
from drumbeat.web.api.records import JobRecord, Page, store_now
from drumbeat.web.call import Answer, Call, Role

from .acting import Act, act
from .rendering import render
from .searching import ENDED, STATES, JobsQuery, chosen_of, listed_of, understood
from .showing import between, first_line

PENDING = tuple(View)
TIMES = (("15m", "last 15 min"), ("1h", "last hour"), ("24h", "last 24 h"), ("7d", "last 7 days"))


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job in a table: what matters about it depends on its state."""

    job: JobRecord
    at: datetime
    """The moment that says most: when it is due, began or ended."""
    at_word: str
    took: str
    detail: str


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a search came to."""

    page: Page[JobRecord] = Page(items=[])
    counts: JobCounts | None = None
    """None: nobody counted."""
    filter: str = "{}"
    matching: int = 0
    capped: bool = False
    error: InvalidArguments | None = None
    """Why it could not be searched for."""


class Tab(msgspec.Struct, frozen=True, kw_only=True):
    word: str
    url: str
    count: int | None
    is_current: bool


async def show_list(call: Call) -> Answer:
    query: JobsQuery = call.query
    if query.q:
        try:
            return await _sent_on(call, query)
        except InvalidArguments as error:
            return await _shown(call, query, Found(error=error), status=422)
    now = await store_now(call.host)
    try:
        found = await _found(call, query, now)
    except InvalidArguments as error:
        return await _shown(call, query, Found(error=error), status=422)
    return await _shown(call, query, found)


async def _found(call: Call, query: JobsQuery, now: datetime) -> Found:
    listed, chosen = listed_of(query, now), chosen_of(query, now)
    page: Page[JobRecord] = await call.ask(jobs.list_, query=listed)
    if query.is_past:
        # Counts and acts on all that match cannot go by ends: here only what is picked is acted on.
        return Found(page=page, matching=len(page.items))
    counts: JobCounts = await call.ask(jobs.counts, query=msgspec.structs.replace(chosen, state=None))
    return Found(
        page=page,
        counts=counts,
        filter=msgspec.json.encode(_told(chosen)).decode(),
        matching=matching(counts, query.state),
        capped=counts.capped,
    )


async def _shown(call: Call, query: JobsQuery, found: Found, status: int = 200) -> Answer:
    fields = query.fields()
    page = found.page
    return await render(
        call,
        "jobs.html",
        page="jobs",
        title=f"{query.state or 'all'} jobs".capitalize(),
        status=status,
        fields=query,
        hidden=("instance", "until", "id", "id_end", *ENDED),
        is_narrowed=bool(set(fields) - {"state"}),
        is_past=query.is_past,
        tabs=[] if found.error else tabs(call, query, found.counts),
        times=TIMES,
        rows=[row_of(job) for job in page.items],
        acts=[] if found.error else bulk_acts(call, query.state),
        filter=found.filter,
        matching=found.matching,
        capped=found.capped,
        older=call.url("/jobs", **fields, before=page.next, limit=_limit(query)) if page.next else None,
        newest=call.url("/jobs", **fields) if query.before else None,
        export=None if found.error else call.url("/jobs/export", **fields),
        error=found.error,
        q=query.q or "",
    )


async def _sent_on(call: Call, query: JobsQuery) -> Answer:
    fields = query.fields() | await understood(call, query.q or "")
    id = fields.get("id", "")
    to = call.url(f"/jobs/{id}") if is_job_id(id) else call.url("/jobs", **fields)
    return Answer(status=303, body=b"", media="text/plain", headers={"Location": to})


def row_of(job: JobRecord) -> JobRow:
    if job.finished_at is not None and job.state not in (JobState.PENDING, JobState.RUNNING):
        at, word, took = job.finished_at, "ended", between(job.started_at, job.finished_at)
    elif job.state is JobState.RUNNING and job.started_at is not None:
        at, word, took = job.started_at, "began", ""
    else:
        at, word, took = job.run_at, "due", ""
    return JobRow(job=job, at=at, at_word=word, took=took, detail=detail_of(job))


def detail_of(job: JobRecord) -> str:
    """The one thing worth saying beside the state."""
    if job.cancel_requested and job.state is JobState.RUNNING:
        return "asked to stop"
    if job.waits_for is not None:
        return f"waits for {job.waits_for}"
    if job.error is not None and job.state is not JobState.SUCCEEDED:
        return first_line(f"{job.error.type}: {job.error.message}")
    if job.state is JobState.RUNNING and job.progress is not None:
        return first_line(job.progress)
    return ""


def tabs(call: Call, query: JobsQuery, counts: JobCounts | None) -> list[Tab]:
    fields = {name: value for name, value in query.fields().items() if name != "state"}
    words = ("all", *map(str, STATES))
    return [
        Tab(
            word=word,
            url=call.url("/jobs", **fields, state=None if word == "all" else word),
            count=None if counts is None else matching(counts, None if word == "all" else word),
            is_current=word == (query.state or "all"),
        )
        for word in words
    ]


def matching(counts: JobCounts, state: str | None) -> int:
    """How many there are of a word; pending is what people see as four."""
    if state is None:
        return sum(getattr(counts, word) for word in STATES)
    if state == JobState.PENDING:
        return sum(getattr(counts, word) for word in PENDING)
    return int(getattr(counts, state, 0))


def bulk_acts(call: Call, state: str | None) -> list[Act | None]:
    """What can be done to many jobs of this state."""
    pending, dead = state in (*PENDING, JobState.PENDING), state == JobState.DEAD
    running = state == JobState.RUNNING
    made: list[Act | None] = []
    if pending:
        made.append(
            _bulk(call, "run_now", "Run now", "Make these jobs due at once?", "They come before what is due later.")
        )
    if dead:
        made.append(
            _bulk(
                call,
                "replay",
                "Retry",
                "Give these dead letters a new life?",
                "Each is ready again, with all its retries.",
                name="retry",
                done="{n} retried",
                rate=True,
            )
        )
        made.append(
            _bulk(call, "discard", "Discard", "Discard these dead letters?", _GONE, danger=True, reason="required")
        )
    if pending or running or state is None:
        made.append(
            _bulk(
                call,
                "cancel",
                "Cancel",
                "Cancel these jobs?",
                _CANCEL,
                confirm="Cancel these jobs",
                dismiss="Keep them",
                danger=True,
                reason="required",
            )
        )
    return [one for one in made if one is not None]


_GONE = "They will not be run again. They stay in history until it is pruned."
_CANCEL = "Those that wait never run. Those that run are asked to stop."


def _bulk(call: Call, action: str, label: str, title: str, text: str, **more: object) -> Act | None:
    given: dict[str, object] = {"name": action.replace("_", "-"), "done": f"{label}: {{n}} job{{s}}"} | more
    return act(
        call,
        Role.ADMIN,
        label=label,
        url="/api/v1/jobs/bulk",
        title=title,
        text=text,
        body={"action": action},
        bulk=True,
        **given,  # type: ignore[arg-type]
    )


def _told(record: msgspec.Struct) -> dict[str, object]:
    return {name: value for name, value in msgspec.structs.asdict(record).items() if value is not None}


def _limit(query: JobsQuery) -> int | None:
    return None if query.limit == JobsQuery().limit else query.limit
