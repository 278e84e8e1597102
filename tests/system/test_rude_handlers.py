"""Rude jobs of all kinds among many good ones, in two processes under a supervisor.

Every good one succeeds, every rude one ends as its kind must, and no worker process ends but for those that a handler kills.
How fast the good ones are beside them, compared with how fast they are alone, is printed. `DRUMBEAT_FULL=1` does it with 1,000
rude ones among 100,000, on each engine: no handler knows which one it is, and tests/worker plays them all on SQLite.
"""

import asyncio
import os
import re
from itertools import cycle, islice
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from drumbeat.core.job import Job, JobState
from tests.apps import rude
from tests.waiting import until
from tests.worker.test_rude_handlers import POOLS, Stage

IS_FULL = bool(os.environ.get("DRUMBEAT_FULL"))
RUDE, GOOD, KILLERS = (1_000, 100_000, 5) if IS_FULL else (60, 1_500, 2)
DEADLINE = 600 if IS_FULL else 90
# One that swallows its time-out keeps what it has for ever, and a worker with too many of them asks to be replaced.
ON_LOOP = [kind for kind in rude.ON_LOOP if kind != "swallows its time-out"]


def _mixture() -> list[tuple[Any, str]]:
    """Of every kind in every pool in turn, and a few that kill their worker."""
    plain = [*rude.RAISES, *rude.RETURNS, *rude.DISTURBS]
    everything = [(task, kind) for kind in plain for task in POOLS.values()]
    everything += [(rude.rude_loop, kind) for kind in ON_LOOP for _ in range(2)]
    step = len(everything) // 7 * 2 + 1  # so that a short run has of each sort
    mixed = [everything[number * step % len(everything)] for number in range(len(everything))]
    killers = [(rude.rude_on_loop, kind) for kind in rude.KILLS]
    chosen = list(islice(cycle(mixed), RUDE - KILLERS))
    for number, killer in enumerate(islice(cycle(killers), KILLERS)):
        chosen.insert(number * RUDE // KILLERS, killer)
    return chosen


def _ended_rightly(kind: str, job: Job) -> bool:
    if kind in rude.KILLS:
        return job.state is JobState.DEAD and job.crashes == 3
    if kind in rude.RAISES:
        return job.state is JobState.DEAD
    if kind in rude.DISTURBS:
        return job.state is JobState.SUCCEEDED
    wanted = rude.ON_LOOP[kind][1] if kind in rude.ON_LOOP else "any"
    return job.state in (JobState.SUCCEEDED, JobState.DEAD) and wanted in ("any", job.state.value)


async def _drained(app: Any) -> bool:
    counts = await app.jobs.counts()
    return not (counts.ready or counts.scheduled or counts.retrying or counts.waiting or counts.running)


async def _play(stage: Stage) -> tuple[list[tuple[str, Job]], int, float, float]:
    """The rude jobs, how many good ones did not succeed, and how many good ones there were in a second: alone, and beside."""
    async with rude.app as app:
        await (await rude.good.enqueue(-1)).result(timeout=60)
        began = monotonic()
        await app.enqueue_many([rude.good.bind(number) for number in range(GOOD // 2)])
        await until(lambda: _drained(app), deadline=DEADLINE, what="the good jobs alone")
        alone = GOOD // 2 / (monotonic() - began)
        mixture, handles = _mixture(), []
        began = monotonic()
        share = GOOD // len(mixture) + 1
        last: Any = None
        for first in range(0, len(mixture), 20):
            part = mixture[first : first + 20]
            goods = [rude.good.bind(number) for number in range(share * len(part))]
            added = await app.enqueue_many([task.bind(kind) for task, kind in part] + goods)
            handles += list(zip(part, added[: len(part)], strict=True))
            last = added[-1]
        await last.result(timeout=DEADLINE)
        await until(lambda: _goods_ended(app), deadline=DEADLINE, what="the good jobs beside")
        beside = share * len(mixture) / (monotonic() - began)
        await until(lambda: _drained(app), deadline=DEADLINE, what="the rude jobs")
        counts = await app.jobs.counts(task="good")
        jobs = [(kind, await app.jobs.show(handle.id)) for (_, kind), handle in handles]
        return jobs, counts.dead + counts.cancelled + counts.running + counts.ready, alone, beside


async def _goods_ended(app: Any) -> bool:
    counts = await app.jobs.counts(task="good")
    return not (counts.ready or counts.scheduled or counts.retrying or counts.waiting or counts.running)


@pytest.mark.parametrize("engine", ["sqlite", "postgres", "valkey"] if IS_FULL else ["postgres"])
def test_rude_jobs_among_good_ones(tmp_path: Path, engine: str) -> None:
    with Stage(tmp_path / "stage", engine) as stage:
        stage.start("--processes", "2", "--concurrency", "10", "--drain", "5")
        try:
            jobs, bad, alone, beside = asyncio.run(_play(stage))
        except AssertionError as error:
            raise AssertionError(f"{error}\n{stage.log.read_text()[-5000:]}") from error
        code, _ = stage.stop()
        log = stage.log.read_text()
    assert bad == 0
    assert [(kind, job.state, job.error) for kind, job in jobs if not _ended_rightly(kind, job)] == []
    assert len(re.findall("worker process died", log)) <= KILLERS, log[-5000:]
    assert code == 0
    print(f"\n{engine}: {alone:,.0f} good jobs/s alone, {beside:,.0f} beside {RUDE} rude ones: {beside / alone:.2f}")
