"""Every engine ends runs as core/transitions.py says, over all combinations of what the rules depend on.

The SQL engines call these rules; Redis repeats them inside its scripts. One call carries all cases of a table.
"""

import os
from collections.abc import Sequence
from datetime import datetime

import msgspec
import pytest

from drumbeat.core.claim import ClaimedJob, Outcome, WriteStatus
from drumbeat.core.job import Attempt, Job, JobState, OutcomeKind
from drumbeat.core.job_query import JobFilter
from drumbeat.core.suspension import StepKind, Suspension
from drumbeat.core.transitions import HeldJob, Transition, blame_crash, decide_outcome, is_same_outcome, report_crash
from drumbeat.durations import from_us, to_us
from drumbeat.ids import InstanceId
from drumbeat.store.job_reads import find_jobs
from drumbeat.store.protocol import Store
from tests.conftest import ENGINES, SetRunAt
from tests.contract.cases.crashes import CRASH_CASES, CRASH_LIMIT
from tests.contract.cases.outcomes import (
    BLOCKED_ON,
    LATE_CASES,
    OUTCOME_CASES,
)
from tests.contract.conftest import NEWEST
from tests.contract.making import BOOM, HOUR, add, hold, new_job, outcome, report, wanting, worker
from tests.contract.rules import ALL, claim_all, load, load_attempts

DELAY = 7_000_000
NAP = Suspension(kind=StepKind.SLEEP, name="nap")


@pytest.fixture(params=ENGINES if os.environ.get("DRUMBEAT_FULL") else NEWEST)
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def running(claimed: ClaimedJob, job: Job) -> HeldJob:
    assert job.state is JobState.RUNNING and job.started_at is not None
    return HeldJob(
        id=job.id,
        token=job.token,
        task=job.task,
        key=job.key,
        unique=job.unique,
        run_at=to_us(job.run_at),
        claimed_at=to_us(job.started_at),
        failures=job.failures,
        crashes=job.crashes,
        crash_limit=job.crash_limit,
        blocked_since=claimed.blocked_since,
        cancel_requested=job.cancel_requested,
        on_dead=job.on_dead,
    )


def time(us: int | None) -> datetime | None:
    return None if us is None else from_us(us)


def expected_fields(job: Job, to: Transition) -> dict[str, object]:
    """What the record of a job must say after a transition."""
    is_pending = to.state is JobState.PENDING
    return {
        "state": to.state,
        "failures": to.failures,
        "crashes": to.crashes,
        "run_at": time(to.run_at),
        "blocked_on": to.blocked_on,
        "suspended": to.suspended,
        "error": to.error or (job.error if is_pending else None),
        "started_at": None if is_pending else time(to.started_at),
        "finished_at": None if is_pending else time(to.finished_at),
        "instance": None if is_pending else job.instance,
        "token": job.token,
        "result": to.result,
    }


def expected_attempt(job: Job, to: Transition) -> Attempt | None:
    """The run that must be on record, if there was one: a cancelled job that never started has had none."""
    unstarted = (OutcomeKind.CANCELLED, OutcomeKind.EXPIRED)
    if to.recorded is None or (to.recorded in unstarted and to.started_at is None):
        return None
    return Attempt(
        token=job.token,
        instance=job.instance,
        outcome=to.recorded,
        started_at=time(to.started_at),
        finished_at=from_us(to.finished_at),
        error=to.error,
    )


def check_job(case: object, job: Job, found: Job, to: Transition) -> None:
    expected = expected_fields(job, to)
    assert {name: getattr(found, name) for name in expected} == expected, case


def check_attempts(case: object, job: Job, attempts: Sequence[Attempt], to: Transition) -> None:
    expected = expected_attempt(job, to)
    assert [each for each in attempts if each.token == job.token] == ([] if expected is None else [expected]), case


async def test_every_outcome_does_to_a_job_what_the_rule_says(store: Store, set_run_at: SetRunAt) -> None:
    instance = await worker(store)
    cases = dict(
        zip(await add(store, *(new_job(crash_limit=CRASH_LIMIT) for _ in OUTCOME_CASES)), OUTCOME_CASES, strict=True)
    )
    for count in range(1, CRASH_LIMIT):
        claimed = await claim_all(store, instance)
        kinds = {id: OutcomeKind.CRASHED if cases[id].crashes >= count else OutcomeKind.RELEASED for id in claimed}
        await report(store, instance, *(outcome(claimed[id], kind, error=None) for id, kind in kinds.items()))
    claimed = await claim_all(store, instance)
    kinds = {id: OutcomeKind.BLOCKED if cases[id].was_blocked else OutcomeKind.RELEASED for id in claimed}
    await report(
        store,
        instance,
        *(
            outcome(claimed[id], kind, blocked_on=BLOCKED_ON, started_at=None, finished_at=None)
            for id, kind in kinds.items()
        ),
    )
    claimed = await claim_all(store, instance)
    await store.jobs.cancel([id for id, case in cases.items() if case.cancel_requested])
    late = await store.inspect.now() + HOUR
    await set_run_at([id for id, case in cases.items() if case.runs_early], late)
    before = await load(store, list(cases))
    probe = (await add(store, new_job(queue="probe")))[0]
    probe_claim = (await claim_all(store, instance, "probe"))[probe]

    outcomes = {
        id: Outcome(
            id=id,
            token=claimed[id].token,
            kind=case.kind,
            started_at=claimed[id].token + 10 if case.has_started_at else None,
            finished_at=claimed[id].token + 20 if case.has_finished_at else None,
            error=BOOM if case.has_error and case.kind is not OutcomeKind.SUCCEEDED else None,
            result='"r"' if case.kind is OutcomeKind.SUCCEEDED else None,
            delay=DELAY,
            blocked_on="task:other",
            suspension=NAP if case.kind is OutcomeKind.SUSPENDED else None,
            follow_up=new_job(task="mourn", queue="after"),
        )
        for id, case in cases.items()
    }
    statuses = await report(store, instance, *outcomes.values(), outcome(probe_claim, OutcomeKind.RETRY))
    assert statuses == [WriteStatus.APPLIED] * (len(cases) + 1)
    now = to_us((await load(store, [probe]))[probe].run_at)
    after = await load(store, list(cases))
    decided = {id: decide_outcome(running(claimed[id], before[id]), outcomes[id], now) for id in cases}
    attempts = await load_attempts(store, list(cases))
    for id, case in cases.items():
        check_job(case, before[id], after[id], decided[id])
        check_attempts(case, before[id], attempts[id], decided[id])
    stored = await load(store, [each.follow_up.id for each in outcomes.values() if each.follow_up is not None])
    assert stored.keys() == {to.follow_up.id for to in decided.values() if to.follow_up is not None}

    pending = [id for id, to in decided.items() if to.state is JobState.PENDING]
    await store.jobs.run_now(pending)
    request = wanting(limit=ALL, wants=["task:other"])
    again = {job.id: job for job in (await store.jobs.report_and_claim(instance, [], request)).jobs}
    assert {id: again[id].blocked_since for id in pending} == {id: decided[id].blocked_since for id in pending}


async def test_every_late_outcome_is_a_duplicate_or_stale_as_the_rule_says(store: Store) -> None:
    instance, other = await worker(store), await worker(store)
    cases = dict(zip(await add(store, *(new_job() for _ in LATE_CASES)), LATE_CASES, strict=True))
    claimed = await claim_all(store, instance)
    first = [
        outcome(claimed[id], OutcomeKind.RELEASED, started_at=None, finished_at=None)
        if case.recorded is None
        else outcome(claimed[id], case.recorded, blocked_on=BLOCKED_ON)
        for id, case in cases.items()
    ]
    assert await report(store, instance, *first) == [WriteStatus.APPLIED] * len(cases)
    for reporter in (instance, other):
        chosen = {id: case for id, case in cases.items() if case.same_instance is (reporter == instance)}
        late = [
            msgspec.structs.replace(
                outcome(claimed[id], case.kind, blocked_on=BLOCKED_ON),
                token=claimed[id].token + (0 if case.same_token else 1),
            )
            for id, case in chosen.items()
        ]
        expected = [
            WriteStatus.DUPLICATE
            if case.same_instance and case.same_token and is_same_outcome(case.kind, case.recorded)
            else WriteStatus.STALE
            for case in chosen.values()
        ]
        found = await report(store, reporter, *late)
        assert dict(zip(chosen.values(), found, strict=True)) == dict(zip(chosen.values(), expected, strict=True))
        [record] = [each for each in await store.inspect.list_instances() if each.id == reporter]
        assert record.refused == expected.count(WriteStatus.STALE)


async def test_every_job_of_a_dead_instance_is_blamed_as_the_rule_says(store: Store) -> None:
    maker = await worker(store)
    queues = [f"q{number}" for number in range(len(CRASH_CASES))]
    cases = dict(zip(queues, CRASH_CASES, strict=True))
    subjects = {
        queue: new_job(queue=queue, crash_limit=CRASH_LIMIT, on_dead=case.on_dead) for queue, case in cases.items()
    }
    await add(store, *subjects.values())
    for count in range(1, CRASH_LIMIT):
        wanted = [queue for queue, case in cases.items() if case.crashes >= count]
        claimed = await claim_all(store, maker, *wanted)
        await report(store, maker, *(outcome(job, OutcomeKind.CRASHED, error=None) for job in claimed.values()))
    await add(store, *(new_job(queue=queue) for queue, case in cases.items() for _ in range(case.others)))
    mourned = []
    reasons: dict[InstanceId, str] = {}
    for queue, case in cases.items():
        instance = await worker(store)
        claimed = await claim_all(store, instance, queue)
        subject = subjects[queue].id
        if case.cancel_requested:
            await store.jobs.cancel([subject])
        before = await load(store, list(claimed))
        marked = [hold(job) for job in claimed.values() if job.id != subject or case.started]
        started = None if case.started is None else marked
        found = await store.instances.declare_dead(instance, beat=None, started=started, reason="killed")
        after = await load(store, list(claimed))
        attempts = await load_attempts(store, list(claimed))
        ended_runs = [each.finished_at for runs in attempts.values() for each in runs if each.instance == instance]
        # Without a run on record, the end of a cancelled job tells the time; else no rule needs it.
        ends = [job.finished_at for job in after.values() if job.finished_at is not None]
        now = max(map(to_us, ended_runs or ends), default=1 << 62)
        jobs = [running(claimed[id], job) for id, job in before.items()]
        decided = blame_crash(
            jobs, None if started is None else {(each.id, each.token) for each in started}, "killed", now
        )
        for job, to in decided:
            check_job(case, before[job.id], after[job.id], to)
            check_attempts(case, before[job.id], attempts[job.id], to)
            if to.state is JobState.DEAD and before[job.id].on_dead is not None:
                mourned.append(queue)
        assert found == report_crash(to for _, to in decided), case
        reasons[instance] = found.describe("killed")
    ended = {each.id: each.ended_reason for each in await store.inspect.list_instances(all=True)}
    assert reasons.items() <= ended.items()
    assert sorted(job.queue for job in await find_jobs(store, JobFilter(task="mourn", limit=ALL))) == sorted(mourned)
