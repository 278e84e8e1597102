"""A program of Celery's canvas, ported: extract, transform, load, one after another, and what failed is run again.

    python canvas_import.py

With Celery, a chain that has failed is started anew, from its first task, by whoever keeps its arguments:

    chain(extract.s("2026-11-18"), transform.s(), load.s()).apply_async(link_error=tell.s())

Here the failed call becomes a dead letter, and those behind it are cancelled. Once the cause is mended, `replay` runs just the
failed one, and the others wait for it again; what had succeeded is not repeated.
"""

import asyncio

from drumbeat import Drumbeat, SkipRetry, chain
from drumbeat.errors import JobCancelled

app = Drumbeat(name="import")
database = {"is up": False}


@app.task
async def extract(day: str) -> list[int]:
    print("extracting", day)
    return [1, 2, 3]


@app.task
async def transform(rows: list[int]) -> list[int]:
    if not database["is up"]:
        raise SkipRetry("the database is down")
    return [10 * row for row in rows]


@app.task
async def load(rows: list[int]) -> str:
    return f"loaded {rows}"


async def story() -> None:
    async with app, asyncio.TaskGroup() as tasks:
        worker = tasks.create_task(app.serve(), name="worker")
        workflow = await app.workflow("import", chain(extract.bind("2026-11-18"), transform, load)).enqueue()
        try:
            await workflow.result(timeout=30)
        except JobCancelled as error:
            print(f"load was cancelled: {error.message}".replace(str(workflow.jobs[1].id), "..."))
        database["is up"] = True
        await workflow.replay()
        while (await workflow.get()).is_live:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        print(await workflow.result(timeout=30))
        worker.cancel()


if __name__ == "__main__":
    asyncio.run(story())
