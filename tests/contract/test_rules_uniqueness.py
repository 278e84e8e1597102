"""Every engine keeps unique keys as core/uniqueness.py says, over all combinations.

The SQL engines call these rules; Redis repeats them inside its scripts. One call carries all cases of a table.
"""

import os

import msgspec
import pytest

from drumbeat.core.job import AddResult, NewJob, OutcomeKind
from drumbeat.core.uniqueness import UniqueKeys, select_new, select_replays, unique_after_return
from drumbeat.ids import JobId, new_job_id
from drumbeat.store.protocol import Store
from tests.conftest import ENGINES
from tests.contract.cases.uniqueness import HOLDER_STATES, UNIQUE_CASES, Flag
from tests.contract.conftest import NEWEST
from tests.contract.making import add, ids, new_job, outcome, report, worker
from tests.contract.rules import claim_all, load


@pytest.fixture(params=ENGINES if os.environ.get("DRUMBEAT_FULL") else NEWEST)
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


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
