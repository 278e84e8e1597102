"""Fork in the middle of a coroutine, with the loop's store open, as a program that forks workers from `async` code does."""

import asyncio
import os
import warnings

from drumbeat import Drumbeat

# Newer Pythons warn of any fork with threads; that it works all the same is what is shown here.
warnings.simplefilter("ignore", DeprecationWarning)

app = Drumbeat("sqlite:///jobs.db")


@app.task
async def greet(name: str) -> None: ...


async def on_a_loop(name: str) -> None:
    await greet.enqueue(name)


def in_child() -> None:
    greet.enqueue_sync("child")
    asyncio.run(on_a_loop("child, on a loop of its own"))
    print("child ok", flush=True)


async def in_parent() -> None:
    async with app:
        await greet.enqueue("parent")
        pid = os.fork()
        if pid == 0:
            try:
                in_child()
            finally:
                os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        await greet.enqueue("parent after the fork")
        print("parent ok", len(await app.jobs.list()))


asyncio.run(in_parent())
