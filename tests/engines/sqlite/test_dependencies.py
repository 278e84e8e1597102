"""What is special to dependencies on SQLite: large graphs in steps, damaged rows, several processes, and what others pay."""

import asyncio
import itertools
import json
import os
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from drumbeat.core.claim import Outcome
from drumbeat.core.dependencies import MAX_ADVANCED, Binding, IfParentFails, NewEdge, NewGraph
from drumbeat.core.job import JobState, NewJob, OutcomeKind
from drumbeat.ids import InstanceId, JobId
from drumbeat.store.sqlite import SqliteStore
from drumbeat.store.sqlite.connection import SqliteConnection
from drumbeat.store.sqlite.jobs import MAX_PRUNED_EDGES
from tests.contract.making import add, claim, exchange, ids, new_job, outcome, wanting, worker

MANY = 100_000 if os.environ.get("DRUMBEAT_FULL") else 6_000


def run_raw(path: Path, statement: str, *parameters: object) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement, parameters)


def count_raw(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path)) as db:
        [[count]] = db.execute(f"SELECT count(*) FROM {table}")
    return int(count)


async def add_graph(store: SqliteStore, jobs: list[NewJob], edges: list[NewEdge]) -> None:
    answer = await store.dependencies.add(NewGraph(jobs=jobs, edges=edges))
    assert all(each.created for each in answer.results)


async def drain(store: SqliteStore, instance: InstanceId) -> list[JobId]:
    """Run everything that is due, in batches; the ids in the order of claims."""
    ran: list[JobId] = []
    outcomes: list[Outcome] = []
    while True:
        answer = await exchange(store, instance, outcomes, wanting(limit=500))
        if not answer.jobs and not answer.is_releasing:
            return ran
        ran += ids(answer.jobs)
        outcomes = [outcome(job, OutcomeKind.SUCCEEDED, result="1") for job in answer.jobs]


async def test_many_children_of_one_parent_are_released_in_steps(sqlite: SqliteStore, path: Path) -> None:
    me = await worker(sqlite)
    [parent] = await add(sqlite, new_job())
    children = [new_job() for _ in range(MANY)]
    await add_graph(sqlite, children, [NewEdge(parent, child.id) for child in children])
    [job] = await claim(sqlite, me)
    answer = await exchange(sqlite, me, [outcome(job, OutcomeKind.SUCCEEDED)], wanting(limit=2 * MAX_ADVANCED))
    assert (len(answer.jobs), answer.is_releasing) == (MAX_ADVANCED, True)
    steps = 0
    while await sqlite.dependencies.advance():
        steps += 1
    assert steps == MANY // MAX_ADVANCED - 2
    assert (count_raw(path, "drumbeat_release"), await sqlite.dependencies.find_miscounted()) == (0, [])
    assert sorted([*ids(answer.jobs), *await drain(sqlite, me)]) == ids(children)


async def test_one_child_of_many_parents_runs_after_all_of_them(sqlite: SqliteStore, path: Path) -> None:
    me = await worker(sqlite)
    parents, child = [new_job() for _ in range(MANY)], new_job()
    edges = [NewEdge(job.id, child.id, IfParentFails.CANCEL, Binding.RESULTS, "all") for job in parents]
    await add_graph(sqlite, [*parents, child], edges)
    assert await drain(sqlite, me) == [*ids(parents), child.id]
    after, read = -1, 0
    while page := await sqlite.dependencies.page_results(child.id, "all", after, 1_000):
        read, after = read + len(page), page[-1].place
    assert (read, count_raw(path, "drumbeat_parent_result")) == (MANY, 0), "read where their ends are on record"
    assert MANY > MAX_PRUNED_EDGES
    while await sqlite.jobs.prune(await sqlite.inspect.now() + 1, 1_000):
        pass
    assert [count_raw(path, f"drumbeat_{table}") for table in ("history", "edge", "parent_result")] == [0, 0, 0]


async def test_what_a_dead_process_left_is_followed_by_whoever_claims(sqlite: SqliteStore, path: Path) -> None:
    """Also if nothing is due, so that a claim would not even take the write lock."""
    me = await worker(sqlite)
    parent = new_job()
    children = [new_job(queue="children") for _ in range(MAX_ADVANCED + 1)]
    await add_graph(sqlite, [parent, *children], [NewEdge(parent.id, child.id) for child in children])
    [job] = await claim(sqlite, me)
    assert (await exchange(sqlite, me, [outcome(job, OutcomeKind.SUCCEEDED)])).is_releasing
    async with await SqliteStore.open(path, url=f"sqlite:///{path}") as other:
        assert await claim(other, await worker(other)) == []
        assert count_raw(path, "drumbeat_release") == 0
    assert len(await claim(sqlite, me, "children", limit=5_000)) == len(children)


async def test_a_claim_says_that_releases_are_left(sqlite: SqliteStore) -> None:
    """A busy worker, whose own jobs have no children: it is told, and advances."""
    me = await worker(sqlite)
    parent, other = new_job(queue="first"), new_job()
    children = [new_job(queue="children") for _ in range(3 * MAX_ADVANCED)]
    await add_graph(sqlite, [parent, other, *children], [NewEdge(parent.id, child.id) for child in children])
    [job] = await claim(sqlite, me, "first")
    await exchange(sqlite, me, [outcome(job, OutcomeKind.SUCCEEDED)])
    expected = wanting()
    [job] = (await exchange(sqlite, me, [], expected)).jobs
    assert (await exchange(sqlite, me, [outcome(job, OutcomeKind.SUCCEEDED)], expected)).is_releasing
    while await sqlite.dependencies.advance():
        pass
    assert not (await exchange(sqlite, me, [], expected)).is_releasing


@pytest.mark.parametrize(
    ("statement", "spared"),
    [
        ("UPDATE drumbeat_edge SET if_fails = 'never' WHERE child = :bad", 1),
        ("UPDATE drumbeat_edge SET life = 'first' WHERE child = :bad", 1),
        ("UPDATE drumbeat_edge SET child = x'ff' WHERE child = :bad", 1),
        ("INSERT INTO drumbeat_release (seq, parent, event, life) VALUES (-5, 'nobody', 'exploded', 0)", 0),
        ("INSERT INTO drumbeat_release (seq, parent, event, life) VALUES (-5, x'ff', x'ff', 'first')", 0),
    ],
)
async def test_a_damaged_row_does_not_stop_the_others(
    sqlite: SqliteStore, path: Path, statement: str, spared: int
) -> None:
    me = await worker(sqlite)
    parent, bad, good = new_job(), new_job(), new_job()
    await add_graph(sqlite, [parent, bad, good], [NewEdge(parent.id, bad.id), NewEdge(parent.id, good.id)])
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement, {"bad": bad.id} if ":bad" in statement else {})
    ran = await drain(sqlite, me)
    assert set(ran) == {parent.id, bad.id, good.id} - ({bad.id} if spared else set())
    assert count_raw(path, "drumbeat_release") == 0


async def test_a_damaged_count_lets_the_child_run(sqlite: SqliteStore, path: Path) -> None:
    me = await worker(sqlite)
    parent, child = new_job(), new_job()
    await add_graph(sqlite, [parent, child], [NewEdge(parent.id, child.id)])
    run_raw(path, "UPDATE drumbeat_job SET open_parents = 7 WHERE id = ?", child.id)
    [found] = await sqlite.dependencies.find_miscounted()
    assert (found.id, found.counted, found.actual) == (child.id, 7, 1)
    run_raw(path, "UPDATE drumbeat_job SET open_parents = NULL WHERE id = ?", child.id)
    assert await drain(sqlite, me) == [parent.id, child.id]


async def test_jobs_without_dependencies_cost_no_statement_about_them(
    sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = await worker(sqlite)
    seen: list[str] = []

    def spy(name: str) -> None:
        original: Callable[..., object] = getattr(SqliteConnection, name)

        def call(self: SqliteConnection, sql: str, *given: object, **options: object) -> object:
            seen.append(sql)
            return original(self, sql, *given, **options)

        monkeypatch.setattr(SqliteConnection, name, call)

    for name in ("run", "value", "row", "rows", "run_rows"):
        spy(name)

    async def pair(edges: Callable[[NewJob, NewJob], list[NewEdge]]) -> list[str]:
        first, second = new_job(), new_job()
        await add_graph(sqlite, [first, second], edges(first, second))
        outcomes = [outcome(job, OutcomeKind.SUCCEEDED) for job in await claim(sqlite, me)]
        seen.clear()
        answer = await exchange(sqlite, me, outcomes, wanting())
        texts = [text for text in seen if text not in ("BEGIN IMMEDIATE", "COMMIT")]
        await exchange(sqlite, me, [outcome(job, OutcomeKind.SUCCEEDED) for job in answer.jobs])
        return texts

    plain = await pair(lambda first, second: [])
    assert len(plain) == 4, "moved to history, deleted, the next ones picked, the next due time"
    assert "drumbeat_edge" not in " ".join(plain)
    assert len(await pair(lambda first, second: [NewEdge(first.id, second.id)])) > len(plain)


async def test_two_processes_run_a_graph(sqlite: SqliteStore, path: Path) -> None:
    """Wide layers, each of whose jobs waits for all of the one before, and chains beside them."""
    layers = [[new_job() for _ in range(30)] for _ in range(6)]
    chains = [[new_job() for _ in range(10)] for _ in range(50)]
    edges = [
        NewEdge(parent.id, child.id)
        for before, layer in itertools.pairwise(layers)
        for parent in before
        for child in layer
    ]
    edges.sort(key=lambda edge: edge.child)
    edges += [NewEdge(a.id, b.id) for chain in chains for a, b in itertools.pairwise(chain)]
    jobs = [job for line in [*layers, *chains] for job in line]
    await add_graph(sqlite, jobs, edges)
    go = path.with_suffix(".go")
    crowd = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.engines.sqlite.contending_worker", str(path), "0", str(go)),
            stdout=asyncio.subprocess.PIPE,
        )
        for _ in range(2)
    ]
    go.touch()
    finished: list[JobId] = []
    for process in crowd:
        out, _ = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0
        finished += [id for id, _ in json.loads(out)["finished"]]
    assert sorted(finished) == sorted(ids(jobs))
    found = await sqlite.inspect.get_jobs(ids(jobs))
    assert {job.state for job in found.values()} == {JobState.SUCCEEDED}
    for edge in edges:
        assert found[edge.child].token > found[edge.parent].token, "no child was claimed before its parent"
