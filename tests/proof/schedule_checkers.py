"""S1, S2, S3, S5, S6, S7: when schedules fire, and what is recorded of it."""

import math
from collections import Counter
from collections.abc import Iterator

from tests.proof.excuses import HARMLESS, has_fault, has_steady_node
from tests.proof.history import FireRecord, History
from tests.proof.registry import promise

MAX_LATE_SECONDS = 0.25
MAX_FAILOVER_SECONDS = 2.5
OVERLAP = "overlap"
FIRE_CALLS = ("schedules.", "instances.")
NO_EXCUSE = HARMLESS - {"full"}
"""A full store takes no job."""

MICROSECOND = 1e-6


@promise
def fires_are_complete(history: History) -> Iterator[str]:
    """S1, S2: every fire time is one job or within one recorded skip, and there is no other."""
    jobs = {job.id for job in history.jobs}
    for name, times in history.expected_fires.items():
        records = [fire for fire in history.fires if fire.schedule == name]
        for at in times:
            found = [fire for fire in records if fire.at - 1e-6 <= at <= fire.last + 1e-6]
            if len(found) != 1:
                yield f"S1: {name} has {len(found)} records of its fire time {at:.3f}"
        wanted = {round(at * 1e6) for at in times}
        for fire in records:
            if fire.count == 1 and round(fire.at * 1e6) not in wanted:
                yield f"S2: {name} has a record of {fire.at:.3f}, which is no fire time"
            if fire.job is not None and fire.job not in jobs:
                yield f"S1: the job {fire.job} of {name} at {fire.at:.3f} is gone"
    doubled = [job for job, count in Counter(fire.job for fire in history.fires if fire.job).items() if count > 1]
    for id in doubled:
        yield f"S1: {id} is the job of two fire times"


@promise
def fires_are_in_time(history: History) -> Iterator[str]:
    """S3: late by at most 250 ms in steady state, 2.5 s across a failover; while no controller is left, by any time."""
    if history.epoch is None:
        return
    for name, policy in history.policies.items():
        records = _records(history, name)
        for fire in records:
            if fire.recorded_at is not None and fire.outcome != "skipped":
                yield from _check_late(history, name, fire.at - history.epoch, fire.recorded_at - history.epoch)
        if records and policy.period is not None:  # it must not stop firing, either
            following = records[-1].last + policy.period - history.epoch
            yield from _check_late(history, name, following, history.ended_at)


def _check_late(history: History, name: str, due: float, fired: float) -> Iterator[str]:
    is_steady = not has_fault(history, None, due - history.grace, fired, calls=FIRE_CALLS, ignored=NO_EXCUSE)
    limit = MAX_LATE_SECONDS if is_steady else MAX_FAILOVER_SECONDS
    if fired - due > limit and (
        is_steady or has_steady_node(history, due - history.grace, due + limit, calls=FIRE_CALLS, ignored=NO_EXCUSE)
    ):
        yield f"S3: {name} was due at {due:.3f}, and fired at {fired:.3f}"


def _records(history: History, name: str) -> list[FireRecord]:
    return sorted((fire for fire in history.fires if fire.schedule == name), key=lambda fire: fire.at)


@promise
def cursors_grow(history: History) -> Iterator[str]:
    """S5: the cursor never goes back."""
    highest: dict[str, int] = {}
    for move in history.cursor_moves:
        before = highest.get(move.schedule)
        if move.after is None:
            continue
        if before is not None and (move.after < before or (move.after == before and move.fired)):
            yield f"S5: the cursor of {move.schedule} went from {before} to {move.after} at {move.at:.3f}"
        highest[move.schedule] = max(move.after, before or 0)


@promise
def catching_up_is_bounded(history: History) -> Iterator[str]:
    """S6: after a time without controllers as many fire times are caught up as the policy says."""
    for move in history.cursor_moves:
        policy = history.policies.get(move.schedule)
        if policy is None:
            continue
        limit = policy.catch_up_limit if policy.catch_up == "all" else 1
        caught = max(move.fired, move.chosen)
        if caught > limit:
            yield f"S6: {move.schedule} has caught up {caught} fire times at {move.at:.3f}, and may {limit}"


@promise
def overlap_is_obeyed(history: History) -> Iterator[str]:
    """S6: with overlap="skip" no fire while the job before is live, and no skip when it is not."""
    if history.epoch is None:
        return
    ended_at = _find_ends(history)
    for name, policy in history.policies.items():
        if policy.overlap != "skip":
            continue
        fired: list[tuple[float, str]] = []
        for fire in _records(history, name):
            at = math.inf if fire.recorded_at is None else fire.recorded_at - history.epoch
            if fire.job is not None:
                if fired and ended_at.get(fired[-1][1], 0.0) > at + MICROSECOND:  # the store's times are rounded to it
                    yield f"S6: {name} fired at {at:.3f}, and {fired[-1][1]}, the job before, was live"
                fired.append((at, fire.job))
            elif fire.reason == OVERLAP:
                job = fired[-1][1] if fired else ""
                over = ended_at.get(job, math.inf) if fired else -math.inf
                if over < at - history.grace and not has_fault(history, None, over, at):
                    yield f"S6: {name} skipped {fire.at - history.epoch:.3f}, and {job or 'no job'} was live"
            elif not has_fault(history, None, fire.at - history.epoch - history.grace, at, ignored=NO_EXCUSE):
                yield f"S6: {name} skipped {fire.at - history.epoch:.3f} ({fire.reason}), and there was no fault"


def _find_ends(history: History) -> dict[str, float]:
    """When the handlers of the winning attempts had ended; infinite: of jobs that are live at the end."""
    ends = {end.run: end.at for end in history.ended}
    runs = {(run.job, run.token): run.run for run in history.started}
    found: dict[str, float] = {}
    for job in history.jobs:
        if job.schedule is None:
            continue
        if job.state in ("pending", "running"):
            found[job.id] = math.inf
        for attempt in job.attempts:
            if attempt.outcome == "succeeded" and (run := runs.get((job.id, attempt.token))) in ends:
                found[job.id] = ends[run]
    return found


@promise
def grids_do_not_drift(history: History) -> Iterator[str]:
    """S7: each fire time of a grid is a multiple of its period, and a skipped range has as many as lie in it."""
    for name, policy in history.policies.items():
        if policy.period is None:
            continue
        period = round(policy.period * 1e6)
        for fire in _records(history, name):
            first, last = round(fire.at * 1e6), round(fire.last * 1e6)
            if first % period or last % period:
                yield f"S7: {name} has a fire at {fire.at:.6f}, which is not on its grid of {policy.period} s"
            elif fire.count != (last - first) // period + 1:
                yield f"S7: {name} has a record of {fire.count} fire times from {fire.at:.3f} to {fire.last:.3f}"
