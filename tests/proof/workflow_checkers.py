"""W1 to W3: children start after their parents, none is lost, and what has finished does not run again."""

from collections import defaultdict
from collections.abc import Iterator

from tests.proof.history import Depends, History, JobRecord, Started
from tests.proof.registry import promise

LIVE = {"pending", "running"}
DEATHS = {"dead", "crashed"}


def parents_of(history: History) -> dict[str, list[Depends]]:
    """The edges of jobs that exist, by child; a graph that was refused has none."""
    known = {job.id for job in history.jobs}
    found: dict[str, list[Depends]] = defaultdict(list)
    for edge in history.depends:
        if edge.child in known and edge.parent in known:
            found[edge.child].append(edge)
    return found


def tokens_of(job: JobRecord, outcome: str = "") -> list[int]:
    return [attempt.token for attempt in job.attempts if outcome in ("", attempt.outcome)]


@promise
def children_start_after_their_parents(history: History) -> Iterator[str]:
    """W1: a child starts when its parents have ended as it demands: succeeded, or in any way (if_fails="run"). A run that a
    power cut has made forgotten is none."""
    if not history.depends:
        return
    jobs = {job.id: job for job in history.jobs}
    ends = {end.run: end.at for end in history.ended}
    runs = {(run.job, run.token): run for run in history.started}
    for child, edges in parents_of(history).items():
        for token in tokens_of(jobs[child]):
            run = runs.get((child, token))
            for edge in edges if run is not None else ():
                problem = _begins_too_early(run, edge, jobs[edge.parent], runs, ends)
                if problem:
                    yield f"W1: {child} was started, and its parent {edge.parent} (if_fails={edge.if_fails}) {problem}"


def _begins_too_early(
    run: Started | None,
    edge: Depends,
    parent: JobRecord,
    runs: dict[tuple[str, int], Started],
    ends: dict[int, float],
) -> str:
    """In which state the parent was; empty: as it should."""
    if run is None:
        return ""
    if edge.if_fails != "run":
        accepted = [runs[parent.id, token] for token in tokens_of(parent, "succeeded") if (parent.id, token) in runs]
        if not accepted:
            return f"is {parent.state}"
        return "" if any(ends.get(each.run, run.at) <= run.at for each in accepted) else "succeeded later"
    if parent.replays:
        return ""  # it was met by the end of an earlier life
    if parent.state in LIVE:
        return f"is {parent.state}"
    later = [token for token in tokens_of(parent) if (parent.id, token) in runs and runs[parent.id, token].at > run.at]
    return "ran later" if later else ""


@promise
def no_child_is_lost(history: History) -> Iterator[str]:
    """W2: a child whose parents have all ended does not wait, and is cancelled for a parent's failure only while one has
    failed, or if a person has cancelled it since: then no replay of the parent revives it (X1, X2). Without an answer the
    cancellation may have done so."""
    jobs = {job.id: job for job in history.jobs}
    kept = {cancel.job for cancel in history.cancels if cancel.answer in ("cancelled", "")}
    for child, edges in parents_of(history).items():
        record, parents = jobs[child], [(edge, jobs[edge.parent].state) for edge in edges]
        if record.waits_for_parents and not any(state in LIVE for _, state in parents):
            yield f"W2: {child} waits for parents, and all of them have ended"
        failed = any(edge.if_fails != "run" and state not in {*LIVE, "succeeded"} for edge, state in parents)
        if record.state == "cancelled" and record.error == "ParentFailed" and not failed and child not in kept:
            yield f"W2: {child} was cancelled because of a parent, and none of them has failed"


@promise
def finished_jobs_stay_finished(history: History) -> Iterator[str]:
    """W3: nothing runs after its success, and a life begins anew only for a replay: of the job, or of a parent whose failure
    had cancelled it."""
    jobs, edges = {job.id: job for job in history.jobs}, parents_of(history)
    for job in history.jobs:
        tokens, successes = tokens_of(job), tokens_of(job, "succeeded")
        if successes and tokens and max(tokens) > min(successes):
            yield f"W3: {job.id} ran again after it had succeeded"
        deaths = sum(attempt.outcome in DEATHS for attempt in job.attempts)
        above = sum(jobs[edge.parent].replays for edge in edges.get(job.id, ()) if edge.if_fails != "run")
        if job.id in edges and job.replays > deaths + above:
            yield f"W3: {job.id} has had {job.replays} replays, its parents {above}, and it died {deaths} times"
