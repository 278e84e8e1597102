"""G1 to G3: no more runs of a group at once, no more starts in a time, and no other order than its task allows.

By what the store recorded: a claim is at its token, which is the time by the clock of the store, and its room was held
from then to the recorded end at least. After a power cut tokens are ahead of the clock: then only claims whose answers were
seen have a time. Where clocks were set these times say nothing.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tests.proof.excuses import CLOCK, power_cuts
from tests.proof.history import Enqueued, History, JobRecord
from tests.proof.registry import promise

TICK_US = 1
"""A run that ends in the microsecond in which another is claimed is over."""


class Run(NamedTuple):
    """By the store's clock, in microseconds."""

    claimed_at: int
    finished_at: int | None


class LimitedJob(NamedTuple):
    record: JobRecord
    runs: list[Run]


def jobs_by_group(history: History) -> dict[tuple[str, str], list[LimitedJob]]:
    """The jobs of tasks under limits, by task and group."""
    found: dict[tuple[str, str], list[LimitedJob]] = defaultdict(list)
    if any(fault.kind in CLOCK for fault in history.disturbances) or not history.limits:
        return found
    seen = {(ref.job, ref.token): claim.now for claim in history.claims_performed for ref in claim.jobs}
    is_exact = not power_cuts(history)
    for job in history.jobs:
        if job.task in history.limits:
            times = [
                (
                    seen.get((job.id, each.token), each.token if is_exact else None),
                    None if each.finished_at is None else each.finished_at - history.clock_slack_us,
                )
                for each in job.attempts
            ]
            runs = [Run(claimed_at, end) for claimed_at, end in times if claimed_at is not None]
            found[job.task, job.group].append(LimitedJob(job, runs))
    return found


@promise
def never_more_at_once(history: History) -> Iterator[str]:
    """G1: at no time more runs of a group, and of all groups of a task together, than its limits allow."""
    by_task: dict[str, list[Run]] = defaultdict(list)
    for (task, group), jobs in jobs_by_group(history).items():
        runs = [run for job in jobs for run in job.runs]
        by_task[task] += runs
        allowed = history.limits[task].per_group
        if allowed is not None and (most := most_at_once(runs)) > allowed:
            yield f"G1: {most} runs of {task} for {group!r} at once, and {allowed} are allowed"
    for task, runs in by_task.items():
        allowed = history.limits[task].whole
        if allowed is not None and (most := most_at_once(runs)) > allowed:
            yield f"G1: {most} runs of {task} at once, and {allowed} are allowed"


def most_at_once(runs: list[Run]) -> int:
    ended = [run for run in runs if run.finished_at is not None]
    changes = [(run.finished_at, -1) for run in ended] + [(run.claimed_at + TICK_US, 1) for run in ended]
    most = now = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most


@promise
def never_more_starts_in_a_time(history: History) -> Iterator[str]:
    """G2: in no time of a rate's length more claims of a group than the rate allows."""
    for (task, group), jobs in jobs_by_group(history).items():
        limits = history.limits[task]
        if limits.rate is None:
            continue
        claims = sorted(run.claimed_at for job in jobs for run in job.runs)
        for first, last in zip(claims, claims[limits.rate :], strict=False):
            if last - first < limits.per * 1e6:
                yield (
                    f"G2: {limits.rate + 1} starts of {task} for {group!r} within {(last - first) / 1e6:.3f} s, and "
                    f"{limits.rate} in {limits.per} s are allowed"
                )
                break


@promise
def in_the_order_of_enqueue(history: History) -> Iterator[str]:
    """G3: of two jobs of a group, one of which was enqueued before the call for the other began, or before it in the same
    call, the first has ended before the other is claimed. One that was replayed has joined the line again, at its end."""
    calls = {call.id: call for call in history.enqueued if call.existing is None}
    for (task, group), jobs in jobs_by_group(history).items():
        if not history.limits[task].is_ordered:
            continue
        known = [(calls[job.record.id], job) for job in jobs if job.record.id in calls and not job.record.replays]
        known.sort(key=lambda pair: pair[0].at)
        for call, job in known:
            if call.answered_at is None or call.due > call.at or job.record.state == "cancelled":
                continue
            end = _ended_at(job)
            for later_call, later in known:
                claims = [run.claimed_at for run in later.runs]
                if _is_before(call, later_call) and claims and (end is None or min(claims) < end):
                    first, second = job.record.id, later.record.id
                    yield f"G3: {second} of {task} for {group!r} was claimed before the end of {first}, which came first"


def _is_before(call: Enqueued, other: Enqueued) -> bool:
    if call.batch is not None and call.batch == other.batch:
        return call.id < other.id
    return call.answered_at is not None and call.answered_at < other.at


def _ended_at(job: LimitedJob) -> int | None:
    """When its last run ended; None: it has not."""
    if job.record.state in ("pending", "running"):
        return None
    return max((run.finished_at or 0 for run in job.runs), default=0)
