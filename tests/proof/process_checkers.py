"""J9, J10, X3, D1, D2, O1, C1, C2: what processes claim, run and lead, from their start to their end."""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tests.proof.excuses import find_life, has_fault, has_other_fault, has_steady_node, is_within, power_cuts
from tests.proof.history import BeatReceived, ClaimedRef, History, NodeLife, Started
from tests.proof.registry import promise

MAX_CANCEL_SECONDS = 2.0
MAX_RETURN_SECONDS = 5.0
MAX_ELECTION_SECONDS = 1.0
MAX_FAILED_BEATS = 30
BEAT_CALLS = ("instances.",)
INTERRUPTION_CALLS = ("instances.", "locks.")
"""A handler that is interrupted in the block of a lock ends when its release is answered."""
CLAIM_CALLS = ("jobs.report_and_claim", "jobs.list_running", "instances.")


@promise
def oldest_first(history: History) -> Iterator[str]:
    """J9: of a queue and priority the oldest due job is claimed first, but for what other claimers take meanwhile. Jobs under
    limits have their own order."""
    if history.max_displaced is None:
        return
    stored_at = {
        call.id: call.answered_at for call in history.enqueued if call.answered_at is not None and call.existing is None
    }
    children = {edge.child for edge in history.depends}  # nobody knows since when they can be claimed
    oldest_token = {job.id: min((each.token for each in job.attempts), default=math.inf) for job in history.jobs}
    claims = [claim for claim in history.claims_performed if claim.end is not None and claim.jobs]
    seen: set[str] = set()
    for number, claim in enumerate(claims):
        for job in claim.jobs:
            is_first = job.job not in seen and job.token <= oldest_token.get(job.job, math.inf)
            seen.add(job.job)
            if job.job not in stored_at or job.job in children or not is_first or job.lane:
                continue
            passed = [
                other.job
                for before in claims[:number]
                if before.end is not None and before.end < claim.start and before.start > stored_at[job.job]
                for other in before.jobs
                if job.run_at <= before.now and _is_younger(other, job)
            ]
            if len(passed) > history.max_displaced:
                yield f"J9: {job.job} was due at {job.run_at}, and {passed} were claimed before it"


def _is_younger(other: ClaimedRef, job: ClaimedRef) -> bool:
    same = (other.queue, other.priority, other.lane) == (job.queue, job.priority, "")
    return same and other.run_at > job.run_at and other.job != job.job


@promise
def concurrency_is_limited(history: History) -> Iterator[str]:
    """J10: a process never runs more handlers at once than it may."""
    ends = {end.run: end.at for end in history.ended}
    by_node = _runs_by_node(history)
    for life in history.lives:
        if life.concurrency is None:
            continue
        changes = []
        for run in by_node[life.node]:
            if run.run in ends and is_within(life, run.at):
                changes += [(run.at, 1), (ends[run.run], -1)]
        running = 0
        for at, change in sorted(changes):  # at the same time, an end before a start
            running += change
            if running > life.concurrency:
                yield f"J10: {life.node} ran {running} handlers at {at:.3f}, and may run {life.concurrency}"
                break


def _runs_by_node(history: History) -> dict[str, list[Started]]:
    runs: dict[str, list[Started]] = defaultdict(list)
    for run in history.started:
        runs[run.process or run.node].append(run)
    return runs


@promise
def cancellations_are_heard(history: History) -> Iterator[str]:
    """X3: a running job hears of its cancellation within 2 s."""
    tasks = {job.id: job.task for job in history.jobs}
    ends = {end.run: end.at for end in history.ended}
    runs: dict[str, list[Started]] = defaultdict(list)
    for run in history.started:
        runs[run.job].append(run)
    for cancel in history.cancels:
        if cancel.answer != "requested" or tasks.get(cancel.job) not in history.interruptible:
            continue
        by = cancel.at + MAX_CANCEL_SECONDS
        for run in runs[cancel.job]:
            life = find_life(history, run.node, run.at)
            if run.run not in ends and life is None:
                continue  # its process may have died
            over = ends.get(run.run, math.inf if life is None or life.end is None else life.end)
            since = cancel.at if life is not None else cancel.at - MAX_RETURN_SECONDS
            if (
                run.at <= cancel.at
                and over > by
                and by < history.ended_at
                and not has_fault(history, run.node, since, by, calls=INTERRUPTION_CALLS)
            ):
                yield f"X3: {cancel.job} was told to stop at {cancel.at:.3f}, and {run.node} ran it at {by:.3f}"


@promise
def stopping_processes_claim_nothing(history: History) -> Iterator[str]:
    """D1: after SIGTERM no claim."""
    for claim in history.claims_performed:
        life = find_life(history, claim.node, claim.start)
        if life is None or life.stop_asked_at is None or claim.start <= life.stop_asked_at:
            continue
        # A request that was on its way by then arrives later.
        if not has_other_fault(history, life, life.stop_asked_at, life.stop_asked_at, calls=CLAIM_CALLS):
            yield f"D1: {claim.node} was asked to stop at {life.stop_asked_at:.3f} and claimed at {claim.start:.3f}"


@promise
def stopped_processes_leave_nothing(history: History) -> Iterator[str]:
    """D2: at the exit of a process that was asked to stop each of its jobs is finished, or released uncharged."""
    ends = {end.run: end for end in history.ended}
    outcomes = {(job.id, each.token): each.outcome for job in history.jobs for each in job.attempts}
    crashed = {claim for claim, outcome in outcomes.items() if outcome == "crashed"}
    by_node = _runs_by_node(history)
    for life in history.lives:
        if life.ending != "stopped" or life.end is None:
            continue
        for run in by_node[life.node]:
            if not is_within(life, run.at):
                continue
            end = ends.get(run.run)
            if end is None or end.at > life.end:
                yield f"D2: {life.node} stopped at {life.end:.3f}, and its run {run.run} of {run.job} had not ended"
            elif (
                end.result is not None
                and outcomes.get((run.job, run.token)) == "released"
                and not has_other_fault(history, life, run.at - history.grace, life.end)
            ):
                yield f"D2: {life.node} stopped at {life.end:.3f}, and gave {run.job} back, which had returned"
        for claim in history.claims_performed:
            if claim.node != life.node or not is_within(life, claim.start):
                continue
            charged = [job.job for job in claim.jobs if (job.job, job.token) in crashed]
            if charged and not has_other_fault(history, life, claim.start - history.grace, life.end):
                yield f"D2: {life.node} stopped in order at {life.end:.3f}, and {charged} were charged with a crash"


@promise
def processes_survive_outages(history: History) -> Iterator[str]:
    """O1: a process ends by itself only after a long outage, and works again within 5 s of the store's return."""
    beats: dict[str, list[float]] = defaultdict(list)
    for beat in history.beats_received:
        beats[beat.node].append(beat.at)
    for life in history.lives:
        if life.ending == "left" and not _had_long_outage(history, life):
            yield f"O1: {life.node} ended by itself at {life.end:.3f}"
        if not history.beats_received:
            continue
        end = history.ended_at if life.end is None else life.end
        end = end if life.stop_asked_at is None else min(end, life.stop_asked_at)
        times = [life.start, *(at for at in beats[life.node] if life.start <= at <= end), end]
        for before, after in pairwise(times):
            if (
                after - before > MAX_RETURN_SECONDS
                and (since := _last_fault(history, life.node, before, after)) < after
            ):
                yield f"O1: {life.node} had no fault from {since:.3f} on, and no heartbeat before {after:.3f}"


def _last_fault(history: History, node: str, start: float, end: float) -> float:
    """From when on a heartbeat was overdue: 5 s after the last fault between these times, or after `start`."""
    faults = [
        fault.end
        for fault in history.disturbances
        if fault.node in (None, node)
        and fault.start <= end
        and fault.end >= start
        and (fault.call is None or fault.call.startswith(BEAT_CALLS))
    ]
    return max([start, *faults]) + MAX_RETURN_SECONDS


def _had_long_outage(history: History, life: NodeLife) -> bool:
    return life.end is not None and any(
        fault.node in (None, life.node)
        and fault.end - fault.start >= MAX_FAILED_BEATS * history.heartbeat
        and life.start <= fault.end
        and fault.start <= (life.end or 0.0)
        for fault in history.disturbances
    )


@promise
def terms_grow(history: History) -> Iterator[str]:
    """C1: one leader for a term, and terms only grow; but for a power cut, which ends all that knew of them."""
    cuts = power_cuts(history)
    leaders: dict[tuple[int, int], set[str]] = defaultdict(set)
    for seen in history.leaders:
        leaders[sum(cut <= (seen.start or 0.0) for cut in cuts), seen.term].add(seen.leader)
    for (_, term), names in leaders.items():
        if len(names) > 1:
            yield f"C1: term {term} had the leaders {', '.join(sorted(names))}"
    timed = sorted((seen.end, seen.term) for seen in history.leaders if seen.end is not None)
    ends = [end for end, _ in timed]
    highest: list[int] = []
    for _, term in timed:
        highest.append(max(term, highest[-1] if highest else 0))
    for seen in history.leaders:
        if seen.start is None or any(cut <= seen.start for cut in cuts):
            continue
        before = bisect_left(ends, seen.start)
        if before and highest[before - 1] > seen.term:
            yield f"C1: term {seen.term} was seen at {seen.start:.3f}, after term {highest[before - 1]}"


@promise
def there_is_a_leader(history: History) -> Iterator[str]:
    """C2: leaderless at most lease + 1 s after a crash, and 1 s after SIGTERM."""
    lease = history.leader_lease
    if lease is None:
        return
    beats = sorted(history.beats_received, key=lambda beat: beat.at)
    led = [beat.at for beat in beats if beat.is_leader]
    begin = min((life.start for life in history.lives), default=0.0)
    for before, after in pairwise([begin, *led, history.ended_at]):
        if after - before > lease + MAX_ELECTION_SECONDS and has_steady_node(
            history, before, before + lease + MAX_ELECTION_SECONDS, grace=history.grace, calls=BEAT_CALLS
        ):
            yield f"C2: nobody led from {before:.3f} to {after:.3f}"
    for beat in _resignations(beats):
        by = beat.at + MAX_ELECTION_SECONDS
        following = next((at for at in led if at > beat.at), history.ended_at)
        if following > by and has_steady_node(history, beat.at, by, grace=history.grace, calls=BEAT_CALLS):
            yield f"C2: {beat.node} resigned at {beat.at:.3f}, and nobody led until {following:.3f}"


def _resignations(beats: Sequence[BeatReceived]) -> Iterator[BeatReceived]:
    """The beats by which a leader gave its lease back."""
    leads: dict[str, bool] = {}
    for beat in beats:
        if leads.get(beat.node) and not beat.asks_to_lead:
            yield beat
        leads[beat.node] = beat.is_leader
