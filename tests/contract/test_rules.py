"""Every engine decides as the pure rules of core/ do, over all combinations of what a rule depends on.

The SQL engines call these rules; Redis repeats them inside its scripts. One call carries all cases of a table.
"""

import os
from collections.abc import Sequence
from datetime import datetime

import msgspec
import pytest

from drumbeat.core.claim import ClaimedJob, Outcome, WriteStatus
from drumbeat.core.job import AddResult, Attempt, Job, JobState, NewJob, OutcomeKind
from drumbeat.core.job_query import JobFilter
from drumbeat.core.overlap import ScheduleSnapshot, interval_of, plan_fire
from drumbeat.core.schedule import Overlap, RuleKind, Schedule
from drumbeat.core.transitions import Transition, blame_crash, decide_outcome, is_same_outcome, report_crash
from drumbeat.core.uniqueness import UniqueKeys, select_new, select_replays, unique_after_return
from drumbeat.durations import from_us, to_us
from drumbeat.ids import InstanceId, JobId, new_job_id
from drumbeat.store.protocol import Store
from tests.conftest import ENGINES
from tests.contract.cases.crashes import CRASH_CASES, CRASH_LIMIT
from tests.contract.cases.outcomes import (
    BLOCKED_ON,
    LATE_CASES,
    OUTCOME_CASES,
    set_run_at,
)
from tests.contract.cases.overlap import OVERLAP_CASES
from tests.contract.cases.uniqueness import HOLDER_STATES, UNIQUE_CASES, Flag
from tests.contract.conftest import NEWEST
from tests.contract.making import BOOM, HOUR, add, hold, ids, new_job, outcome, report, wanting, worker
from tests.contract.scheduling import firing, new_schedule, put

DELAY = 7_000_000
ALL = 10_000


@pytest.fixture(params=ENGINES if os.environ.get("DRUMBEAT_FULL") else NEWEST)
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """A running job as the rules see it."""

    id: JobId
    token: int
    run_at: int
    claimed_at: int
    failures: int
    crashes: int
    crash_limit: int
    blocked_since: int | None
    cancel_requested: bool


def running(claimed: ClaimedJob, job: Job) -> Running:
    assert job.state is JobState.RUNNING and job.started_at is not None
    return Running(
        id=job.id,
        token=job.token,
        run_at=to_us(job.run_at),
        claimed_at=to_us(job.started_at),
        failures=job.failures,
        crashes=job.crashes,
        crash_limit=job.crash_limit,
        blocked_since=claimed.blocked_since,
        cancel_requested=job.cancel_requested,
    )


async def claim_all(store: Store, instance: InstanceId, *queues: str) -> dict[JobId, ClaimedJob]:
    request = wanting(*queues, limit=ALL, wants=[BLOCKED_ON])
    return {job.id: job for job in (await store.jobs.report_and_claim(instance, [], request)).jobs}


async def load(store: Store, ids: Sequence[JobId]) -> dict[JobId, Job]:
    found: dict[JobId, Job] = {}
    for first in range(0, len(ids), 500):
        found |= await store.inspect.get_jobs(ids[first : first + 500])
    return found


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
        "error": to.error or (job.error if is_pending else None),
        "started_at": None if is_pending else time(to.started_at),
        "finished_at": None if is_pending else time(to.finished_at),
        "instance": None if is_pending else job.instance,
        "token": job.token,
        "result": to.result,
    }


def expected_attempt(job: Job, to: Transition) -> Attempt | None:
    """The run that must be on record, if there was one: a cancelled job that never started has had none."""
    if to.recorded is None or (to.recorded is OutcomeKind.CANCELLED and to.started_at is None):
        return None
    return Attempt(
        token=job.token,
        instance=job.instance,
        outcome=to.recorded,
        started_at=time(to.started_at),
        finished_at=from_us(to.finished_at),
        error=to.error,
    )


async def check_transition(store: Store, case: object, job: Job, found: Job, to: Transition) -> None:
    expected = expected_fields(job, to)
    assert {name: getattr(found, name) for name in expected} == expected, case
    attempts = [each for each in await store.inspect.list_attempts(job.id) if each.token == job.token]
    attempt = expected_attempt(job, to)
    assert attempts == ([] if attempt is None else [attempt]), case


async def test_every_outcome_does_to_a_job_what_the_rule_says(store: Store, store_url: str) -> None:
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
    await set_run_at(store_url, [id for id, case in cases.items() if case.runs_early], late)
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
            follow_up=new_job(task="mourn", queue="after"),
        )
        for id, case in cases.items()
    }
    statuses = await report(store, instance, *outcomes.values(), outcome(probe_claim, OutcomeKind.RETRY))
    assert statuses == [WriteStatus.APPLIED] * (len(cases) + 1)
    now = to_us((await store.inspect.get_job(probe)).run_at)
    after = await load(store, list(cases))
    decided = {id: decide_outcome(running(claimed[id], before[id]), outcomes[id], now) for id in cases}
    for id, case in cases.items():
        await check_transition(store, case, before[id], after[id], decided[id])
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
        attempts = [each for id in claimed for each in await store.inspect.list_attempts(id)]
        ended_runs = [each.finished_at for each in attempts if each.instance == instance]
        # Without a run on record, the end of a cancelled job tells the time; else no rule needs it.
        ends = [job.finished_at for job in after.values() if job.finished_at is not None]
        now = max(map(to_us, ended_runs or ends), default=1 << 62)
        jobs = [running(claimed[id], job) for id, job in before.items()]
        decided = blame_crash(
            jobs, None if started is None else {(each.id, each.token) for each in started}, "killed", now
        )
        for job, to in decided:
            await check_transition(store, case, before[job.id], after[job.id], to)
            if to.state is JobState.DEAD and before[job.id].on_dead is not None:
                mourned.append(queue)
        assert found == report_crash(to for _, to in decided), case
        [record] = [each for each in await store.inspect.list_instances(all=True) if each.id == instance]
        assert record.ended_reason == found.describe("killed")
    assert sorted(job.queue for job in await store.inspect.find_jobs(JobFilter(task="mourn", limit=ALL))) == sorted(
        mourned
    )


def keyed(number: int, flag: Flag, queue: str, id: JobId | None = None) -> NewJob:
    job = new_job(queue=queue, key=f"k{number}" if flag.has_key else None, unique=flag.unique)
    return job if id is None else msgspec.structs.replace(job, id=id)


def holders(*jobs: tuple[NewJob, str]) -> UniqueKeys:
    """The keys of unique jobs in these states."""
    live = {"pending": "pending", "blocked": "pending", "running": "running"}
    return UniqueKeys(
        (job.task, job.key, job.id, live[state])
        for job, state in jobs
        if state in live and job.unique and job.key is not None
    )


async def test_every_unique_key_is_held_as_the_rule_says(store: Store) -> None:
    me = await worker(store)
    cases = dict(enumerate(UNIQUE_CASES))
    jobs = {number: keyed(number, case.flag, case.way) for number, case in cases.items()}
    await add(store, *(jobs[number] for number, case in cases.items() if case.way != "add"))
    claimed = await claim_all(store, me, "replay", "return")
    await report(store, me, *(outcome(job, OutcomeKind.DEAD) for job in claimed.values() if job.queue == "replay"))

    # The holders, and what they are when the job comes.
    held: dict[int, NewJob] = {}
    second: dict[int, NewJob] = {}
    for number, case in cases.items():
        if case.holder is not None:
            smaller, larger = new_job_id(), new_job_id()
            own, others = (larger, smaller) if case.second == "smaller" else (smaller, larger)
            queue = "waits" if case.holder_state == "pending" else "runs"
            held[number] = keyed(number, case.holder, queue, own)
            if case.second:
                second[number] = keyed(number, case.holder, "waits", others)
    known: dict[int, list[tuple[NewJob, str]]] = {number: [] for number in cases}
    for number, case in cases.items():
        if case.way == "return":
            known[number].append((jobs[number], "running"))
    early = [number for number in held if cases[number].holder_state != "new"]
    expected = {number: select_new([held[number]], (), holders(*known[number]))[0][0] for number in early}
    found = await store.jobs.add([held[number] for number in early])
    assert found == list(expected.values())
    created = [number for number in early if expected[number].created]
    claimed = await claim_all(store, me, "runs")
    ends = {held[number].id: HOLDER_STATES[cases[number].holder_state] for number in created}
    await report(
        store,
        me,
        *(
            outcome(claimed[id], kind, blocked_on="task:other", started_at=None, finished_at=None)
            for id, kind in ends.items()
            if kind is not None
        ),
    )
    for number in created:
        known[number].append((held[number], cases[number].holder_state))
    assert all(each.created for each in await store.jobs.add(list(second.values())))
    for number, job in second.items():
        known[number].append((job, "pending"))

    # Added: those of the same call come just before.
    calls: list[NewJob] = []
    results: list[AddResult] = []
    for number, case in cases.items():
        if case.way == "add":
            call = [*([held[number]] if case.holder_state == "new" else []), jobs[number]]
            calls += call
            results += select_new(call, (), holders(*known[number]))[0]
    assert dict(zip(ids(calls), await store.jobs.add(calls), strict=True)) == dict(
        zip(ids(calls), results, strict=True)
    )

    replays = {number: jobs[number] for number, case in cases.items() if case.way == "replay"}
    answers = [
        select_replays([job.id], {job.id: job}, holders(*known[number]))[0][0] for number, job in replays.items()
    ]
    assert await store.jobs.replay(ids(replays.values())) == answers

    returns = {number: jobs[number] for number, case in cases.items() if case.way == "return"}
    running_now = {each.id: each for each in await store.jobs.list_running(me)}
    await report(store, me, *(outcome(running_now[job.id], OutcomeKind.RETRY) for job in returns.values()))
    after = await load(store, ids(returns.values()))
    kept = {job.id: unique_after_return([job], holders(*known[number][1:]))[0] for number, job in returns.items()}
    assert {id: job.unique for id, job in after.items()} == kept


async def test_every_fire_meets_the_jobs_before_it_as_the_rule_says(store: Store) -> None:
    me = await worker(store)
    cases = {f"s{number}": case for number, case in enumerate(OVERLAP_CASES)}
    for name, case in cases.items():
        kind = {"kind": RuleKind.AFTER} if case.is_interval else {}
        queue = case.live or "ended"
        await put(store, new_schedule(name, queue=queue, overlap=Overlap.QUEUE, **kind))
    before = await load_schedules(store)
    fired = await store.schedules.fire(
        [firing(before[name], *([1, 2] if case.has_waiting else [1])) for name, case in cases.items()]
    )
    waiting = {each.name: list(each.jobs[1:]) for each in fired}
    claimed = await claim_all(store, me, "ended", "running")
    ended = [outcome(job, OutcomeKind.SUCCEEDED) for job in claimed.values() if job.queue == "ended"]
    await report(store, me, *ended)
    before = await load_schedules(store)
    for name, case in cases.items():
        definition = msgspec.structs.replace(before[name].definition, overlap=case.overlap)
        await store.schedules.put(definition, revision=before[name].revision, cursor=None, next_at=5, by="test")
    before = await load_schedules(store)
    requests = {
        name: firing(
            before[name],
            *([10, 20][: case.fires] if not case.is_known else [1, 20][: case.fires]),
            advances=case.advances,
            cursor=20,
            next_at=30,
        )
        for name, case in cases.items()
    }
    results = await store.schedules.fire(list(requests.values()))
    after = await load_schedules(store)
    recorded = {(name, at) for name, case in cases.items() for at in ([1, 2] if case.has_waiting else [1])}
    jobs = await load(
        store, [*(id for each in fired for id in each.jobs), *(id for each in results for id in each.jobs)]
    )
    for (name, case), result in zip(cases.items(), results, strict=True):
        was, found = before[name], after[name]
        snapshot = ScheduleSnapshot(
            name=name,
            revision=was.revision,
            cursor=was.cursor,
            state=was.state,
            overlap=case.overlap,
            interval=interval_of(was.definition),
            current=was.current if case.live else None,
            live_state=case.live or None,
            waiting=waiting[name],
        )
        records = await store.schedules.list_fires(name)
        plan = plan_fire(snapshot, requests[name], recorded, records[0].recorded_at)
        assert result == plan.result, case
        made = {job.job: job for job in plan.jobs}
        assert {id: (to_us(jobs[id].due_at), to_us(jobs[id].run_at), jobs[id].blocked_on) for id in result.jobs} == {
            id: (job.due_at, job.run_at, job.blocked_on) for id, job in made.items()
        }, case
        assert {id for id in waiting[name] if jobs[id].state is JobState.CANCELLED} == set(plan.cancel) & set(
            waiting[name]
        ), case
        if case.live and was.current is not None:
            current = jobs[was.current]
            assert (current.state is JobState.CANCELLED) is (was.current in plan.cancel), case
            if current.state is JobState.RUNNING:
                assert current.cancel_requested is (was.current in plan.request_cancel), case
        update = plan.update
        advances = update is not None and update.advances
        assert (found.cursor, found.next_at) == (
            (update.cursor, update.next_at) if update is not None and advances else (was.cursor, was.next_at)
        ), case
        assert found.current == (update.current if update is not None else was.current) or not case.live, case
        rows = {(row.at, row.outcome, row.reason, row.job) for row in plan.records}
        assert rows <= {(each.at, each.outcome, each.reason, each.job) for each in records}, case


async def load_schedules(store: Store) -> dict[str, Schedule]:
    return {each.name: each for each in await store.schedules.list_page(limit=1_000)}
