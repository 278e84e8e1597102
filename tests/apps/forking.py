"""Enqueue, fork while connections are open, and go on in both processes."""

import asyncio
import os
import sys
import warnings

from drumbeat import Drumbeat

# Newer Pythons warn of any fork with threads; that it works all the same is what is shown here.
warnings.simplefilter("ignore", DeprecationWarning)

app = Drumbeat("sqlite:///jobs.db")


@app.task
async def greet(name: str) -> None: ...


async def on_a_loop(name: str) -> None:
    async with app:
        await greet.enqueue(name)


greet.enqueue_sync("parent")
pid = os.fork()
if pid == 0:
    greet.enqueue_sync("child")
    asyncio.run(on_a_loop("child, on a loop"))
    greet.enqueue_sync("child again")
    print("child ok", flush=True)
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
greet.enqueue_sync("parent after the fork")
asyncio.run(on_a_loop("parent, on a loop"))
greet.enqueue_sync("parent again")
print("parent ok", len(app.sync.jobs.list()))
