"""Roll-ups are written in few steps: each step gives up the interpreter's lock, while all writers wait for the turn."""

from drumbeat.core.stats import Resolution, Rollup
from drumbeat.store.sqlite import SqliteStore
from tests.contract.making import HOUR, worker
from tests.engines.sqlite.test_writer import StatementTrace

TASKS = 300


def totals(started: int) -> list[Rollup]:
    return [
        Rollup(resolution=Resolution.TOTAL, at=0, queue="default", task=f"task-{number:03}", started=started)
        for number in range(TASKS)
    ]


async def test_many_rollups_are_one_step(sqlite: SqliteStore) -> None:
    instance = await worker(sqlite)
    statements = StatementTrace(sqlite)
    await sqlite.stats.put(instance, totals(1))
    assert statements.count("INSERT INTO") == 1
    assert await sqlite.stats.read(Resolution.TOTAL, 0, 1) == totals(1)


async def test_the_totals_of_those_who_have_gone_are_added_up_in_few_steps(sqlite: SqliteStore) -> None:
    gone = [await worker(sqlite) for _ in range(3)]
    for instance in gone:
        await sqlite.stats.put(instance, totals(2))
        await sqlite.instances.deregister(instance, "done")
    statements = StatementTrace(sqlite)
    later = await sqlite.inspect.now() + HOUR
    assert await sqlite.stats.prune({}, idle_since=later, limit=3 * TASKS) == 3 * TASKS
    assert len(statements.seen) < 12
    assert await sqlite.stats.read(Resolution.TOTAL, 0, 1) == totals(6)
