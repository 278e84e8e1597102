"""One job: its path with durations, every run with its traceback, arguments and result as stored, and why it does not run."""

from __future__ import annotations

from datetime import datetime

import msgspec

from drumbeat.ids import InstanceId
from drumbeat.model.job import Attempt, JobState, OutcomeKind
from drumbeat.nouns.explaining import Explanation, Reason
from drumbeat.web.api import dead, jobs
from drumbeat.web.api.records import JobRecord, Page
from drumbeat.web.call import Answer, Call, Role

from .acting import Act, act
from .rendering import render
from .showing import between, first_line

LIVE = (JobState.PENDING, JobState.RUNNING)
PLACES = {
    "queue": "/queues/",
    "lock": "/locks/",
    "schedule": "/schedules/",
    "behind": "/jobs/",
    "instance": "/instances/",
}
"""Facts of a reason that have a page of their own."""
AT_ONCE_S = 1.0


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A station of the job's path."""

    state: str
    """Shape and colour."""
    text: str
    at: datetime | None
    after: str = ""
    """How long after the station before."""
    took: str = ""
    instance: InstanceId | None = None
    note: str = ""


class Link(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    path: str


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A reason, with the pages of what it names."""

    reason: Reason
    links: list[Link]


_DISCARDED = Step(
    state="cancelled", text="discarded", at=None, note="It is no dead letter any more; the audit says who decided."
)


async def show(call: Call) -> Answer:
    path = {"id": call.path["id"]}
    job: JobRecord = await call.ask(jobs.show, path=path)
    runs: Page[Attempt] = await call.ask(jobs.attempts, path=path)
    why: Explanation | None = await call.ask(jobs.explain, path=path) if job.state in LIVE else None
    is_letter = job.state is JobState.DEAD and await _is_letter(call, job)
    return await render(
        call,
        "job.html",
        page="jobs",
        title=f"{job.task} {job.id}",
        job=job,
        steps=steps_of(job, runs.items) + ([] if is_letter or job.state is not JobState.DEAD else [_DISCARDED]),
        runs=list(enumerate(runs.items, 1))[::-1],
        why=[] if why is None else [told(reason) for reason in why.reasons],
        acts=acts_of(call, job, is_letter=is_letter),
        between=between,
    )


async def _is_letter(call: Call, job: JobRecord) -> bool:
    """Whether it still waits for a person; somebody may have discarded it."""
    found: Page[JobRecord] = await call.ask(dead.list_, query=dead.DeadListed(id=job.id, limit=1))
    return bool(found.items)


def told(reason: Reason) -> Told:
    links = [
        Link(text=f"{name} {value}", path=PLACES[name] + str(value))
        for name, value in reason.facts.items()
        if name in PLACES and value is not None
    ]
    return Told(reason=reason, links=links)


def steps_of(job: JobRecord, runs: list[Attempt]) -> list[Step]:
    """From its making to its end, or to what comes next."""
    made = f"fired by schedule {job.schedule}" if job.schedule else "enqueued"
    steps = [Step(state="ready", text=made, at=job.created_at)]
    last = job.created_at
    if (job.due_at - job.created_at).total_seconds() > AT_ONCE_S:
        steps.append(Step(state="scheduled", text="due", at=job.due_at, after=between(last, job.due_at)))
        last = job.due_at
    for number, run in enumerate(runs, 1):
        began = run.started_at or run.finished_at
        steps.append(
            Step(
                state=run_state(run.outcome),
                text=f"run {number} {run_word(run.outcome)}",
                at=run.finished_at,
                after=between(last, max(began, last)),
                took=between(run.started_at, run.finished_at) if run.started_at else "",
                instance=run.instance,
                note=first_line(f"{run.error.type}: {run.error.message}") if run.error else "",
            )
        )
        last = run.finished_at
    return [*steps, *_ending(job, runs, last)]


def _ending(job: JobRecord, runs: list[Attempt], last: datetime) -> list[Step]:
    """What the runs do not tell: what is under way, what comes, or an end without a run."""
    if job.state is JobState.RUNNING:
        after = between(last, max(job.started_at, last)) if job.started_at else ""
        text = f"run {len(runs) + 1} is under way"
        return [Step(state="running", text=text, at=job.started_at, after=after, instance=job.instance)]
    if job.state is JobState.PENDING:
        text = "may start" if not runs else "next run"
        return [Step(state=job.view, text=text, at=job.run_at)]
    ended_by_run = runs and run_state(runs[-1].outcome) == job.state
    if ended_by_run or job.finished_at is None:
        return []
    return [
        Step(state=job.state, text=str(job.state), at=job.finished_at, after=between(last, max(last, job.finished_at)))
    ]


def run_word(outcome: OutcomeKind) -> str:
    return {
        OutcomeKind.RETRY: "failed, to be tried again",
        OutcomeKind.DEAD: "failed for the last time",
        OutcomeKind.SNOOZED: "was put off",
        OutcomeKind.RELEASED: "was given back",
        OutcomeKind.PARKED: "was put aside",
        OutcomeKind.CRASHED: "crashed its process",
        OutcomeKind.CANCELLED: "was cancelled",
    }.get(outcome, str(outcome))


def run_state(outcome: OutcomeKind) -> str:
    """The shape and colour of a run's end."""
    return "failed" if outcome is OutcomeKind.RETRY else str(outcome)


def acts_of(call: Call, job: JobRecord, *, is_letter: bool) -> list[Act]:
    address = f"/api/v1/jobs/{job.id}"
    made: list[Act | None] = []
    if is_letter:
        made += _for_letter(call, job, address)
    if job.state is JobState.PENDING:
        made.append(
            act(
                call,
                Role.OPERATOR,
                name="retry",
                label="Run now",
                url=f"{address}/run-now",
                title="Make this job due at once?",
                text="It takes its place in the line as if its moment had come.",
                done="It is due now",
            )
        )
    if job.state in LIVE:
        running = job.state is JobState.RUNNING
        made.append(
            act(
                call,
                Role.OPERATOR,
                name="cancel",
                label="Cancel",
                url=f"{address}/cancel",
                title="Cancel this job?",
                text="It is asked to stop, and may still end otherwise." if running else "It will never run.",
                confirm="Cancel the job",
                dismiss="Keep it",
                done="It was asked to stop" if running else "It is cancelled",
                danger=True,
            )
        )
    return [one for one in made if one is not None]


def _for_letter(call: Call, job: JobRecord, address: str) -> list[Act | None]:
    return [
        act(
            call,
            Role.OPERATOR,
            name="retry",
            label="Retry",
            url=f"{address}/retry",
            title="Give this job a new life?",
            text="It is ready again, with all its retries.",
            done="It is ready again",
        ),
        act(
            call,
            Role.ADMIN,
            name="discard",
            label="Discard",
            url=f"/api/v1/dead/{job.id}/discard",
            title="Discard this dead letter?",
            text="It will not be run again. It stays in history until that is pruned.",
            done="It is discarded",
            danger=True,
            reason="required",
        ),
    ]
