"""`python -m bench.limits --engine sqlite`: what limits cost a claim. Rates of claim and finish in one exchange, on a store
that was filled first, by one caller without handlers; in rounds, medians and spread. Compare within one run only.

plain        jobs without a policy
fair10       10 groups that take turns
limited1k    1,000 groups, 2 at once each
groups100k   100,000 groups with a job each, 1 at once
beside_full  the same beside 1,000,000 waiting jobs of a group that is full
hot          one group, 200 at once, 4 callers
hot_single   one group, 4 callers that claim one by one
"""

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import click

from bench.job_search import fresh_store
from drumbeat.core.claim import ClaimRequest, Outcome
from drumbeat.core.instance import NewInstance, Role
from drumbeat.core.job import NewJob, OutcomeKind
from drumbeat.core.lanes import lane_name
from drumbeat.core.limits import Bounds, LineDeclaration, LinePolicy
from drumbeat.ids import InstanceId, new_instance_id, new_job_id
from drumbeat.store.protocol import Store
from drumbeat.store.urls import migrate_store, open_store

BATCH = 200
CHUNK = 5_000
QUEUE = "default"


def job(group: str | None, task: str = "noop") -> NewJob[Any]:
    lane = "" if group is None else lane_name(task, group)
    return NewJob(id=new_job_id(), task=task, queue=QUEUE, args="{}", signature="s", group=group or "", lane=lane)


async def fill(store: Store, groups: Iterator[str | None], count: int, task: str = "noop") -> float:
    began = time.perf_counter()
    left = count
    while left:
        jobs = [job(group, task) for group in islice(groups, min(CHUNK, left))]
        await store.jobs.add(jobs)
        left -= len(jobs)
    return count / (time.perf_counter() - began)


async def register(store: Store) -> InstanceId:
    instance = NewInstance(
        id=new_instance_id(),
        app="bench",
        version="1",
        host="here",
        pid=1,
        roles=(Role.WORKER,),
        queues=(QUEUE,),
        tasks={"noop": "s"},
        concurrency=BATCH,
    )
    await store.instances.register(instance)
    return instance.id


class Tally:
    """How many jobs have ended, by all callers."""

    def __init__(self) -> None:
        self.done = 0


async def drain(store: Store, count: int, batch: int = BATCH, tally: Tally | None = None) -> float:
    """Jobs a second. Claims until so many have ended by anybody's hand."""
    tally = tally or Tally()
    instance = await register(store)
    outcomes: list[Outcome] = []
    began = time.perf_counter()
    while tally.done < count:
        request = ClaimRequest(queues=((QUEUE, batch),), limit=batch, slots=batch, is_expected=True)
        answer = await store.jobs.report_and_claim(instance, outcomes, request)
        tally.done += len(outcomes)
        outcomes = [
            Outcome(
                id=each.id, token=each.token, kind=OutcomeKind.SUCCEEDED, started_at=answer.now, finished_at=answer.now
            )
            for each in answer.jobs
        ]
        if not outcomes and tally.done < count:
            await asyncio.sleep(
                0 if answer.next_due_at is None else min(0.01, max(0, answer.next_due_at - answer.now) / 1e6)
            )
    return count / (time.perf_counter() - began)


async def crowd(url: str, count: int, batch: int, callers: int) -> float:
    stores = [await open_store(url) for _ in range(callers)]
    began, tally = time.perf_counter(), Tally()
    try:
        async with asyncio.TaskGroup() as group:
            for store in stores:
                group.create_task(drain(store, count, batch, tally))
    finally:
        for store in stores:
            await store.close()
    return count / (time.perf_counter() - began)


def cycle(names: Callable[[int], str | None]) -> Iterator[str | None]:
    number = 0
    while True:
        yield names(number)
        number += 1


async def declare(store: Store, task: str = "noop", **policy: Any) -> None:
    await store.limits.declare([LineDeclaration(queue=QUEUE, line=task, policy=LinePolicy(**policy))], 1)


async def measure(url: str, name: str, count: int, backlog: int) -> dict[str, float]:
    async with await open_store(url) as store:
        match name:
            case "plain":
                added = await fill(store, cycle(lambda _: None), count)
            case "fair10":
                await declare(store, fair=True)
                added = await fill(store, cycle(lambda number: f"g{number % 10}"), count)
            case "limited1k":
                await declare(store, each=Bounds(2))
                added = await fill(store, cycle(lambda number: f"g{number % 1_000}"), count)
            case "groups100k":
                await declare(store, each=Bounds(1))
                added = await fill(store, cycle(lambda number: f"g{number}"), count)
            case "beside_full":
                await declare(store, each=Bounds(1))
                await declare(store, "full", each=Bounds(1))
                await fill(store, cycle(lambda _: "flood"), backlog, "full")
                holder = await register(store)
                request = ClaimRequest(queues=((QUEUE, 1),), limit=1)
                await store.jobs.report_and_claim(holder, [], request)
                added = await fill(store, cycle(lambda number: f"g{number}"), count)
            case _:
                await declare(store, each=Bounds(BATCH * 4))
                added = await fill(store, cycle(lambda _: "hot"), count)
        if name.startswith("hot"):
            return {name: await crowd(url, count, 1 if name == "hot_single" else BATCH, 4)}
        return {name: await drain(store, count), f"{name}_add": added}


@click.command()
@click.option("--engine", type=click.Choice(["sqlite", "postgres", "redis", "valkey"]), default="sqlite")
@click.option("--rounds", default=3)
@click.option("--count", default=20_000)
@click.option("--backlog", default=1_000_000)
@click.argument("names", nargs=-1)
def main(engine: str, rounds: int, count: int, backlog: int, names: tuple[str, ...]) -> None:
    """Measure what limits cost."""
    figures: dict[str, list[float]] = {}
    wanted = names or ("plain", "fair10", "limited1k", "groups100k", "hot", "hot_single")
    for _ in range(rounds):
        for name in dict.fromkeys(("plain", *wanted)):
            with fresh_store(engine) as url:
                asyncio.run(migrate_store(url))
                number = 2_000 if name == "hot_single" else count
                for key, value in asyncio.run(measure(url, name, number, backlog)).items():
                    figures.setdefault(key, []).append(value)
    plain = figures["plain"]
    for key, values in figures.items():
        base = figures["plain_add"] if key.endswith("_add") else plain
        ratios = [value / other for value, other in zip(values, base, strict=True)]
        spread = f"{min(ratios):.2f}..{max(ratios):.2f}"
        click.echo(
            f"{key:16} {statistics.median(values):10,.0f}/s   {statistics.median(ratios):.2f} of plain ({spread})"
        )


if __name__ == "__main__":
    main()
