"""A process that plays with locks, as it is told by its arguments, and says on its standard output what it saw.

handoff NAME ROUNDS SEED    enter, hold for 20 to 40 ms, leave, again and again: times by CLOCK_MONOTONIC
crowd NAME WAITERS          enter with this many tasks at once; each leaves at once: the number of operations
"""

import asyncio
import json
import os
import random
import sys
import time
from collections import Counter
from typing import Any

from bench.apps import URL_NAME
from drumbeat import Drumbeat


class CountingApp(Drumbeat):
    """Counts the operations on locks that its tasks and its keeper send to their stores."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.calls: Counter[str] = Counter()
        self._real_store, self._real_open_store = self._internals.store, self._internals.open_store
        self._internals.store = self._store  # type: ignore[method-assign]
        self._internals.open_store = self._open_store  # type: ignore[method-assign]

    async def _store(self) -> Any:
        return self._counted(await self._real_store())

    async def _open_store(self) -> Any:
        return self._counted(await self._real_open_store())

    def _counted(self, store: Any) -> Any:
        for name in ("acquire", "ticket_status", "release"):
            real = getattr(store.locks, name)
            if not hasattr(real, "counts"):
                setattr(store.locks, name, self._counting(name, real))
        return store

    def _counting(self, name: str, real: Any) -> Any:
        async def called(*args: Any, **options: Any) -> Any:
            self.calls["renew" if options.get("renew") else name] += 1
            return await real(*args, **options)

        called.counts = True  # type: ignore[attr-defined]
        return called


async def handoff(name: str, rounds: str, seed: str) -> Any:
    dice, turns = random.Random(int(seed)), []
    async with Drumbeat(os.environ[URL_NAME]) as app:
        lock = app.lock(name)
        for _ in range(int(rounds)):
            wanted = time.monotonic_ns()
            async with lock as held:
                got = time.monotonic_ns()
                await asyncio.sleep(dice.uniform(0.02, 0.04))
                leaving = time.monotonic_ns()
            turns.append((held.token, wanted, got, leaving))
    return turns


async def crowd(name: str, waiters: str) -> Any:
    app = CountingApp(os.environ[URL_NAME])
    began = time.monotonic()

    async def turn() -> None:
        async with app.lock(name):
            pass

    async with app, asyncio.TaskGroup() as group:
        for _ in range(int(waiters)):
            group.create_task(turn())
    return {"calls": app.calls, "seconds": time.monotonic() - began}


def main(game: str, *given: str) -> None:
    print(json.dumps(asyncio.run({"handoff": handoff, "crowd": crowd}[game](*given))))


if __name__ == "__main__":
    main(*sys.argv[1:])
