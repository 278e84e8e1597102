"""Each promise of docs/reliability.md as a pure function from a history to the violations of it.

`check(history)` runs them all. A violation names the promise, so that a failed run says what was broken. Those about leases,
locks, tickets of locks, processes, schedules and dependencies are in modules of their own.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.proof import (
    lease_checkers,
    limit_checkers,
    lock_checkers,
    process_checkers,
    schedule_checkers,
    step_checkers,
    ticket_checkers,
    workflow_checkers,
)
from tests.proof.excuses import CLOCK, NETWORK, has_fault, power_cuts
from tests.proof.history import History, Started
from tests.proof.registry import CHECKERS, promise

THEMES = (
    lease_checkers,
    limit_checkers,
    lock_checkers,
    process_checkers,
    schedule_checkers,
    step_checkers,
    ticket_checkers,
    workflow_checkers,
)
"""Imported, so that theirs are in the list."""

LIVE = {"pending", "running"}
FINAL = {"succeeded", "dead", "expired"}
TIMEOUT_SLACK = 5.0
"""Seconds that a machine with other things to do may take to end a run whose time is over."""


def check(history: History) -> list[str]:
    """All violations; none: the history keeps every promise."""
    return [violation for checker in CHECKERS for violation in checker(history)]


@promise
def no_loss(history: History) -> Iterator[str]:
    """J1: every acknowledged job is in the store."""
    known = {job.id for job in history.jobs}
    for call in history.enqueued:
        if call.acknowledged and call.existing is None and call.id not in known:
            yield f"J1: {call.id} was acknowledged and is gone"


@promise
def no_phantom(history: History) -> Iterator[str]:
    """J2: every job in the store was enqueued or fired."""
    asked = {call.id for call in history.enqueued if call.existing is None}
    fired = {fire.job for fire in history.fires}
    for job in history.jobs:
        if job.id not in asked and job.id not in fired and job.schedule is None:
            yield f"J2: nobody enqueued {job.id}"


@promise
def enqueues_are_not_refused(history: History) -> Iterator[str]:
    """J1, J11: an enqueue fails only when the store is unavailable or full; a unique job that is not needed is no failure."""
    for call in history.enqueued:
        if call.refusal is not None:
            name = "J1" if call.unique_key is None else "J11"
            yield f"{name}: the enqueue of {call.id} (unique key: {call.unique_key}) was refused: {call.refusal}"


@promise
def batches_are_whole(history: History) -> Iterator[str]:
    """J3: a batch is all or nothing."""
    known = {job.id for job in history.jobs}
    batches: dict[int, list[bool]] = defaultdict(list)
    for call in history.enqueued:
        if call.batch is not None and call.existing is None:
            batches[call.batch].append(call.id in known)
    for number, found in batches.items():
        if any(found) and not all(found):
            yield f"J3: of batch {number} {found.count(True)} of {len(found)} jobs exist"


@promise
def one_end(history: History) -> Iterator[str]:
    """J4: at most one accepted success in a life."""
    for job in history.jobs:
        successes = [attempt for attempt in job.attempts if attempt.outcome == "succeeded"]
        if len(successes) > 1:
            yield f"J4: {job.id} has succeeded {len(successes)} times"
        if job.state == "succeeded" and not successes:
            yield f"J4: {job.id} is {job.state} without an attempt that succeeded"
        if job.state != "succeeded" and successes and not job.replays:
            yield f"J4: {job.id} is {job.state} although an attempt succeeded"


@promise
def tokens_grow(history: History) -> Iterator[str]:
    """J5: the token grows with each claim. A power cut may take the last claims, and those who made them: if the clock
    is then set back, their numbers can come again."""
    cuts = power_cuts(history) if any(fault.kind in CLOCK for fault in history.disturbances) else []
    seen: dict[tuple[str, int], float] = {}
    for run in history.started:
        claim = (run.job, run.token)
        if claim in seen and not any(seen[claim] <= cut <= run.at for cut in cuts):
            yield f"J5: {run.job} was started twice with token {run.token}"
        seen[claim] = run.at
    for job in history.jobs:
        tokens = [attempt.token for attempt in job.attempts]
        if tokens != sorted(set(tokens)):
            yield f"J5: the attempts of {job.id} have the tokens {tokens}"


@promise
def charges_are_due(history: History) -> Iterator[str]:
    """J5: failures and crashes are charged as their attempts say."""
    for job in history.jobs:
        if job.replays:
            continue
        outcomes = Counter(attempt.outcome for attempt in job.attempts)
        if job.failures != outcomes["retry"] + outcomes["dead"]:
            yield f"J5: {job.id} was charged {job.failures} failures, and its attempts are {dict(outcomes)}"
        if job.crashes > outcomes["crashed"]:
            yield f"J5: {job.id} was charged {job.crashes} crashes, and its attempts are {dict(outcomes)}"


@promise
def results_are_their_own(history: History) -> Iterator[str]:
    """J6, J14: the stored result is that of the run whose attempt succeeded."""
    by_token = {(run.job, run.token): run.run for run in history.started}
    results = {end.run: end.result for end in history.ended}
    for job in history.jobs:
        for attempt in job.attempts:
            if attempt.outcome != "succeeded" or job.task in history.forwarded:  # what is sent has no run
                continue
            run = by_token.get((job.id, attempt.token))
            if run is None:
                yield f"J14: {job.id} succeeded with token {attempt.token}, and no run had it"
            elif results.get(run) is None:
                yield f"J6: {job.id} succeeded with token {attempt.token}, and that run did not return"
            elif job.state == "succeeded" and job.result != results[run]:
                yield f"J14: {job.id} has the result {job.result}, and its run returned {results[run]}"


@promise
def extra_runs_are_explained(history: History) -> Iterator[str]:
    """J7: every run of a job but the last has a recorded attempt."""
    jobs = {job.id: job for job in history.jobs}
    runs: dict[str, list[Started]] = defaultdict(list)
    for run in history.started:
        runs[run.job].append(run)
    cuts = [fault.start for fault in history.disturbances if fault.kind == "power"]
    for id, started in runs.items():
        job = jobs.get(id)
        if job is None:
            continue
        recorded = {attempt.token for attempt in job.attempts}
        # A claim need not be on disk: a power cut ends the run and forgets it.
        unexplained = [
            run.token for run in started if run.token not in recorded and not any(run.at <= cut for cut in cuts)
        ]
        allowed = 1 if job.state == "running" else 0
        if len(unexplained) > allowed:
            yield f"J7: {id} is {job.state}; its runs with the tokens {unexplained} have no attempt"
    if not history.disturbances:
        for job in history.jobs:
            if any(attempt.outcome == "crashed" for attempt in job.attempts):
                yield f"J7: {job.id} was taken from its instance, and there was no fault"


@promise
def never_early(history: History) -> Iterator[str]:
    """J8: no run before the job is due."""
    due = {call.id: call.due for call in history.enqueued}
    for run in history.started:
        if run.at < due.get(run.job, 0.0) - 0.000_001:
            yield f"J8: {run.job} was due at {due[run.job]:.6f} and started at {run.at:.6f}"


@promise
def unique_keys_hold(history: History) -> Iterator[str]:
    """J11: no two live jobs of a key: none is added between the answer to another's enqueue and the end of its last run, and
    no two runs of jobs of a key overlap while both are the store's."""
    yield from doubled_keys(history)
    keys = {call.id: call.unique_key for call in history.enqueued if call.unique_key is not None}
    accepted = accepted_spans(history)
    by_key: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
    for job, start, end in accepted:
        if job in keys:
            by_key[str(keys[job])].append((start, end, job))
    for key, spans in by_key.items():
        spans.sort()
        for (_, end, one), (start, _, other) in pairwise(spans):
            if one != other and start < end:
                yield f"J11: {one} and {other} ran at the same time with the unique key {key}"
    live: Counter[str] = Counter(job.unique_key for job in history.jobs if job.unique_key and job.state in LIVE)
    for key, count in live.items():
        if count > 1:
            yield f"J11: {count} live jobs have the unique key {key}"


def doubled_keys(history: History) -> Iterator[str]:
    ends = {job: end for job, _, end in accepted_spans(history)}
    known = {job.id for job in history.jobs}
    calls = [call for call in history.enqueued if call.unique_key is not None and call.existing is None]
    added = [call for call in calls if call.id in known and call.answered_at is not None]
    for one in added:
        for other in added:
            if (
                one is not other
                and one.unique_key == other.unique_key
                and (one.answered_at or 0.0) <= other.at
                and (other.answered_at or 0.0) <= ends.get(one.id, 0.0)
            ):
                yield f"J11: {other.id} was added while {one.id} was live, both with the unique key {one.unique_key}"


def accepted_spans(history: History) -> Iterator[tuple[str, float, float]]:
    """The runs whose success was accepted: job, begin, end."""
    ends = {end.run: end.at for end in history.ended}
    runs = {(run.job, run.token): run for run in history.started}
    for job in history.jobs:
        for attempt in job.attempts:
            run = runs.get((job.id, attempt.token))
            if run is not None and attempt.outcome == "succeeded" and run.run in ends:
                yield job.id, run.at, ends[run.run]


@promise
def all_finish(history: History) -> Iterator[str]:
    """J16: after the faults everything due finishes."""
    for job in history.jobs:
        if job.state in LIVE and job.schedule is None:
            yield f"J16: {job.id} ({job.task}) is still {job.state} at the end"


@promise
def cancelled_never_run(history: History) -> Iterator[str]:
    """X1: what was answered `cancelled` never starts afterwards. X2: and stays cancelled."""
    states = {job.id: job.state for job in history.jobs}
    replayed = {job.id for job in history.jobs if job.replays}
    runs: dict[str, list[Started]] = defaultdict(list)
    for run in history.started:
        runs[run.job].append(run)
    for cancel in history.cancels:
        if (
            cancel.answer in FINAL
            and cancel.job not in replayed
            and states.get(cancel.job) not in (cancel.answer, None)
        ):
            yield f"X2: {cancel.job} was answered {cancel.answer}, and is {states[cancel.job]}"
        if cancel.answer != "cancelled":
            continue
        if states.get(cancel.job) not in ("cancelled", None):
            yield f"X2: {cancel.job} was answered cancelled, and is {states[cancel.job]}"
        for run in runs[cancel.job]:
            if run.at > cancel.at:
                yield f"X1: {cancel.job} was cancelled at {cancel.at:.3f} and started at {run.at:.3f}"


@promise
def cancelled_do_not_start(history: History) -> Iterator[str]:
    """X3: a job does not start on a worker that held it when it heard of the cancellation. The request ends with the life of
    the job: what is claimed later, after a replay, is wanted."""
    replayed = {job.id for job in history.jobs if job.replays}
    requests = {cancel.job: cancel.at for cancel in history.cancels if cancel.answer == "requested"}
    if not requests:
        return
    claims = {(claim.job, claim.token): claim for claim in history.claims}
    for run in history.started:
        claim = claims.get((run.job, run.token))
        if run.job not in requests or claim is None or claim.answered_at is None:
            continue
        if run.job in replayed and claim.at > requests[run.job]:
            continue
        for beat in history.beats:
            if (
                beat.node == claim.node
                and beat.answered_at is not None
                and beat.asked_at >= requests[run.job]
                and claim.answered_at < beat.answered_at < run.at
            ):
                heard = f"{run.node} heard at {beat.answered_at:.3f} that {run.job} is cancelled"
                yield f"X3: {heard}, and started it at {run.at:.3f}"
                break


@promise
def messages_are_heard_once(history: History) -> Iterator[str]:
    """M1: a worker hears a message at most once, and without faults each that was told hears it."""
    heard = Counter((call.message, call.node) for call in history.heard)
    for (message, node), count in heard.items():
        if count > 1:
            yield f"M1: {node} heard message {message} {count} times"
    if not history.disturbances:
        for sent in history.broadcasts:
            listeners = sum(message == sent.message for message, _ in heard)
            if listeners < sent.told:
                yield f"M1: message {sent.message} was told to {sent.told} workers, and {listeners} heard it"


@promise
def poison_is_isolated(history: History) -> Iterator[str]:
    """J12: a job that kills its process is a dead letter in the end."""
    for job in history.jobs:
        if job.task in history.poisonous and job.state not in ("dead", "cancelled"):
            yield f"J12: {job.id} ({job.task}) kills its process, and is {job.state}"


@promise
def timeouts_end_runs(history: History) -> Iterator[str]:
    """J13: a run is over when its time is, unless something happened to its node."""
    tasks = {job.id: job.task for job in history.jobs}
    own = {call.id: call.timeout for call in history.enqueued if call.timeout is not None}
    ends = {end.run: end.at for end in history.ended}
    for run in history.started:
        limit = own.get(run.job, history.timeouts.get(tasks.get(run.job, "")))
        over = run.at + (limit or 0.0) + TIMEOUT_SLACK
        if (
            limit is not None
            and ends.get(run.run, run.at) > over
            and not has_fault(history, run.node, run.at, over, ignored=NETWORK | CLOCK)
        ):
            yield f"J13: {run.job} has a time-out of {limit} s, and ran for {ends[run.run] - run.at:.3f} s"
