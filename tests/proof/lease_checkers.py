"""J15: no live lease is ever stolen."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.proof.excuses import has_fault
from tests.proof.history import BeatSent, History, Started
from tests.proof.registry import promise

MIN_UNKNOWN_SECONDS = 2.0
"""A worker gives up a claim whose answer it does not have after this time, not before."""


@promise
def live_leases_are_kept(history: History) -> Iterator[str]:
    """J15: two runs of a job overlap only where the first one's node was disturbed."""
    ends = {end.run: end.at for end in history.ended}
    runs: dict[str, list[Started]] = defaultdict(list)
    for run in history.started:
        runs[run.job].append(run)
    for job, started in runs.items():
        started = sorted(started, key=lambda run: run.at)
        for one, other in pairwise(started):
            if ends.get(one.run, history.ended_at) > other.at and not is_disturbed(history, one, other.at):
                yield f"J15: {job} ran on {one.node} when {other.node} began it, and nothing had happened to {one.node}"


def is_disturbed(history: History, run: Started, until: float) -> bool:
    """Whether something happened that can take the run from its node: to the process, or to calls about its lease."""
    return has_fault(history, run.node, run.at - history.grace, until, calls=("instances.", "jobs.report_and_claim"))


@promise
def observers_were_alive(history: History) -> Iterator[str]:
    """J15: only an instance that was silent for `dead_after` is declared dead, and only by an observer none of whose own
    heartbeats failed in that time."""
    by_node: dict[str, list[BeatSent]] = defaultdict(list)
    by_instance: dict[str, list[BeatSent]] = defaultdict(list)
    for beat in history.beats:
        by_node[beat.node].append(beat)
        by_instance[beat.instance].append(beat)
    for death in history.deaths:
        since = death.at - history.dead_after + 0.000_001
        for beat in by_node[death.by]:
            if beat.answered_at is None and since < beat.asked_at < death.at:
                yield (
                    f"J15: {death.by} had {death.instance} declared dead at {death.at:.3f}, and its own heartbeat of"
                    f" {beat.asked_at:.3f} had failed"
                )
        for beat in by_instance[death.instance]:
            if beat.answered_at is not None and since < beat.asked_at and beat.answered_at < death.at:
                yield f"J15: {death.instance} was declared dead at {death.at:.3f}, and had a heartbeat at {beat.asked_at:.3f}"


@promise
def claims_are_waited_for(history: History) -> Iterator[str]:
    """J15: a worker gives up no claim whose answer arrives within two seconds."""
    claims = {(claim.job, claim.token): claim for claim in history.claims}
    for release in history.releases:
        claim = claims.get((release.job, release.token))
        if claim is None or claim.answered_at is None or claim.node != release.node:
            continue
        if release.at < claim.answered_at < claim.at + MIN_UNKNOWN_SECONDS:
            yield (
                f"J15: {release.node} gave up its claim of {release.job} with token {release.token} at {release.at:.3f}; the"
                f" answer took {claim.answered_at - claim.at:.3f} s"
            )


@promise
def lost_claims_do_not_start(history: History) -> Iterator[str]:
    """J15: a worker that was told that its instance is dead starts nothing that was claimed for it."""
    told: dict[str, float] = {}
    for beat in history.beats:
        if beat.answered_at is not None and not beat.is_alive:
            told.setdefault(beat.instance, beat.answered_at)
    claims = {(claim.job, claim.token): claim for claim in history.claims}
    for run in history.started if told else ():
        claim = claims.get((run.job, run.token))
        if claim is not None and run.at > told.get(claim.instance, history.ended_at):
            yield (
                f"J15: {run.node} started {run.job} with token {run.token} at {run.at:.3f}, and was told at"
                f" {told[claim.instance]:.3f} that its claims are lost"
            )
