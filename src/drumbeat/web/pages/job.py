"""One job: its path with durations, runs with tracebacks, arguments and result, and why it is not running."""

from __future__ import annotations

from datetime import datetime

import msgspec
from starlette.responses import Response

from drumbeat.admin.explain.parents import describe_blocked_on
from drumbeat.admin.explain.reason import Reason
from drumbeat.admin.explain.suspended import describe_suspension, never_ends
from drumbeat.core.job import Attempt, JobState, OutcomeKind
from drumbeat.core.suspension import awaited_signal
from drumbeat.ids import InstanceId, is_job_id
from drumbeat.web.api import dead, job_steps, jobs
from drumbeat.web.api.records import JobRecord
from drumbeat.web.api.workflows import find_workflow
from drumbeat.web.request import DashboardRequest

from .action_button import DANGER, ActionButton, build_button
from .formatting import between, first_line, short_id
from .job_records import record_views
from .layout import render_page
from .limits import lane_view
from .timeline_items import RUN_STYLES

LIVE = (JobState.PENDING, JobState.RUNNING)
FACT_PATHS = {
    "queue": "/queues/",
    "lock": "/locks/",
    "schedule": "/schedules/",
    "behind": "/jobs/",
    "instance": "/instances/",
    "parent": "/jobs/",
    "parents": "/jobs/",
    "workflow": "/workflows/",
}
"""Facts of a reason that have a page; several ids are separated by spaces."""
MIN_DELAY_SECONDS = 1.0
MAX_DESCENDANTS = 30
"""Of its tree; the rest is on further pages."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A step of the job's path."""

    state: str
    """CSS class and icon."""
    text: str
    at: datetime | None
    after: str = ""
    """Time since the previous step."""
    took: str = ""
    instance: InstanceId | None = None
    note: str = ""


class ReasonView(msgspec.Struct, frozen=True, kw_only=True):
    """A reason with links to what it names."""

    reason: Reason
    links: list[tuple[str, str]]
    """Text and path."""


_DISCARDED = Step(state="cancelled", text="discarded", at=None, note="It is no longer a dead letter; see the audit.")


class JobPageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Query of the page of a job."""

    children_before: str | None = None
    """The next page of its children."""


async def show(request: DashboardRequest, id: str, query: JobPageQuery) -> Response:
    job = await jobs.show(request, id)
    lineage = await jobs.show_lineage(
        request, id, jobs.LineageQuery(before=query.children_before, limit=MAX_DESCENDANTS)
    )
    runs = await jobs.load_attempts(request, job.id)
    recorded = await job_steps.load_steps(request, job.id)
    parents = await request.app.jobs.parents(id, limit=jobs.MAX_LINKS)
    children = await request.app.jobs.children(id, limit=jobs.MAX_LINKS)
    reasons = await _load_reasons(request, job)
    is_letter = job.state is JobState.DEAD and await _is_dead_letter(request, job)
    return await render_page(
        request,
        "job.html",
        page="jobs",
        title=f"{job.task} {job.id}",
        job=job,
        suspension=describe_suspension(job.suspended) if job.suspended and job.state is JobState.PENDING else None,
        steps=steps_of(job, runs) + ([] if is_letter or job.state is not JobState.DEAD else [_DISCARDED]),
        runs=list(enumerate(runs, 1))[::-1],
        reasons=[reason_view(reason) for reason in reasons],
        acts=job_buttons(request, job, is_letter=is_letter),
        between=between,
        records=record_views(recorded, await request.store_time()),
        lineage=lineage,
        parents=parents,
        children=children,
        max_links=jobs.MAX_LINKS,
        lane=await lane_view(request, job.queue, job.lane) if job.lane and job.state in LIVE else None,
        workflow=None if job.workflow is None else await find_workflow(request, job.workflow),
        older=request.link_to(f"/jobs/{id}", children_before=lineage.next) if lineage.next else None,
        newest=request.link_to(f"/jobs/{id}") if query.children_before else None,
    )


async def _load_reasons(request: DashboardRequest, job: JobRecord) -> list[Reason]:
    """Of a live job, and of one that was cancelled because of others."""
    if job.state not in (*LIVE, JobState.CANCELLED):
        return []
    found = (await jobs.explain(request, job.id)).reasons
    return found if job.state in LIVE else [each for each in found if {"parent", "workflow"} & each.facts.keys()]


async def _is_dead_letter(request: DashboardRequest, job: JobRecord) -> bool:
    """Whether it is a dead letter; it may have been discarded."""
    return bool((await dead.list_dead_letters(request, dead.DeadLettersQuery(id=job.id, limit=1))).items)


def reason_view(reason: Reason) -> ReasonView:
    links = [
        (f"{name.removesuffix('s')} {short_id(each) if is_job_id(each) else each}", FACT_PATHS[name] + each)
        for name, value in reason.facts.items()
        if name in FACT_PATHS and value is not None
        for each in str(value).split()
    ]
    return ReasonView(reason=reason, links=links)


def steps_of(job: JobRecord, runs: list[Attempt]) -> list[Step]:
    """From creation to the end, or to the next step."""
    made = f"fired by schedule {job.schedule}" if job.schedule else "enqueued"
    steps = [Step(state="ready", text=made, at=job.created_at)]
    last = job.created_at
    if (job.due_at - job.created_at).total_seconds() > MIN_DELAY_SECONDS:
        steps.append(Step(state="scheduled", text="due", at=job.due_at, after=between(last, job.due_at)))
        last = job.due_at
    for number, run in enumerate(runs, 1):
        began = run.started_at or run.finished_at
        steps.append(
            Step(
                state=outcome_style(run.outcome),
                text=f"run {number} {describe_outcome(run.outcome)}",
                at=run.finished_at,
                after=between(last, max(began, last)),
                took=between(run.started_at, run.finished_at) if run.started_at else "",
                instance=run.instance,
                note=first_line(f"{run.error.type}: {run.error.message}") if run.error else "",
            )
        )
        last = run.finished_at
    return [*steps, *_final_steps(job, runs, last)]


def _final_steps(job: JobRecord, runs: list[Attempt], last: datetime) -> list[Step]:
    """The current or next run, or an end without a run."""
    if job.state is JobState.RUNNING:
        after = between(last, max(job.started_at, last)) if job.started_at else ""
        text = f"run {len(runs) + 1} in progress"
        return [Step(state="running", text=text, at=job.started_at, after=after, instance=job.instance)]
    if job.state is JobState.PENDING:
        text = "may start" if not runs else "next run"
        if job.suspended is not None:
            until = None if never_ends(job.run_at) else job.run_at
            return [Step(state="suspended", text=describe_suspension(job.suspended), at=until)]
        if (wait := describe_blocked_on(job.blocked_on, job.open_parents)) is not None:
            return [Step(state=job.view, text=f"waits for {wait}", at=job.run_at)]
        return [Step(state=job.view, text=text, at=job.run_at)]
    ended_by_run = runs and outcome_style(runs[-1].outcome) == job.state
    if ended_by_run or job.finished_at is None:
        return []
    return [
        Step(state=job.state, text=str(job.state), at=job.finished_at, after=between(last, max(last, job.finished_at)))
    ]


def describe_outcome(outcome: OutcomeKind) -> str:
    return "failed, will retry" if outcome is OutcomeKind.RETRY else RUN_STYLES[outcome][1]


def outcome_style(outcome: OutcomeKind) -> str:
    """CSS class and icon of an outcome."""
    return "failed" if outcome is OutcomeKind.RETRY else str(outcome)


def job_buttons(request: DashboardRequest, job: JobRecord, *, is_letter: bool) -> list[ActionButton]:
    made: list[ActionButton | None] = []
    if is_letter:
        made += _dead_letter_buttons(request, job)
    if job.state is JobState.PENDING and awaited_signal(job.suspended) is None and not job.open_parents:
        made.append(
            build_button(
                request,
                jobs.run_now,
                "Run now",
                "Run this job now?",
                of=job.id,
                text="It becomes due now.",
                done="It is due now",
            )
        )
    if job.state in LIVE:
        running = job.state is JobState.RUNNING
        made.append(
            build_button(
                request,
                jobs.cancel,
                "Cancel",
                "Cancel this job?",
                of=job.id,
                text="It is asked to stop; it may still finish first." if running else "It will never run.",
                confirm="Cancel the job",
                dismiss="Back",
                done="It was asked to stop" if running else "It is cancelled",
                danger=True,
            )
        )
    return list(filter(None, made))


def _dead_letter_buttons(request: DashboardRequest, job: JobRecord) -> list[ActionButton | None]:
    return [
        build_button(
            request,
            dead.replay,
            "Replay",
            "Replay this job?",
            of=job.id,
            text="It is ready again, with all its retries.",
            done="It is ready again",
        ),
        build_button(
            request,
            dead.discard,
            "Discard",
            "Discard this dead letter?",
            of=job.id,
            text="It will not run again. It stays in history until it is pruned.",
            done="It is discarded",
            **DANGER,
        ),
    ]
