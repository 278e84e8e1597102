"""A program of Celery's canvas, ported: figures of all regions side by side, and one report, also when a region has failed.

    python canvas_report.py

With Celery a chord's body is not called if one of its header fails; the way out is a header that never fails, and returns its
errors as values:

    chord([figures.s(region) for region in REGIONS], report.s()).apply_async(link_error=alert.s())

Here the finaliser says itself that it runs whatever its parents did, and gets the outcome of each.
"""

import asyncio

from drumbeat import Drumbeat, JobOutcome, Results, SkipRetry, chord, group

REGIONS = ("north", "south", "east", "west")

app = Drumbeat(name="report")


@app.task
async def figures(region: str) -> int:
    if region == "east":
        raise SkipRetry("the office in the east is closed")
    return 10 * len(region)


@app.task
async def report(outcomes: Results[JobOutcome[int]]) -> str:
    total, failed = 0, 0
    async for outcome in outcomes:
        if outcome.error is None:
            total += outcome.value
        else:
            failed += 1
            print("failed:", outcome.error.message)
    return f"{total} in all, of {len(REGIONS) - failed} regions"


async def story() -> None:
    async with app, asyncio.TaskGroup() as tasks:
        worker = tasks.create_task(app.serve(), name="worker")
        calls = group(figures.bind(region) for region in REGIONS)
        workflow = await app.workflow("report", chord(calls, report.using(if_parent_fails="run"))).enqueue()
        print(await workflow.result(timeout=30))
        worker.cancel()


if __name__ == "__main__":
    asyncio.run(story())
