"""`python -m tests.soak.load`: the clients of the program, in one process, at a steady rate until it is killed."""

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from drumbeat import NewJob
from drumbeat.clock import SYSTEM
from drumbeat.errors import DrumbeatError, StoreUnavailable
from tests.chaos import journal
from tests.soak import program
from tests.soak.program import app

RATE = "SOAK_RATE"
SINGLY = 0.2
"""The share of jobs that are enqueued one by one."""
PLAIN = (program.quick, program.quick, program.quick, program.threaded, program.flaky)
SPECIAL: Sequence[tuple[Any, int]] = (
    (program.slow, 4),
    (program.locked, 6),
    (program.doomed, 2),
    (program.apart, 2),
    (program.quick, 4),
)
KEYS = 10
MAX_BACKLOG = 500
"""A machine that is too busy for the rate gets less: a backlog is no leak."""
RESULT_TIMEOUT = 20.0

dice = random.Random()
rate = float(os.environ.get(RATE, "60"))


async def enqueue(jobs: Sequence[NewJob], *, is_unique: bool = False) -> Any:
    """As users do: a job whose answer was lost is sent again under its id, unless its key is unique."""
    ids = [str(job.id) for job in jobs]
    journal.write("asks", ids=ids)
    while True:
        try:
            handles = await app.enqueue_many(jobs)
        except StoreUnavailable:
            if is_unique:
                return None
            await SYSTEM.sleep(dice.uniform(0.05, 0.3))
            continue
        journal.write("acknowledged", ids=ids, existing=[str(handle.id) for handle in handles])
        return handles


async def produce_bulk() -> None:
    number = 0
    while True:
        count = dice.randint(5, 35)
        await enqueue([dice.choice(PLAIN).bind(number + n) for n in range(count)])
        number += count
        await SYSTEM.sleep(count / (rate * (1 - SINGLY)))
        while await count_ready() > MAX_BACKLOG:
            await SYSTEM.sleep(0.5)


async def count_ready() -> int:
    return sum(queue.ready for queue in await app.queues.list())


async def produce_singly() -> None:
    async with asyncio.TaskGroup() as group:
        while True:
            group.create_task(survive(enqueue_one))
            await SYSTEM.sleep(dice.uniform(0.0, 2 / (rate * SINGLY)))


async def enqueue_one() -> None:
    tasks, weights = zip(*SPECIAL, strict=True)
    (task,) = dice.choices(tasks, weights)
    number = dice.getrandbits(20)
    chance = dice.random()
    if chance < 0.2:
        key = f"key-{dice.randrange(KEYS)}"
        await enqueue([program.slow.using(key=key, unique=True).bind(number)], is_unique=True)
        return
    delay = dice.choice((None, None, round(dice.uniform(0.1, 3.0), 3)))
    handles = await enqueue([task.using(delay=delay).bind(number)])
    if chance < 0.4:
        journal.write("cancels", job=str(handles[0].id))
        await handles[0].cancel()
    elif chance < 0.7 and task is not program.doomed:
        await handles[0].result(timeout=RESULT_TIMEOUT)


async def resolve_dead_letters() -> None:
    while True:
        await SYSTEM.sleep(2.0)
        letters = [str(letter.id) for letter in await app.dead.list(limit=50)]
        again = [id for id in letters if dice.random() < 0.3]
        given_up = [id for id in letters if id not in again]
        if again:
            await app.dead.replay(again)
        if given_up:
            journal.write("discards", ids=given_up)
            await app.dead.discard(given_up)


async def take_locks() -> None:
    while True:
        async with app.lock(f"customer-{dice.randrange(20)}", limit=dice.choice((1, 2))):
            await SYSTEM.sleep(dice.uniform(0.0, 0.1))
        async with app.lock("rate", limit=5, per=1):
            pass


async def broadcast() -> None:
    while True:
        await program.hear.broadcast(dice.getrandbits(40))
        await SYSTEM.sleep(1.0)


async def survive(work: Callable[[], Awaitable[object]]) -> None:
    """A client outlives what a restart of its store does to it; a mistake of its own is written down, and fails the run."""
    try:
        await work()
    except (DrumbeatError, TimeoutError):
        await SYSTEM.sleep(dice.uniform(0.05, 0.3))
    except Exception as error:
        journal.write("mistake", error=repr(error))
        raise


async def persist(work: Callable[[], Awaitable[object]]) -> None:
    while True:
        await survive(work)


async def main() -> None:
    async with app, asyncio.TaskGroup() as group:
        for work in (produce_bulk, produce_singly, resolve_dead_letters, take_locks, take_locks, broadcast):
            group.create_task(persist(work))


if __name__ == "__main__":
    asyncio.run(main())
