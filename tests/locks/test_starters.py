"""Named start-up tasks and periodic ones run on one instance at a time."""

import asyncio
from contextlib import AsyncExitStack

from drumbeat import Drumbeat
from tests.waiting import until
from tests.worker.worker_harness import run_worker


class Room:
    """How many are inside at the same moment, of each kind."""

    def __init__(self) -> None:
        self.inside: dict[str, int] = {"start": 0, "interval": 0}
        self.most: dict[str, int] = {"start": 0, "interval": 0}
        self.count: dict[str, int] = {"start": 0, "interval": 0}

    async def visit(self, kind: str, app: Drumbeat) -> None:
        self.inside[kind] += 1
        self.count[kind] += 1
        self.most[kind] = max(self.most[kind], self.inside[kind])
        for _ in range(10):  # long enough for others to come in, if they could
            await app.instances.list()
        self.inside[kind] -= 1


def program(url: str, room: Room) -> Drumbeat:
    app = Drumbeat(url, name="shop")

    @app.on_start(lock="warm-up")
    async def warm_up() -> None:
        await room.visit("start", app)

    @app.every(0.1)
    async def sweep() -> None:
        await room.visit("interval", app)

    return app


async def test_of_three_instances_one_at_a_time_starts_and_one_at_a_time_sweeps(app_url: str) -> None:
    room = Room()
    async with AsyncExitStack() as stack:
        for _ in range(3):
            app = await stack.enter_async_context(program(app_url, room))
            await stack.enter_async_context(run_worker(app))
        async with asyncio.timeout(60):
            await until(lambda: room.count["start"] == 3 and room.count["interval"] >= 5, deadline=60)
    assert room.most == {"start": 1, "interval": 1}
