"""`python -m tests.soak.load`: the clients of the program, in one process, at a steady rate until it is killed."""

import asyncio
import os
import random
from collections.abc import Sequence
from typing import Any

from drumbeat.clock import SYSTEM
from tests.chaos import journal
from tests.chaos.patient_client import PatientClient
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


client = PatientClient(app, dice, survived=(TimeoutError,))


async def produce_bulk() -> None:
    number = 0
    while True:
        count = dice.randint(5, 35)
        await client.enqueue([dice.choice(PLAIN).bind(number + n) for n in range(count)])
        number += count
        await SYSTEM.sleep(count / (rate * (1 - SINGLY)))
        while await client.count_ready() > MAX_BACKLOG:
            await SYSTEM.sleep(0.5)


async def produce_singly() -> None:
    async with asyncio.TaskGroup() as group:
        while True:
            group.create_task(client.survive(enqueue_one))
            await SYSTEM.sleep(dice.uniform(0.0, 2 / (rate * SINGLY)))


async def enqueue_one() -> None:
    tasks, weights = zip(*SPECIAL, strict=True)
    (task,) = dice.choices(tasks, weights)
    number = dice.getrandbits(20)
    chance = dice.random()
    if chance < 0.2:
        key = f"key-{dice.randrange(KEYS)}"
        await client.enqueue([program.slow.using(key=key, unique=True).bind(number)], may_repeat=False)
        return
    delay = dice.choice((None, None, round(dice.uniform(0.1, 3.0), 3)))
    handles = await client.enqueue([task.using(delay=delay).bind(number)])
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


async def main() -> None:
    async with app, asyncio.TaskGroup() as group:
        for work in (produce_bulk, produce_singly, resolve_dead_letters, take_locks, take_locks, broadcast):
            group.create_task(client.persist(work))


if __name__ == "__main__":
    asyncio.run(main())
