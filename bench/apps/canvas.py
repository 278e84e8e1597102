"""Drumbeat's program of `python -m bench.canvas`, and what its client does. Where the store is, DRUMBEAT_URL says."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from bench.apps.folder import ledger
from drumbeat import Drumbeat, current_job
from drumbeat.core.claim import ClaimRequest, Outcome
from drumbeat.core.instance import NewInstance, Role
from drumbeat.core.job import OutcomeKind
from drumbeat.ids import new_instance_id
from drumbeat.settings import Settings
from drumbeat.store.urls import open_store

app = Drumbeat()
CHUNK = 5_000


@app.task
async def link(number: int) -> None:
    ledger.stamp(number)


@app.task
async def carry(number: int, total: int) -> int:
    ledger.stamp(number)
    return total + 1


@app.task
async def stepping(number: int, steps: int) -> None:
    job = current_job()
    ledger.stamp(number)
    for each in range(steps):
        await job.step(f"step:{each}", nothing)
    ledger.stamp(number + 1)


async def nothing() -> None:
    pass


async def fill_plain(count: int) -> None:
    async with app:
        for first in range(0, count, CHUNK):
            await app.enqueue_many([link.bind(number) for number in range(first, min(count, first + CHUNK))])


async def fill_chains(chains: int, length: int, *, bound: bool) -> None:
    """Chain c has the slots c * length and so on."""
    async with app:
        for chain in range(chains):
            numbers = range(chain * length, (chain + 1) * length)
            await (add_bound_chain(numbers) if bound else add_chain(numbers))


async def add_chain(numbers: Sequence[int]) -> None:
    calls = [link.bind(numbers[0])]
    for number in numbers[1:]:
        calls.append(link.using(after=[calls[-1]]).bind(number))
    await app.enqueue_many(calls)


async def add_bound_chain(numbers: Sequence[int]) -> None:
    flow = app.workflow("chain")
    node = flow.add(carry.bind(numbers[0], 0))
    for number in numbers[1:]:
        node = flow.add(carry.bind(number, node.result))
    await flow.enqueue()


async def time_links(length: int, times: int) -> list[float]:
    """Milliseconds for each link of one chain after the other, while a worker is idle. The first chain is a warm-up."""
    found = []
    async with app:
        for turn in range(times + 1):
            numbers = range(turn * length, (turn + 1) * length)
            await add_chain(numbers)
            ledger.wait(numbers[-1] + 1, seconds=60, poll=0.001)
            began, *_, ended = ledger.timestamps(numbers[0], numbers[-1] + 1)
            found.append((ended - began) / 1e6 / (length - 1))
            await asyncio.sleep(0.02)
    return found[1:]


async def time_pickups(count: int) -> list[float]:
    """Milliseconds from the call of enqueue to the start of the handler. The first is a warm-up."""
    found = []
    async with app:
        for number in range(count + 1):
            called = time.monotonic_ns()
            await link.enqueue(number)
            ledger.wait(number + 1, seconds=60, poll=0.001)
            found.append((ledger.timestamps(number, number + 1)[0] - called) / 1e6)
            await asyncio.sleep(0.02)
    return found[1:]


async def fill_chord(count: int) -> None:
    """Slots 0 to count - 1, and `count` of the finaliser."""
    async with app:
        calls = [link.bind(number) for number in range(count)]
        flow = app.workflow("chord", *calls)
        flow.add(link.bind(count), after=calls)
        await flow.enqueue()


async def fill_steps(jobs: int, steps: int) -> None:
    async with app:
        await app.enqueue_many([stepping.bind(2 * number, steps) for number in range(jobs)])


class Hand:
    """A store of its own, and an instance that claims and reports by hand."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.id = new_instance_id()

    @classmethod
    async def open(cls) -> "Hand":
        settings: Settings = app.settings
        hand = cls(await open_store(settings.url, coordination=None, namespace=settings.namespace))
        facts: dict[str, Any] = {"app": "bench", "version": "1", "host": "bench", "pid": 1, "roles": (Role.WORKER,)}
        facts |= {"queues": ("default",), "tasks": {}, "concurrency": 1}
        await hand.store.instances.register(NewInstance(id=hand.id, **facts))
        return hand

    async def exchange(self, outcomes: Sequence[Outcome], limit: int) -> Any:
        return await self.store.jobs.report_and_claim(
            self.id, outcomes, ClaimRequest(queues=(("default", limit),), limit=limit, is_expected=True)
        )


def succeed(jobs: Sequence[Any], now: int) -> list[Outcome]:
    return [
        Outcome(id=job.id, token=job.token, kind=OutcomeKind.SUCCEEDED, started_at=now, finished_at=now) for job in jobs
    ]


async def drain_by_hand(writers: int, batch: int, jobs: int) -> float:
    """Seconds until stores side by side have claimed and finished that many jobs, in batches."""
    hands = [await Hand.open() for _ in range(writers)]
    left = jobs

    async def work(hand: Hand) -> None:
        nonlocal left
        done: list[Outcome] = []
        while left > 0:
            answer = await hand.exchange(done, batch)
            left -= len(done)
            done = succeed(answer.jobs, answer.now)
            if answer.is_releasing:
                await hand.store.dependencies.advance()

    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for hand in hands:
            group.create_task(work(hand))
    seconds = time.monotonic() - began
    for hand in hands:
        await hand.store.close()
    return seconds


async def fan_out(count: int) -> dict[str, float]:
    """One parent with that many children ends; meanwhile others beat and exchange. Seconds until all are due, and the longest
    call of the others in milliseconds."""
    async with app:
        root = await link.enqueue(0)
        await app.enqueue_many([link.using(after=[root]).bind(number) for number in range(1, count + 1)])
    acting, beating, claiming = [await Hand.open() for _ in range(3)]
    answer = await acting.exchange([], 1)
    assert [job.id for job in answer.jobs] == [root.id]
    longest = {"beat": 0.0, "exchange": 0.0}
    is_over = False

    async def repeat(name: str, call: Callable[[], Awaitable[Any]]) -> None:
        while not is_over:
            began = time.monotonic()
            await call()
            longest[name] = max(longest[name], time.monotonic() - began)
            await asyncio.sleep(0.002)

    async def end_parent() -> float:
        nonlocal is_over
        began = time.monotonic()
        ended = await acting.store.jobs.report_and_claim(acting.id, succeed(answer.jobs, answer.now), None)
        is_more = ended.is_releasing
        while is_more:
            is_more = await acting.store.dependencies.advance()
        is_over = True
        return time.monotonic() - began

    async with asyncio.TaskGroup() as group:
        group.create_task(repeat("beat", lambda: beat(beating)))
        group.create_task(repeat("exchange", lambda: claiming.exchange([], 1)))
        await asyncio.sleep(0.05)
        taken = group.create_task(end_parent())
    for hand in (acting, beating, claiming):
        await hand.store.close()
    return {"seconds": taken.result(), **{f"{name}_ms": 1e3 * each for name, each in longest.items()}}


async def beat(hand: Hand) -> None:
    await hand.store.instances.heartbeat(hand.id, running=0)


async def fill_carry(count: int) -> None:
    async with app:
        for first in range(0, count, CHUNK):
            await app.enqueue_many([carry.bind(number, 0) for number in range(first, min(count, first + CHUNK))])
