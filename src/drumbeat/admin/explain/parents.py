"""What a job that depends on others waits for, and why one was cancelled that others ended. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from drumbeat.admin.explain.reason import Fact, Reason, ReasonKind
from drumbeat.core.dependencies import BLOCKED_ON_PARENTS, ParentLink, failed_parent
from drumbeat.core.job import Job, JobState
from drumbeat.core.workflow import Workflow
from drumbeat.durations import format_ago, format_utc, to_iso
from drumbeat.plural import format_count
from drumbeat.redaction import mask_urls

MAX_NAMED_PARENTS = 3


def describe_wait(job: Job) -> str | None:
    """What a blocked job waits for, in a few words; None: it is not blocked."""
    return describe_blocked_on(job.blocked_on, job.open_parents)


def describe_blocked_on(blocked_on: str | None, open_parents: int | None) -> str | None:
    if blocked_on == BLOCKED_ON_PARENTS and open_parents:
        return format_count(open_parents, "parent")
    return blocked_on


def explain_parents(job: Job, parents: Sequence[ParentLink]) -> Iterator[Reason]:
    """`parents` are some of them, open ones first. What a person must decide on is told first, and only once."""
    if job.blocked_on != BLOCKED_ON_PARENTS:
        return
    letters = dead_letters(parents)
    for letter in letters[:MAX_NAMED_PARENTS]:
        facts: dict[str, Fact] = {"parent": letter.id, "task": letter.task}
        yield Reason(kind=ReasonKind.DEAD_LETTER, text=describe_dead_letter(letter), facts=facts)
    if 0 < (job.open_parents or 0) == len(letters) <= MAX_NAMED_PARENTS:
        return
    named = " ".join(each.id for each in open_links(parents)[:MAX_NAMED_PARENTS])
    text = describe_open_parents(job, parents)
    yield Reason(kind=ReasonKind.PARENTS, text=text, facts={"open": job.open_parents, "parents": named})


def explain_cancelled_workflow(workflow: Workflow | None, now: int) -> Reason | None:
    """Of a job that has not ended."""
    if workflow is None or workflow.cancelled_at is None:
        return None
    at = workflow.cancelled_at
    text = f"its workflow {workflow.name!r} was cancelled at {format_utc(at)} ({format_ago(at, now)})"
    facts: dict[str, Fact] = {"workflow": workflow.id, "at": to_iso(at)}
    return Reason(kind=ReasonKind.WORKFLOW_CANCELLED, text=f"{text}: nothing new of it starts", facts=facts)


def cancelled_because(job: Job, workflow: Workflow | None) -> str:
    """The rest of a sentence about a cancelled job; empty: a person or a program cancelled it by itself."""
    if job.error is not None and failed_parent(job.error) is not None:
        return f", because {mask_urls(job.error.message)}"
    return "" if workflow is None else f": its workflow {workflow.name!r} was cancelled"


def open_links(parents: Sequence[ParentLink]) -> list[ParentLink]:
    return [each for each in parents if each.is_open]


def dead_letters(parents: Sequence[ParentLink]) -> list[ParentLink]:
    """Those that somebody must replay or discard before the child can go on."""
    return [each for each in open_links(parents) if each.state is JobState.DEAD]


def describe_open_parents(job: Job, parents: Sequence[ParentLink]) -> str:
    """A sentence; `parents` are the first few of them."""
    named = [_name(each) for each in open_links(parents)[:MAX_NAMED_PARENTS]]
    count = max(job.open_parents or 0, len(named))
    if not named:
        return f"it waits for {format_count(count, 'parent')}"
    if count == 1:
        return f"it waits for its parent {named[0]}"
    more = f" and {count - len(named):,} more" if count > len(named) else ""
    return f"it waits for {count:,} of its parents: {', '.join(named)}{more}"


def describe_dead_letter(parent: ParentLink) -> str:
    """A sentence about a parent that died while the child's policy is to wait."""
    return (
        f"it waits for the dead letter {parent.id} (task {parent.task}) to be replayed: "
        f"`drumbeat dead replay {parent.id}` does that, and discarding it cancels this job"
    )


def _name(parent: ParentLink) -> str:
    state = "no longer on record" if parent.state is None else str(parent.state)
    return f"{parent.id} ({f'task {parent.task}, ' if parent.task else ''}{state})"
