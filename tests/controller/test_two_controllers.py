"""Three controllers that all believe they lead, on real engines: one job for each fire time of each schedule."""

import asyncio
from collections import Counter
from itertools import pairwise

from drumbeat.clock import SYSTEM
from drumbeat.core.schedule import Overlap, RuleKind
from drumbeat.store.protocol import Store
from tests.conftest import OpenAgain
from tests.controller.factories import SECOND, list_jobs, make_firer, make_schedule, put_schedule

SCHEDULES, MOMENTS = 30, 20


async def test_three_that_all_believe_they_lead_make_one_job_for_each_fire_time(
    store: Store, open_again: OpenAgain
) -> None:
    now = await store.inspect.now()
    first = now - MOMENTS * SECOND
    names = [f"s{number}" for number in range(SCHEDULES)]
    for name in names:
        await put_schedule(store, make_schedule(name, str(SECOND), kind=RuleKind.GRID, start=first), first)
    rivals = [make_firer(each, SYSTEM) for each in (store, await open_again(), await open_again())]
    for _ in range(3):
        async with asyncio.TaskGroup() as group:
            for rival in rivals:
                group.create_task(rival.fire_due())
    counted = Counter((job.schedule, job.due_at) for job in await list_jobs(store))
    assert set(counted.values()) == {1}
    moments = {job.due_at for job in await list_jobs(store) if job.schedule == "s0"}
    assert len(moments) >= MOMENTS
    for name in names:
        mine = sorted(due_at for schedule, due_at in counted if schedule == name)
        assert len({later - sooner for sooner, later in pairwise(mine)}) == 1, "none is missing"


async def test_of_rivals_that_meet_a_live_run_none_adds_a_second(store: Store, open_again: OpenAgain) -> None:
    now = await store.inspect.now()
    skipping = make_schedule("skipping", str(SECOND), kind=RuleKind.GRID, start=now - 5 * SECOND, overlap=Overlap.SKIP)
    await put_schedule(store, skipping, now - 5 * SECOND)
    rivals = [make_firer(each, SYSTEM) for each in (store, await open_again(), await open_again())]
    async with asyncio.TaskGroup() as group:
        for rival in rivals:
            group.create_task(rival.fire_due())
    assert len(await list_jobs(store)) == 1
