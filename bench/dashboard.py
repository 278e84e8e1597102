"""`python -m bench.dashboard --engine redis`: how long people wait for the dashboard, and what it costs.

Three figures of `drumbeat dashboard` as a process of its own: how long lists and searches take at the API, and pages in a
browser (without chromium: their answers), beside a million jobs; the CPU time that five idle viewers cost; and how much
slower a worker empties a queue while five people watch it, in turns with and without. It compares with nobody.
"""

import asyncio
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import click
import httpx

from bench import machine
from bench.contender import Contender
from bench.engines import ENGINES
from bench.job_search import fill, fresh_store, time_query
from bench.measures import drain_jobs, idle_percent, measure_drain
from bench.processes import Worker, measure_setup, start_process
from bench.sites import Site
from drumbeat.store.urls import open_store

URL = "DRUMBEAT_URL"
VIEWERS = 5
SETTLE_S = 3.0
API_GOAL_MS, PAGE_GOAL_MS, IDLE_GOAL, SLOWER_GOAL = 50.0, 1_000.0, 1.0, 5.0
LISTS = (
    "jobs",
    "jobs?state=pending",
    "jobs?state=running",
    "jobs?state=succeeded",
    "jobs?state=dead",
    "jobs?task=task7",
    "jobs?task=rare",
    "jobs?task=nobody",
    "jobs?queue=mail",
    "jobs?key=customer:17",
    "jobs?error=host+17",
    "dead",
    "dead/groups",
    "queues",
    "tasks",
    "schedules",
    "instances",
    "locks",
    "audit",
    "status",
)
PAGES = ("/", "/jobs", "/jobs?state=dead", "/jobs?task=task7", "/queues", "/tasks", "/dead", "/schedules", "/instances")
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]


@contextmanager
def dashboard(url: str, folder: Path) -> Iterator[tuple[str, Worker]]:
    """Its address, and its process."""
    errors = folder / "dashboard.stderr"
    process = start_process(
        [sys.executable, "-m", "drumbeat", "dashboard", "--port", "0"],
        errors,
        os.environ | {URL: url, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    worker = Worker("dashboard", process, errors)
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        found = re.search(r"http://\S+", said)
        if found is None:
            raise click.ClickException(f"the dashboard did not start: {said or errors.read_text()}")
        yield found[0].rstrip("/"), worker
        worker.check()
    finally:
        worker.stop()


async def ask(client: httpx.AsyncClient, path: str) -> None:
    (await client.get(path)).raise_for_status()


async def lists(address: str, runs: int) -> list[str]:
    lines = []
    async with httpx.AsyncClient(base_url=address, timeout=60) as client:
        for path in LISTS:
            p50, p95, longest = await time_query(lambda path=path: ask(client, f"/api/v1/{path}"), runs)  # type: ignore[misc]
            lines.append(f"{path:32}{p50:9.1f}{p95:9.1f}{longest:9.1f}{_mark(p95 < API_GOAL_MS)}")
    return lines


async def pages(address: str, runs: int) -> list[str]:
    """Until a browser has loaded all of a page; without one, until the answer is there."""
    async with AsyncExitStack() as stack:
        chromium = shutil.which("chromium")
        if chromium is None:
            client = await stack.enter_async_context(httpx.AsyncClient(base_url=address, timeout=60))
            names = {path: lambda path=path: ask(client, path) for path in PAGES}  # type: ignore[misc]
        else:
            from playwright.async_api import async_playwright

            playwright = await stack.enter_async_context(async_playwright())
            browser = await playwright.chromium.launch(executable_path=chromium, args=FLAGS)
            stack.push_async_callback(browser.close)
            page = await browser.new_page()
            names = {path: lambda path=path: page.goto(f"{address}{path}") for path in PAGES}  # type: ignore[misc]
        how = "the answer alone" if chromium is None else "in chromium"
        lines = [f"{f'page, {how}':32}{'p50':>9}{'p95':>9}{'longest':>9}  ms"]
        for path, work in names.items():
            p50, p95, longest = await time_query(work, runs)
            lines.append(f"{path:32}{p50:9.1f}{p95:9.1f}{longest:9.1f}{_mark(p95 < PAGE_GOAL_MS)}")
    return lines


@asynccontextmanager
async def viewers(address: str) -> AsyncIterator[None]:
    """People who look at the overview and do nothing."""

    async def view() -> None:
        async with (
            httpx.AsyncClient(timeout=None) as client,
            client.stream("GET", f"{address}/api/v1/events") as answer,
        ):
            async for _ in answer.aiter_lines():
                watching.set()

    watching = asyncio.Event()
    tasks = [asyncio.create_task(view()) for _ in range(VIEWERS)]
    try:
        await asyncio.wait_for(watching.wait(), 10)
        yield
        for task in tasks:
            if task.done():
                task.result()
                raise click.ClickException("a viewer was sent away")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def idle(address: str, process: Worker, seconds: float) -> str:
    async with viewers(address):
        await asyncio.sleep(SETTLE_S)
        share = await asyncio.to_thread(idle_percent, process, seconds)
    return f"{VIEWERS} idle viewers: {share:.2f} % of a core{_mark(share < IDLE_GOAL)}"


async def million(url: str, jobs: int, runs: int, seconds: float, folder: Path) -> None:
    async with await open_store(url) as store:
        await fill(store, jobs)
    with dashboard(url, folder) as (address, process):
        click.echo(f"  {f'API, {jobs:,} jobs':32}{'p50':>9}{'p95':>9}{'longest':>9}  ms")
        for line in (*await lists(address, runs), *await pages(address, max(5, runs // 4))):
            click.echo(f"  {line}")
        click.echo(f"  {await idle(address, process, seconds)}")


def drain(contender: Contender, site: Site, *, watched: bool) -> float:
    size = ENGINES[contender.engine].usual
    jobs = drain_jobs(contender, size)
    with measure_setup(contender, jobs, site) as place:
        place.produce("fill", count=jobs)
        if not watched:
            return measure_drain(place, jobs, size).rate
        with dashboard(place.environment[URL], place.folder) as (address, _), watchers(address):
            return measure_drain(place, jobs, size).rate


@contextmanager
def watchers(address: str) -> Iterator[None]:
    """Viewers on a loop of their own, in a thread."""

    async def watch() -> None:
        async with viewers(address):
            begun.set()
            await asyncio.to_thread(over.wait)

    begun, over = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(asyncio.run, watch())
        try:
            while not begun.wait(0.1):
                if done.done():
                    done.result()
            yield
        finally:
            over.set()
        done.result()


def slower(engine: str, rounds: int) -> str:
    """Taken in turns: what else happens on the machine meets both."""
    contender = ENGINES[engine].contenders["drumbeat"]
    contender.load()
    rates: dict[bool, list[float]] = {False: [], True: []}
    with ENGINES[engine].site(None) as site:
        for number in range(rounds):
            for watched in (False, True) if number % 2 == 0 else (True, False):
                rates[watched].append(drain(contender, site, watched=watched))
    alone, beside = statistics.median(rates[False]), statistics.median(rates[True])
    share = 100 * (1 - beside / alone)
    each = ", ".join(f"{one:,.0f} / {other:,.0f}" for one, other in zip(*rates.values(), strict=True))
    return (
        f"drained alone {alone:,.0f}, watched by {VIEWERS} {beside:,.0f} jobs/s, medians of {rounds}: {share:.1f} % slower"
        f"{_mark(share < SLOWER_GOAL)} (each: {each})"
    )


def _mark(reached: bool) -> str:
    return "" if reached else "  !"


@click.command()
@click.option("--engine", type=click.Choice(["sqlite", "postgres", "redis"]), default="sqlite", show_default=True)
@click.option("--jobs", default=1_000_000, show_default=True, help="How many lie in the store; 0: leave that out.")
@click.option("--runs", default=40, show_default=True, help="How often each list is asked for.")
@click.option("--seconds", default=30.0, show_default=True, help="How long the idle viewers look.")
@click.option("--rounds", default=7, show_default=True, help="Of the queue that is emptied; 0: leave that out.")
def main(engine: str, jobs: int, runs: int, seconds: float, rounds: int) -> None:
    """How long people wait for the dashboard, and what it costs."""
    busy = ", busy: the figures show little" if machine.is_busy() else ""
    click.echo(f"{engine}, load {machine.load():.1f}{busy}")
    with tempfile.TemporaryDirectory(prefix="drumbeat-watching-") as folder:
        if jobs:
            with fresh_store(engine) as url:
                asyncio.run(million(url, jobs, runs, seconds, Path(folder)))
    if rounds:
        click.echo(f"  {slower(engine, rounds)}")


if __name__ == "__main__":
    main()
