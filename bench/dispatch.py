"""`python -m bench.dispatch --engine postgres --sink redis`: jobs that are sent to a broker instead of run, by one process.

Three figures: how many a second while a queue is emptied, and, of many that are due at one instant while the process is up and
idle, how long after that instant the broker had acknowledged the first and the last. With the CPU time of the process for each
job, which says more than a rate where others use the machine too. `--against FOLDER` takes turns with the source of another
state of this project (a folder with `drumbeat` in it). It compares with nobody else: `python -m bench` does.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from bench import machine
from bench.job_search import fresh_store
from bench.processes import Worker, start_process, tail
from bench.sink_program import BOOK, BROKER, SINK, TOPIC, URL, Batch, program, read_book

CHUNK = 5_000
SPARE = 2.0
"""Safety factor for the time to enqueue all jobs: the due time must come after the last of them is stored."""
SETTLE_S = 3.0
SEND_TIMEOUT = 90.0
RATE_GOAL, FIRST_GOAL_MS, LAST_GOAL_S = 20_000, 100.0, 1.0

Figures = dict[str, float]


@contextmanager
def broker(sink: str) -> Iterator[str]:
    """Where messages go: a server of its own without a disk, or librdkafka's mock cluster in this process."""
    from tests.servers.kafka import KafkaCluster
    from tests.servers.redis import RedisServer

    if sink == "kafka":
        cluster = KafkaCluster()  # it lives as long as this
        yield cluster.servers
    else:
        with RedisServer() as server:
            yield server.url


@contextmanager
def store(engine: str) -> Iterator[Callable[[], str]]:
    """Gives URLs of empty stores. PostgreSQL with fsync, as in production."""
    if engine != "postgres":
        with ExitStack() as stack:
            yield lambda: stack.enter_context(fresh_store(engine))
        return
    from tests.servers.postgres import PostgresServer

    with PostgresServer(18) as server:
        numbers = iter(range(1_000))

        def make() -> str:
            url = asyncio.run(server.create_database(f"dispatch_{next(numbers)}"))
            subprocess.run(
                [sys.executable, "-m", "drumbeat", "migrate"],
                env=os.environ | {URL: url},
                check=True,
                stdout=subprocess.DEVNULL,
            )
            return url

        yield make


class Dispatch:
    """One store, one topic, and the worker process that empties the one into the other."""

    def __init__(self, environment: dict[str, str], source: str | None) -> None:
        self._environment = environment
        self._book = Path(environment[BOOK])
        self._source = source
        self.app, self.task = program(environment)

    async def fill(self, count: int, instant: datetime | None = None) -> None:
        """Each with a key, as triggers have it."""
        for start in range(0, count, CHUNK):
            numbers = range(start, min(count, start + CHUNK))
            using: dict[str, Any] = {} if instant is None else {"at": instant}
            calls = [self.task.using(key=f"order:{number}", **using).bind({"order": number}) for number in numbers]
            await self.app.enqueue_many(calls)

    @contextmanager
    def worker(self) -> Iterator[None]:
        others = {} if self._source is None else {"PYTHONPATH": self._source}
        errors = self._book.with_suffix(".stderr")
        process = start_process(
            [sys.executable, "-m", "drumbeat", "run", "bench.apps.dispatch:app", "--log-level", "error"],
            errors,
            os.environ | self._environment | others,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        worker = Worker("worker", process, errors)
        try:
            yield
            worker.check()
        finally:
            worker.stop()

    async def wait_sent(self, count: int) -> list[Batch]:
        """The book, once it has this many entries."""
        deadline = time.monotonic() + SEND_TIMEOUT
        while True:
            book = read_book(self._book)
            if sum(batch.count for batch in book) >= count:
                return book
            if time.monotonic() > deadline:
                said = tail(self._book.with_suffix(".stderr"))
                raise click.ClickException(f"not sent in time; the worker said: {said}")
            await asyncio.sleep(0.05)

    async def wait_finished(self) -> int:
        """When the store has all jobs as finished."""
        while await self.app.jobs.list(state="running", limit=1):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return time.time_ns()


async def drain(dispatch: Dispatch, jobs: int, _: Figures) -> Figures:
    """All jobs are there before the process starts. From the first batch in the sink's hands until the store has all as
    finished."""
    async with dispatch.app:
        filling = time.monotonic()
        await dispatch.fill(jobs)
        filled = time.monotonic()
        with dispatch.worker():
            book = await dispatch.wait_sent(jobs)
            finished = await dispatch.wait_finished()
    began = min(batch.began_ns for batch in book)
    return {"rate": jobs / (finished - began) * 1e9, "enqueue_s": filled - filling, **cpu(book)}


async def burst(dispatch: Dispatch, jobs: int, before: Figures) -> Figures:
    """The process is up, has sent one job, and waits for the instant."""
    async with dispatch.app:
        with dispatch.worker():
            await dispatch.fill(1)
            await dispatch.wait_sent(1)
            instant_ns = time.time_ns() + int(1e6 * (SETTLE_S + SPARE * before["enqueue_s"])) * 1_000
            await dispatch.fill(jobs, datetime.fromtimestamp(instant_ns / 1e9, UTC))
            if instant_ns - time.time_ns() < 1e9:
                raise click.ClickException("this machine is too slow: the instant came before all was enqueued")
            book = (await dispatch.wait_sent(jobs + 1))[1:]
    delays = [batch.acknowledged_ns - instant_ns for batch in book]
    early = sum(batch.began_ns < instant_ns for batch in book)
    return {"first_ms": min(delays) / 1e6, "last_s": max(delays) / 1e9, "early": early, **cpu(book, "burst_")}


def cpu(book: list[Batch], prefix: str = "") -> Figures:
    """Microseconds of the process for each job, from the end of its first batch to that of its last; and jobs in a batch."""
    ordered = sorted(book, key=lambda batch: batch.cpu_ns)
    count = sum(batch.count for batch in ordered[1:])
    used = ordered[-1].cpu_ns - ordered[0].cpu_ns
    return {f"{prefix}cpu_us": used / 1e3 / max(1, count), f"{prefix}batch": (count + ordered[0].count) / len(ordered)}


def measure_round(jobs: int, environment: dict[str, str], make: Callable[[], str], source: str | None) -> Figures:
    """One round. Each measure has a store and a topic of its own."""
    figures: Figures = {}
    for measure in (drain, burst):
        with tempfile.TemporaryDirectory(prefix="drumbeat-dispatch-") as folder:
            own = {URL: make(), BOOK: str(Path(folder) / "book"), TOPIC: f"reminders-{time.time_ns()}"}
            figures |= asyncio.run(measure(Dispatch(environment | own, source), jobs, figures))
    return figures


def show(name: str, rounds: list[Figures], jobs: int) -> None:
    middle = {key: statistics.median(figures[key] for figures in rounds) for key in rounds[0]}
    allowed = jobs / middle["rate"] + LAST_GOAL_S
    click.echo(f"{name}, medians of {len(rounds)}:")
    click.echo(
        f"  {middle['rate']:,.0f} jobs/s{'' if middle['rate'] >= RATE_GOAL else ' !'}, "
        f"{middle['cpu_us']:.1f} µs of CPU for a job, {middle['batch']:.0f} in a batch"
    )
    click.echo(
        f"  first {middle['first_ms']:.0f} ms after the instant{'' if middle['first_ms'] < FIRST_GOAL_MS else ' !'}, "
        f"last {middle['last_s']:.2f} s of {allowed:.2f} s{'' if middle['last_s'] <= allowed else ' !'}, "
        f"{middle['burst_cpu_us']:.1f} µs of CPU for a job, batches that were early: {middle['early']:.0f}"
    )


@click.command()
@click.option("--engine", type=click.Choice(["sqlite", "postgres", "redis"]), default="postgres", show_default=True)
@click.option("--sink", type=click.Choice(["redis", "kafka"]), default="redis", show_default=True)
@click.option("--jobs", default=100_000, show_default=True, help="How many, in each measure.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--against", type=click.Path(exists=True, file_okay=False, resolve_path=True), help="Another source.")
def main(engine: str, sink: str, jobs: int, rounds: int, against: str | None) -> None:
    """How fast jobs are sent to a broker, and how late."""
    sides: dict[str, str | None] = {"this source": None} | ({} if against is None else {"the other source": against})
    seen: dict[str, list[Figures]] = {name: [] for name in sides}
    busy = ", busy: the figures show little" if machine.is_busy() else ""
    click.echo(f"{engine} to {sink}, {jobs:,} jobs, load {machine.load():.1f}{busy}")
    with broker(sink) as address, store(engine) as make:
        for _ in range(rounds):
            for name, source in sides.items():
                figures = measure_round(jobs, {SINK: sink, BROKER: address}, make, source)
                seen[name].append(figures)
                click.echo(f"  {name}: " + ", ".join(f"{key} {value:,.1f}" for key, value in figures.items()))
    for name, each in seen.items():
        show(name, each, jobs)


if __name__ == "__main__":
    main()
