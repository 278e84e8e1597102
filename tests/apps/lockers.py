"""A process that does what it is told with locks, line by line on its standard input.

enter NAME NUMBER     take a place in the line of a lock; write down the turn when it comes, and leave
hold FILE             hold the lock "held" until it is lost, and write to the resource in FILE with its token, then and before
calls LIMIT PER       call under a rate, again and again, in ten tasks at once, until the input ends
crowd NAME COUNT      take so many places at once; write down, when all have had their turn, what was asked of the store
"""

import asyncio
import sqlite3
import sys
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from drumbeat import Drumbeat
from drumbeat.errors import LockLost
from tests.apps import journal
from tests.faults import FaultyStore


class CountingApp(Drumbeat):
    """Counts what its tasks and its keeper ask of the store."""

    tasks_store: FaultyStore | None = None

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self._real_store, self._real_open_store = self._internals.store, self._internals.open_store
        self._internals.store = self._store  # type: ignore[method-assign]
        self._internals.open_store = self._open_store  # type: ignore[method-assign]

    async def _store(self) -> Any:
        if self.tasks_store is None:
            self.tasks_store = self._counting(await self._real_store())
        return self.tasks_store

    async def _open_store(self) -> Any:
        return self._counting(await self._real_open_store())

    def _counting(self, store: Any) -> FaultyStore:
        counting = FaultyStore(store)
        counting.calls = self.calls
        return counting


app = CountingApp()


async def enter(name: str, number: str) -> None:
    async with app.lock(name) as lock:
        journal.write("turn", number=int(number), token=lock.token)
        await asyncio.sleep(0.01)


async def hold(file: str) -> None:
    with suppress(LockLost):
        async with app.lock("held") as lock:
            journal.write("holds", token=lock.token, accepted=is_accepted(Path(file), lock.token))
            try:
                await asyncio.Event().wait()
            finally:
                journal.write("ends", lost=lock.lost.is_set())
                journal.write("late", token=lock.token, accepted=is_accepted(Path(file), lock.token))


async def calls(limit: str, per: str) -> None:
    rate = app.lock("rate", limit=int(limit), per=float(per))
    while True:
        async with rate as lock:
            journal.write("call", at=lock.granted_at)


async def crowd(name: str, count: str) -> None:
    began = time.monotonic()

    async def turn() -> None:
        async with app.lock(name):
            pass

    async with asyncio.TaskGroup() as group:
        for _ in range(int(count)):
            group.create_task(turn())
    journal.write("crowd", calls=dict(app.calls), seconds=time.monotonic() - began)


def is_accepted(file: Path, token: int) -> bool:
    """A resource that checks: it takes no write with an older token than it has seen."""
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute("CREATE TABLE IF NOT EXISTS fence (token INTEGER)")
        db.execute("INSERT INTO fence SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM fence)")
        return db.execute("UPDATE fence SET token = ? WHERE token <= ?", (token, token)).rowcount == 1


async def main() -> None:
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str] = asyncio.Queue()
    loop.add_reader(sys.stdin, lambda: lines.put_nowait(sys.stdin.readline()))
    tasks = set[asyncio.Task[None]]()
    async with app:
        journal.write("ready")
        while words := (await lines.get()).split():
            command, *given = words
            work = {"enter": enter, "hold": hold, "calls": calls, "crowd": crowd}[command]
            for _ in range(10 if command == "calls" else 1):
                tasks.add(loop.create_task(work(*given)))  # type: ignore[operator]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


if __name__ == "__main__":
    asyncio.run(main())
