"""`python -m bench.schedules --engine redis`: how late schedules fire, and what those cost that do not.

Three figures of one process that has both roles: how late fires are recorded when 20 schedules fire every second, how long
it takes until all jobs are there of 10,000 schedules that fire in the same second, and the CPU time of the process beside
100,000 schedules of which none is due. It compares with nobody.
"""

import asyncio
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
import msgspec

from bench import machine
from bench.apps.scheduled import app, tick
from bench.dispatch import store
from bench.processes import ROOT
from drumbeat.core.schedule import Fire, Schedule
from drumbeat.store.protocol import Store

URL = "DRUMBEAT_URL"
AT_ONCE = 20
SETTLE_S = 5.0
LATE_GOAL_MS, HERD_GOAL_S, IDLE_GOAL = 100.0, 5.0, 1.0
FAR = "0 3 1 1 *"
MINUTE_US = 60_000_000


async def fill(store: Store, like: Schedule, count: int, next_at: int | None) -> None:
    """Copies of a schedule, by the store's own operation, some at a time."""
    numbers = iter(range(count))

    async def some() -> None:
        for number in numbers:
            copy = msgspec.structs.replace(like.definition, name=f"{like.definition.name}.{number}")
            await store.schedules.put(copy, revision=None, cursor=like.cursor, next_at=next_at, by="bench")

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(some())


async def make_schedule(name: str, cron: str) -> Schedule:
    await app.schedules.create(tick, name=name, cron=cron, overlap="allow", catch_up="all")
    schedule = await (await app._internals.store()).schedules.get(name)
    assert schedule is not None
    return schedule


@contextmanager
def run_worker(url: str) -> Iterator[Callable[[], float]]:
    """A process with both roles; gives a function that tells how much CPU time it has used, in seconds."""
    process = subprocess.Popen(
        [sys.executable, "-m", "drumbeat", "run", "bench.apps.scheduled:app", "--log-level", "error"],
        env=os.environ | {URL: url},
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )

    def used() -> float:
        with open(f"/proc/{process.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    try:
        yield used
        if process.poll() is not None:
            raise click.ClickException(f"the process ended with {process.returncode}")
    finally:
        process.terminate()
        process.wait()


async def lateness(url: str, seconds: float) -> str:
    """20 schedules, each second."""
    async with app:
        every_second = await make_schedule("second", "* * * * * *")
        there = await app._internals.store()
        await fill(there, every_second, 19, every_second.next_at)
        with run_worker(url):
            await asyncio.sleep(SETTLE_S)
            since = await there.inspect.now()
            await asyncio.sleep(seconds)
            until = await there.inspect.now() - 2_000_000
        names = [schedule.definition.name for schedule in await there.schedules.list_page()]
        fires: list[Fire] = []
        for name in names:
            found = (await there.schedules.list_fires([name], limit=1_000))[name]
            fires += [fire for fire in found if since <= fire.at < until]
    late = sorted((fire.recorded_at - fire.at) / 1_000 for fire in fires)
    expected = 20 * round((until - since) / 1e6)
    p99 = late[math.ceil(0.99 * len(late)) - 1]
    return (
        f"late by p50 {late[len(late) // 2]:.1f}, p99 {p99:.1f}{_mark(p99 < LATE_GOAL_MS)}, at most {late[-1]:.1f} ms; "
        f"{len(late)} fires on record of about {expected}"
    )


async def herd(url: str, count: int) -> str:
    """Schedules that fire in the same second, and the process is up before."""
    async with app:
        there = await app._internals.store()
        like = await make_schedule("herd", FAR)
        began = time.monotonic()
        await fill(there, like, 200, like.next_at)
        took = (time.monotonic() - began) / 200 * count
        with run_worker(url):
            await asyncio.sleep(SETTLE_S)
            ready = await there.inspect.now() + int((1.5 * took + 5) * 1e6)
            instant = (ready // MINUTE_US + 1) * MINUTE_US
            await fill(there, msgspec.structs.replace(like, definition=_herd_definition(like)), count, instant)
            if await there.inspect.now() > instant:
                raise click.ClickException("this machine is too slow: the instant came before all schedules were there")
            deadline = time.monotonic() + took * 2 + 150
            while (there_are := await _read_fired(there, count)) is None:
                if time.monotonic() > deadline:
                    raise click.ClickException("not all have fired in time")
                await asyncio.sleep(0.25)
    first, last = (recorded_at - instant for recorded_at in there_are)
    return f"{count:,} in one second: first after {first / 1e6:.2f}, last {last / 1e6:.2f} s{_mark(last / 1e6 < HERD_GOAL_S)}"


def _herd_definition(like: Schedule) -> msgspec.Struct:
    return msgspec.structs.replace(like.definition, name="all", rule="* * * * *")


async def _read_fired(there: Store, count: int) -> tuple[int, int] | None:
    """When the first and the last job of the herd were on record, once all are."""
    last = (await there.schedules.list_fires([f"all.{count - 1}"], limit=1))[f"all.{count - 1}"]
    if not last:
        return None
    recorded = []
    for number in range(count):
        fires = (await there.schedules.list_fires([f"all.{number}"], limit=10))[f"all.{number}"]
        if not fires:
            return None
        recorded.append(fires[-1].recorded_at)
    return min(recorded), max(recorded)


async def idle(url: str, count: int, seconds: float) -> str:
    async with app:
        like = await make_schedule("idle", FAR)
        await fill(await app._internals.store(), like, count, like.next_at)
    with run_worker(url) as used:
        await asyncio.sleep(SETTLE_S)
        began, before = time.monotonic(), used()
        await asyncio.sleep(seconds)
        share = 100 * (used() - before) / (time.monotonic() - began)
    return f"idle beside {count:,}: {share:.2f} % of a core{_mark(share < IDLE_GOAL)}"


def _mark(reached: bool) -> str:
    return "" if reached else " !"


@click.command()
@click.option("--engine", type=click.Choice(["sqlite", "postgres", "redis"]), default="sqlite", show_default=True)
@click.option("--seconds", default=30.0, show_default=True, help="How long it is looked at, twice.")
@click.option("--herd", "herd_of", default=10_000, show_default=True, help="How many fire at once; 0: leave it out.")
@click.option("--idle", "idle_of", default=100_000, show_default=True, help="How many do not fire; 0: leave it out.")
def main(engine: str, seconds: float, herd_of: int, idle_of: int) -> None:
    """How late schedules fire, and what they cost when they do not."""
    busy = ", busy: the figures show little" if machine.is_busy() else ""
    click.echo(f"{engine}, load {machine.load():.1f}{busy}")
    with store(engine) as make:
        measures = [lambda url: lateness(url, seconds)]
        if herd_of:
            measures.append(lambda url: herd(url, herd_of))
        if idle_of:
            measures.append(lambda url: idle(url, idle_of, seconds))
        for measure in measures:
            url = make()
            app.configure({"url": url})
            click.echo(f"  {asyncio.run(measure(url))}")


if __name__ == "__main__":
    main()
