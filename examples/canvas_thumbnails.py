"""A program of Celery's canvas, ported: download a picture, make three thumbnails side by side, publish them together.

    python canvas_thumbnails.py

With Celery, the resize tasks get the path by the chain, and publish the list of their results:

    chain(
        download.s("cat.png"),
        chord([resize.s(width) for width in (100, 200, 400)], publish.s()),
    ).apply_async()

Here each argument says whose result it is, and a type checker sees that the types fit.
"""

import asyncio

from drumbeat import Drumbeat, chord, group

app = Drumbeat(name="thumbnails")


@app.task(retries=5)
async def download(name: str) -> str:
    return f"/pictures/{name}"


@app.task
async def resize(path: str, width: int) -> str:
    return f"{path.removesuffix('.png')}-{width}.png"


@app.task
async def publish(paths: list[str]) -> int:
    print("published", *paths)
    return len(paths)


async def story() -> None:
    async with app, asyncio.TaskGroup() as tasks:
        worker = tasks.create_task(app.serve(), name="worker")
        flow = app.workflow("thumbnails of cat.png")
        picture = flow.add(download.bind("cat.png"))
        flow.add(chord(group(resize.bind(picture.result, width) for width in (100, 200, 400)), publish))
        workflow = await flow.enqueue()
        print(await workflow.result(timeout=30), "thumbnails")
        worker.cancel()


if __name__ == "__main__":
    asyncio.run(story())
