"""Jobs: search, tabs with counts, the table, and acts on selected or all matching jobs."""

from __future__ import annotations

from datetime import datetime

import msgspec
from starlette.responses import Response

from drumbeat.admin.bulk import Action
from drumbeat.admin.explain.parents import describe_blocked_on
from drumbeat.admin.explain.suspended import describe_suspension, never_ends
from drumbeat.core.job import JobState, PendingView
from drumbeat.core.job_query import JobCounts
from drumbeat.errors import InvalidArguments
from drumbeat.ids import is_job_id
from drumbeat.web.api import jobs
from drumbeat.web.api.records import JobRecord, Page
from drumbeat.web.request import DashboardRequest

from .action_button import DANGER, ActionButton, build_button, replay_and_discard_buttons
from .formatting import between, field_time, first_line
from .layout import render_page
from .search_query import ENDED_FIELDS, STATES, JobsPageQuery, parse_search, parse_time, to_counts_query, to_list_query

PENDING = tuple(PendingView)
TIMES = (("15m", "last 15 min"), ("1h", "last hour"), ("24h", "last 24 h"), ("7d", "last 7 days"))


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table."""

    job: JobRecord
    at: datetime | None
    """When it is due, started or ended, by its state; None: it waits for a signal, however long that takes."""
    at_word: str
    took: str
    detail: str


class Tab(msgspec.Struct, frozen=True, kw_only=True):
    word: str
    url: str
    count: int | None
    is_current: bool


async def show_list(request: DashboardRequest, query: JobsPageQuery) -> Response:
    try:
        if query.q:
            return await _redirect_search(request, query)
        now = await request.store_time()
        if query.window is not None:
            return _redirect_window(request, query)
        page = await jobs.list_jobs(request, to_list_query(query, now))
        if query.is_past:
            # Counts and bulk acts by filter do not support end times: only selected jobs can be acted on.
            return await _render_list(request, query, page)
        chosen = to_counts_query(query, now)
        counts = await jobs.count_jobs(request, msgspec.structs.replace(chosen, state=None))
    except InvalidArguments as error:
        return await _render_list(request, query, Page(items=[]), error=error)
    return await _render_list(request, query, page, counts, msgspec.json.encode(_without_none(chosen)).decode())


async def _render_list(
    request: DashboardRequest,
    query: JobsPageQuery,
    page: Page[JobRecord],
    counts: JobCounts | None = None,
    filter: str = "{}",
    error: InvalidArguments | None = None,
) -> Response:
    """Without counts: not counted. With an error: why the search is invalid."""
    fields = query.fields()
    return await render_page(
        request,
        "jobs.html",
        page="jobs",
        title=f"{query.state or 'all'} jobs".capitalize(),
        status=422 if error else 200,
        fields=query,
        hidden=("instance", "parent", "workflow", "until", "id", "id_end", *ENDED_FIELDS),
        is_narrowed=bool(set(fields) - {"state"}),
        is_past=query.is_past,
        tabs=[] if error else tabs(request, query, counts),
        times=TIMES,
        window=_window_of(query),
        rows=[row_of(job) for job in page.items],
        acts=[] if error else bulk_buttons(request, query.state),
        filter=filter,
        matching=len(page.items) if counts is None else count_in_state(counts, query.state),
        capped=counts is not None and counts.capped,
        older=request.link_to("/jobs", **fields, before=page.next, limit=_limit(query)) if page.next else None,
        newest=request.link_to("/jobs", **fields) if query.before else None,
        export=None if error else request.link_to("/jobs/export", **fields),
        error=error,
        q=query.q or "",
    )


async def _redirect_search(request: DashboardRequest, query: JobsPageQuery) -> Response:
    fields = query.fields() | await parse_search(request, query.q or "")
    id = fields.get("id", "")
    to = request.link_to(f"/jobs/{id}") if is_job_id(id) else request.link_to("/jobs", **fields)
    return Response(status_code=303, headers={"Location": to})


def _redirect_window(request: DashboardRequest, query: JobsPageQuery) -> Response:
    """To the URL of the window, which can be shared."""
    fields: dict[str, str | None] = {**query.fields(), **query.window_fields()}
    return Response(status_code=303, headers={"Location": request.link_to("/jobs", **fields)})


def row_of(job: JobRecord) -> JobView:
    at: datetime | None
    if job.finished_at is not None and job.state not in (JobState.PENDING, JobState.RUNNING):
        at, word, took = job.finished_at, "ended", between(job.started_at, job.finished_at)
    elif job.state is JobState.RUNNING and job.started_at is not None:
        at, word, took = job.started_at, "began", ""
    else:
        at, took = None if never_ends(job.run_at) else job.run_at, ""
        word = "due" if job.suspended is None else "until"
    return JobView(job=job, at=at, at_word=word, took=took, detail=detail_of(job))


def detail_of(job: JobRecord) -> str:
    """The most important detail besides the state."""
    if job.cancel_requested and job.state is JobState.RUNNING:
        return "asked to stop"
    if (wait := describe_blocked_on(job.blocked_on, job.open_parents)) is not None:
        return f"waits for {wait}"
    if job.state is JobState.PENDING and job.suspended is not None:
        return describe_suspension(job.suspended)
    if job.error is not None and job.state is not JobState.SUCCEEDED:
        return first_line(f"{job.error.type}: {job.error.message}")
    if job.state is JobState.RUNNING and job.progress is not None:
        return first_line(job.progress)
    return ""


def tabs(request: DashboardRequest, query: JobsPageQuery, counts: JobCounts | None) -> list[Tab]:
    fields = {name: value for name, value in query.fields().items() if name != "state"}
    words = ("all", *map(str, STATES))
    return [
        Tab(
            word=word,
            url=request.link_to("/jobs", **fields, state=None if word == "all" else word),
            count=None if counts is None else count_in_state(counts, None if word == "all" else word),
            is_current=word == (query.state or "all"),
        )
        for word in words
    ]


def count_in_state(counts: JobCounts, state: str | None) -> int:
    """The number of jobs in a state or view; pending is the sum of four views."""
    if state is None:
        return sum(getattr(counts, word) for word in STATES)
    if state == JobState.PENDING:
        return sum(getattr(counts, word) for word in PENDING)
    return int(getattr(counts, state, 0))


def bulk_buttons(request: DashboardRequest, state: str | None) -> list[ActionButton]:
    """The bulk acts for jobs of this state."""
    pending, dead = state in (*PENDING, JobState.PENDING), state == JobState.DEAD
    running = state == JobState.RUNNING
    made: list[ActionButton | None] = []
    if pending:
        made.append(
            build_button(
                request,
                jobs.act_on_many,
                "Run now",
                "Run these jobs now?",
                name="run-now",
                text="They become due now.",
                body={"action": Action.RUN_NOW},
                done="Run now: {n} job{s}",
                bulk=True,
            )
        )
    if dead:
        made += replay_and_discard_buttons(request)
    if pending or running or state is None:
        made.append(
            build_button(
                request,
                jobs.act_on_many,
                "Cancel",
                "Cancel these jobs?",
                name="cancel",
                text="Pending jobs never run. Running jobs are asked to stop.",
                confirm="Cancel these jobs",
                dismiss="Back",
                body={"action": Action.CANCEL},
                done="Cancel: {n} job{s}",
                bulk=True,
                **DANGER,
            )
        )
    return list(filter(None, made))


def _window_of(query: JobsPageQuery) -> tuple[str, str, str]:
    """Of the form: made or ended, from, to; absolute times only."""
    kind = "ended" if query.is_past else "made"
    since, until = (query.ended_since, query.ended_until) if query.is_past else (query.since, query.until)
    return kind, _to_field(since), _to_field(until)


def _to_field(text: str | None) -> str:
    try:
        return "" if text is None else field_time(parse_time(text, datetime.fromisoformat(text), "since"))
    except (ValueError, OverflowError):
        return ""  # relative, or outside of the years that UTC has


def _without_none(record: msgspec.Struct) -> dict[str, object]:
    return {name: value for name, value in msgspec.structs.asdict(record).items() if value is not None}


def _limit(query: JobsPageQuery) -> int | None:
    return None if query.limit == JobsPageQuery().limit else query.limit
