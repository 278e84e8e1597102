"""`python -m bench.job_search --engine redis`: how long people wait for a list of jobs when there are a million.

Fills a store by its own operations (nearly half history, a third scheduled, a fifth ready, some dead letters, 30 tasks and
one rare one, 5 queues), then asks for one page of 50 by every field, for the counts and for the queues and tasks, again and
again, and prints how long that took. It compares with nobody: `python -m bench` does.
"""

import asyncio
import math
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from drumbeat.core.claim import ClaimedJob, ClaimRequest, Outcome
from drumbeat.core.instance import NewInstance, Role
from drumbeat.core.job import Failure, JobState, NewJob, OutcomeKind, PendingView
from drumbeat.core.job_query import JobFilter
from drumbeat.ids import InstanceId, JobId, new_instance_id, new_job_ids
from drumbeat.store.job_reads import find_jobs
from drumbeat.store.protocol import Store
from drumbeat.store.urls import open_store

ROUNDS = 20
BATCH = 2_500
TASKS = 30
QUEUES = ("critical", "default", "low", "mail", "reports")
HOUR = 3_600_000_000
SHARES = {"ended": 0.45, "dead": 0.05, "scheduled": 0.30, "ready": 0.20}
ARGS = '{"customer":42,"amount":"9.90","note":"some sixty characters of arguments"}'
GOAL_MS = 50.0

Ask = Callable[[], Awaitable[object]]


def new_jobs(count: int, chance: random.Random, **options: object) -> list[NewJob]:
    return [
        NewJob(
            id=id,
            task=f"task{chance.randrange(TASKS)}",
            queue=chance.choice(QUEUES),
            args=ARGS,
            signature="s1",
            key=f"customer:{chance.randrange(10_000)}" if chance.random() < 0.1 else None,
            **options,  # type: ignore[arg-type]
        )
        for id in new_job_ids(count)
    ]


def ending(job: ClaimedJob, number: int, dead_of: int) -> Outcome:
    facts = {"id": job.id, "token": job.token, "started_at": job.token + 10, "finished_at": job.token + 20}
    if number % dead_of == 0:
        failure = Failure(f"Error{number % 7}", f"no answer from host {number % 40}", "Traceback: " + "x" * 300)
        return Outcome(**facts, kind=OutcomeKind.DEAD, error=failure)  # type: ignore[arg-type]
    kind = OutcomeKind.CANCELLED if number % 50 == 1 else OutcomeKind.SUCCEEDED
    return Outcome(**facts, kind=kind)  # type: ignore[arg-type]


async def end_all(store: Store, instance: InstanceId, count: int) -> None:
    """Claim and end this many of the jobs of priority 0."""
    claim = ClaimRequest(queues=tuple((queue, BATCH) for queue in QUEUES), limit=BATCH)
    dead_of = round((SHARES["ended"] + SHARES["dead"]) / SHARES["dead"])
    outcomes: list[Outcome] = []
    ended = 0
    while ended < count:
        wanted = ClaimRequest(queues=claim.queues, limit=min(BATCH, count - ended))
        jobs = (await store.jobs.report_and_claim(instance, outcomes, wanted)).jobs
        outcomes = [ending(job, ended + number, dead_of) for number, job in enumerate(jobs)]
        ended += len(jobs)
        if not jobs:
            break
    await store.jobs.report_and_claim(instance, outcomes, None)


async def fill(store: Store, jobs: int) -> float:
    """This many jobs, in rounds, so that live and ended jobs are interleaved. Gives how many were added in a
    second, all kinds together."""
    chance = random.Random(1)
    instance = NewInstance(
        id=new_instance_id(),
        app="bench",
        version="1",
        host="here",
        pid=1,
        roles=(Role.WORKER,),
        queues=QUEUES,
        tasks={f"task{number}": "s1" for number in range(TASKS)},
        concurrency=10,
    )
    await store.instances.register(instance)
    took = 0.0
    for turn in range(ROUNDS):
        counts = {name: round(jobs * share / ROUNDS) for name, share in SHARES.items()}
        ends = counts["ended"] + counts["dead"]
        kinds = [
            (ends, {"priority": 0}),
            (counts["scheduled"], {"delay": 24 * HOUR}),
            (counts["ready"], {"priority": 9}),
        ]
        for count, options in kinds:
            for first in range(0, count, BATCH):
                made = new_jobs(min(BATCH, count - first), chance, **options)
                if turn == 0 and first == 0:
                    # Few, and the oldest of all: the hardest to find.
                    made[:5] = [
                        NewJob(id=job.id, task="rare", queue=job.queue, args=ARGS, signature="s1") for job in made[:5]
                    ]
                began = time.perf_counter()
                await store.jobs.add(made)
                took += time.perf_counter() - began
            if options == {"priority": 0}:
                await end_all(store, instance.id, count)
    return jobs / took


async def searches(store: Store) -> dict[str, JobFilter]:
    [newest] = await find_jobs(store, JobFilter(limit=1))
    [dead] = await find_jobs(store, JobFilter(dead_letters=True, limit=1))
    [keyed] = await find_jobs(store, JobFilter(state=JobState.DEAD, key=dead.key, limit=1))
    now = await store.inspect.now()
    middle = now - 30_000_000
    found = {
        "everything": JobFilter(),
        "since 30 s ago": JobFilter(since=middle),
        "until 30 s ago": JobFilter(until=middle),
    }
    found |= {f"state {state}": JobFilter(state=state) for state in JobState}
    found |= {f"view {view}": JobFilter(view=view) for view in PendingView}
    found |= {
        "dead letters": JobFilter(dead_letters=True),
        "a task": JobFilter(task="task7"),
        "a rare task": JobFilter(task="rare"),
        "no such task": JobFilter(task="nobody"),
        "a queue": JobFilter(queue="mail"),
        "no such queue": JobFilter(queue="nowhere"),
        "a key": JobFilter(key=keyed.key or "customer:17"),
        "no such key": JobFilter(key="customer:none"),
        "an error": JobFilter(error="host 17"),
        "no such error": JobFilter(error="nowhere"),
        "an instance": JobFilter(instance=dead.instance),
        "no such instance": JobFilter(instance=InstanceId("0123456789abcdef")),
        "a schedule": JobFilter(schedule="nightly"),
        "an id": JobFilter(id=dead.id),
        "the beginning of an id": JobFilter(id=newest.id[:8]),
        "task, queue and succeeded": JobFilter(task="task7", queue="mail", state=JobState.SUCCEEDED),
        "ready, of a task": JobFilter(view=PendingView.READY, task="task7"),
        "dead, of a task, by error": JobFilter(dead_letters=True, task="task7", error="host 17"),
    }
    return found


async def read_questions(store: Store) -> dict[str, Ask]:
    asks: dict[str, Ask] = {}
    for name, filter in (await searches(store)).items():
        asks[name] = lambda filter=filter: store.inspect.find_page(filter)  # type: ignore[misc]
    asks["page 101 of everything"] = await deep(store)
    asks["counts"] = lambda: store.inspect.count_jobs(JobFilter())
    asks["counts of a task"] = lambda: store.inspect.count_jobs(JobFilter(task="task7"))
    asks["queues"] = store.inspect.list_queues
    asks["tasks"] = store.inspect.list_tasks
    return asks


async def deep(store: Store) -> Ask:
    before: JobId | None = None
    for _ in range(100):
        before = (await store.inspect.find_page(JobFilter(before=before))).next
    return lambda: store.inspect.find_page(JobFilter(before=before))


async def time_query(ask: Ask, runs: int) -> tuple[float, float, float]:
    """Milliseconds: p50, p95 and the longest."""
    took: list[float] = []
    for _ in range(runs):
        began = time.perf_counter()
        await ask()
        took.append((time.perf_counter() - began) * 1_000)
    took.sort()
    return took[runs // 2], took[math.ceil(runs * 0.95) - 1], took[-1]


async def run(url: str, jobs: int, runs: int) -> None:
    async with await open_store(url) as store:
        if not await find_jobs(store, JobFilter(limit=1)):
            click.echo(f"{jobs:,} jobs, added at {await fill(store, jobs):,.0f} a second")
        click.echo(f"{'one page of 50, or all of':32}{'p50':>9}{'p95':>9}{'longest':>9}  ms")
        for name, ask in (await read_questions(store)).items():
            p50, p95, longest = await time_query(ask, runs)
            click.echo(f"{name:32}{p50:9.1f}{p95:9.1f}{longest:9.1f}{'' if p95 < GOAL_MS else '  !'}")


@contextmanager
def fresh_store(engine: str) -> Iterator[str]:
    """The URL of an empty store."""
    if engine == "sqlite":
        with tempfile.TemporaryDirectory(prefix="drumbeat-searching-") as folder:
            yield f"sqlite:///{Path(folder) / 'jobs.db'}"
        return
    # Imported here: a run on SQLite alone needs no server.
    from tests.servers import postgres, redis

    server = postgres.Databases(18) if engine == "postgres" else redis.Databases("valkey")
    try:
        yield server.fresh_url()
    finally:
        server.close()


@click.command()
@click.option("--engine", type=click.Choice(["sqlite", "postgres", "redis"]), default="sqlite", show_default=True)
@click.option("--url", help="This store instead of a fresh one; it is filled if it is empty, and left as it is.")
@click.option("--jobs", default=1_000_000, show_default=True, help="How many.")
@click.option("--runs", default=40, show_default=True, help="How often each question is asked.")
def main(engine: str, url: str | None, jobs: int, runs: int) -> None:
    """How long a list of jobs takes when there are a million."""
    if url is not None:
        asyncio.run(run(url, jobs, runs))
        return
    with fresh_store(engine) as made:
        asyncio.run(run(made, jobs, runs))


if __name__ == "__main__":
    main()
