"""`python -m tests.chaos.clients KIND`: processes that enqueue, cancel, replay, lock and broadcast until they are killed."""

import asyncio
import os
import random
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from drumbeat import NewJob
from drumbeat.clock import SYSTEM
from tests.chaos import journal, program
from tests.chaos.graphs import grow
from tests.chaos.patient_client import PatientClient
from tests.chaos.program import app
from tests.chaos.sagas import send_signals

RATE = "CHAOS_RATE"
MAX_BACKLOG = 500
"""More, and a job that was lost waits for its turn longer than for its recovery."""
BATCH = 50
PLAIN = (program.quick, program.quick, program.quick, program.quick, program.threaded, program.flaky)
SPECIAL = (
    (program.slow, 6),
    (program.slow_in_thread, 3),
    (program.slow_apart, 2),
    (program.apart, 3),
    (program.snoozer, 3),
    (program.locked, 4),
    (program.doomed, 3),
    (program.timed, 1),
    (program.timed_in_process, 1),
    (program.notice, 4),
)
LOCKERS = 3
NOTICES = 0.1
"""The share of batches that a batch of forwarded jobs follows."""

dice = random.Random()


client = PatientClient(app, dice)


async def enqueue(
    jobs: Sequence[NewJob], *, delay: float = 0.0, key: str | None = None, whole: bool = False, send: Any = None
) -> Any:
    batch = str(jobs[0].id) if whole else None
    return await client.enqueue(jobs, may_repeat=key is None, send=send, delay=delay, key=key, batch=batch)


async def produce_bulk() -> None:
    rate = float(os.environ.get(RATE, "250"))
    number = 0
    while True:
        count = dice.randint(1, 2 * BATCH)
        await enqueue([dice.choice(PLAIN).bind(number + n) for n in range(count)], whole=True)
        if dice.random() < NOTICES:
            await enqueue([program.notice.bind(number + n) for n in range(dice.randint(1, BATCH))], whole=True)
        number += count
        await SYSTEM.sleep(count / rate)
        while number % 5 == 0 and await client.count_ready() > MAX_BACKLOG:
            await SYSTEM.sleep(0.5)


async def produce_singly() -> None:
    tasks, weights = zip(*SPECIAL, strict=True)
    async with asyncio.TaskGroup() as group:
        while True:
            number = dice.getrandbits(20)
            if dice.random() < 0.2:
                key = f"key-{dice.randint(1, 5)}"
                group.create_task(client.survive(lambda n=number, k=key: enqueue_unique(n, k)))  # type: ignore[misc]
            else:
                (task,) = dice.choices(tasks, weights)
                group.create_task(client.survive(lambda t=task, n=number: enqueue_one(t, n)))  # type: ignore[misc]
            if dice.random() < 0.2:
                group.create_task(client.survive(lambda n=number: enqueue_limited(n)))  # type: ignore[misc]
            if dice.random() < float(os.environ.get("CHAOS_POISON", "0.002")):
                group.create_task(client.survive(lambda n=number: enqueue([program.poison.bind(n)])))  # type: ignore[misc]
            await SYSTEM.sleep(dice.uniform(0.0, 0.2))


async def produce_graphs() -> None:
    """Jobs that wait for each other, and jobs with steps, sleeps and waits for signals."""
    nodes = {"node": program.node, "mortal": program.mortal}
    async with asyncio.TaskGroup() as group:
        while True:
            group.create_task(client.survive(lambda: grow(app, nodes, enqueue, dice)))
            group.create_task(client.survive(enqueue_saga))
            await SYSTEM.sleep(dice.uniform(0.2, 1.0))


async def enqueue_saga() -> None:
    number = dice.getrandbits(30)
    [handle] = await enqueue([program.saga.bind(number)])
    await send_signals(app, handle.id, number, dice)


async def enqueue_limited(number: int) -> None:
    """A few jobs of one group, that must not all run at once."""
    task = dice.choice((program.limited, program.rated, program.ordered)).using(group=f"tenant:{dice.randint(1, 3)}")
    await enqueue([task.bind(number + n) for n in range(dice.randint(1, 5))], whole=True)


async def enqueue_unique(number: int, key: str) -> None:
    await enqueue([program.unique.using(key=key, unique=True).bind(number)], key=key)


async def enqueue_one(task: Any, number: int) -> None:
    delay = dice.choice((0.0, 0.0, round(dice.uniform(0.1, 3.0), 3)))
    handles = await enqueue([task.using(delay=delay or None).bind(number)], delay=delay)
    if handles and dice.random() < 0.3:
        await SYSTEM.sleep(dice.choice((0.0, 0.05, 0.5)))
        answer = await handles[0].cancel()
        journal.write("cancelled", job=str(handles[0].id), answer=str(answer))


async def replay() -> None:
    while True:
        await SYSTEM.sleep(1.0)
        letters = [*await app.dead.list(task="doomed", limit=20), *await app.dead.list(task="mortal", limit=20)]
        chosen = [str(letter.id) for letter in letters if dice.random() < 0.5]
        if chosen:
            journal.write("replays", ids=chosen)
            await app.dead.replay(chosen)


async def take_locks() -> None:
    while True:
        await program.hold_lock(f"resource-{dice.randint(0, 1)}", dice.uniform(0.0, 0.2))


async def call_at_rate() -> None:
    while True:
        async with app.lock("rate", limit=5, per=1) as lock:
            journal.write("rate", limit=5, per=1.0, at=lock.granted_at / 1e6)


async def broadcast() -> None:
    while True:
        message = dice.getrandbits(40)
        told = await program.hear.broadcast(message)
        journal.write("broadcast", message=message, told=told)
        await SYSTEM.sleep(0.3)


KINDS: dict[str, tuple[Callable[[], Awaitable[object]], ...]] = {
    "bulk": (produce_bulk,),
    "single": (produce_singly, produce_graphs),
    "locks": (*(take_locks,) * LOCKERS, call_at_rate, call_at_rate),
    "operator": (replay, broadcast),
    "all": (produce_bulk, produce_singly, produce_graphs, take_locks, call_at_rate, replay, broadcast),
}


async def main(kind: str) -> None:
    async with app, asyncio.TaskGroup() as group:
        for work in KINDS[kind]:
            group.create_task(client.persist(work))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
