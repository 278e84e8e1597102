"""Every engine fires schedules as core/overlap.py says, over all combinations.

The SQL engines call these rules; Redis repeats them inside its scripts. One call carries all cases of a table.
"""

import os

import msgspec
import pytest

from drumbeat.core.claim import WriteStatus
from drumbeat.core.job import JobState, OutcomeKind
from drumbeat.core.overlap import ScheduleSnapshot, interval_of, next_fire_after_end, plan_fire
from drumbeat.core.schedule import Overlap, RuleKind, Schedule, ScheduleState
from drumbeat.durations import to_us
from drumbeat.store.protocol import Store
from tests.conftest import ENGINES
from tests.contract.cases.intervals import INTERVAL_CASES
from tests.contract.cases.overlap import OVERLAP_CASES
from tests.contract.conftest import NEWEST
from tests.contract.making import HOUR, outcome, report, worker
from tests.contract.rules import claim_all, load
from tests.contract.scheduling import MINUTE, change, firing, new_schedule, put


@pytest.fixture(params=ENGINES if os.environ.get("DRUMBEAT_FULL") else NEWEST)
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


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
    fires = await store.schedules.list_fires(list(cases))
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
        records = fires[name]
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


async def test_every_end_of_a_job_sets_the_next_fire_as_the_rule_says(store: Store) -> None:
    me = await worker(store)
    cases = {f"s{number}": case for number, case in enumerate(INTERVAL_CASES)}
    soon = await store.inspect.now() + MINUTE // 2
    for name, case in cases.items():
        kind = {"kind": RuleKind.AFTER} if case.is_interval else {}
        ends = {"": None, "before": soon, "after": soon + HOUR}
        await put(store, new_schedule(name, overlap=Overlap.QUEUE, end=ends[case.end], **kind))
    before = await load_schedules(store)
    await store.schedules.fire(
        [firing(before[name], *([1, 2] if case.has_successor else [1])) for name, case in cases.items()]
    )
    before = await load_schedules(store)
    for name, case in cases.items():
        if case.state is not ScheduleState.ACTIVE:
            await change(store, before[name], case.state)
    before = await load_schedules(store)
    schedule_of = {schedule.current: name for name, schedule in before.items()}
    claimed = await claim_all(store, me)
    first = await store.inspect.now()
    outcomes = []
    for job in claimed.values():
        case = cases[schedule_of[job.id]]
        finished_at = first - MINUTE if case.is_late else first
        outcomes.append(outcome(job, case.outcome, started_at=finished_at - 10, finished_at=finished_at))
    assert set(await report(store, me, *outcomes)) == {WriteStatus.APPLIED}
    last = await store.inspect.now()
    after = await load_schedules(store)
    for name, case in cases.items():
        earliest, latest = (
            next_fire_after_end(before[name], has_successor=case.has_successor, now=now) for now in (first, last)
        )
        found = after[name].next_at
        if earliest is None or latest is None:
            assert found == earliest == latest, case
        else:
            assert found is not None and earliest <= found <= latest, case
        assert (after[name].current is not None) is case.has_successor, case


async def load_schedules(store: Store) -> dict[str, Schedule]:
    return {each.name: each for each in await store.schedules.list_page(limit=1_000, all=True)}
