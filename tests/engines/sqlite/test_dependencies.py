"""What is special to dependencies on SQLite."""

from drumbeat.core.dependencies import Binding, IfParentFails, NewEdge, NewGraph
from drumbeat.core.job import OutcomeKind
from drumbeat.store.sqlite import SqliteStore
from tests.contract.making import add, claim, exchange, ids, new_job, outcome, wanting, worker


async def test_a_child_is_claimed_when_its_parent_ends(sqlite: SqliteStore) -> None:
    me = await worker(sqlite)
    a, b, c = new_job(), new_job(), new_job()
    graph = NewGraph(
        jobs=[a, b, c], edges=[NewEdge(a.id, b.id), NewEdge(b.id, c.id, IfParentFails.CANCEL, Binding.RESULT, "x")]
    )
    answer = await sqlite.dependencies.add(graph)
    assert [each.created for each in answer.results] == [True, True, True]
    [first] = await claim(sqlite, me)
    assert first.id == a.id
    result = await exchange(sqlite, me, [outcome(first, OutcomeKind.SUCCEEDED)], wanting())
    assert ids(result.jobs) == [b.id] and not result.is_releasing
    result = await exchange(sqlite, me, [outcome(result.jobs[0], OutcomeKind.SUCCEEDED, result="17")], wanting())
    assert ids(result.jobs) == [c.id] and result.jobs[0].binds
    again = await sqlite.dependencies.add(graph)
    assert [each.created for each in again.results] == [False, False, False]


async def test_a_death_cancels_and_a_replay_revives(sqlite: SqliteStore) -> None:
    me = await worker(sqlite)
    [a] = await add(sqlite, new_job())
    b, c = new_job(), new_job()
    await sqlite.dependencies.add(NewGraph(jobs=[b, c], edges=[NewEdge(a, b.id), NewEdge(b.id, c.id)]))
    [first] = await claim(sqlite, me)
    await exchange(sqlite, me, [outcome(first, OutcomeKind.DEAD)])
    while await sqlite.dependencies.advance():
        pass
    jobs = await sqlite.inspect.get_jobs([a, b.id, c.id])
    assert [jobs[id].state for id in (a, b.id, c.id)] == ["dead", "cancelled", "cancelled"]
    await sqlite.jobs.replay([a])
    jobs = await sqlite.inspect.get_jobs([a, b.id, c.id])
    assert [jobs[id].state for id in (a, b.id, c.id)] == ["pending"] * 3
    assert [jobs[id].open_parents for id in (a, b.id, c.id)] == [None, 1, 1]
    assert [jobs[id].replays for id in (a, b.id, c.id)] == [1, 1, 1]
    for id in (a, b.id, c.id):
        [job] = await claim(sqlite, me)
        assert job.id == id
        await exchange(sqlite, me, [outcome(job, OutcomeKind.SUCCEEDED)])
