"""Tasks whose handlers are surrounded, for child processes."""

import threading
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar

from drumbeat import Drumbeat, current_job

app = Drumbeat()
tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
left: list[str] = []


@app.around
def scope() -> Iterator[None]:
    tenant.set(f"{current_job().task} in {threading.current_thread().name}")
    yield
    left.append(current_job().task)


@app.around(handlers="async")
async def session() -> AsyncIterator[None]:
    tenant.set(f"session of {tenant.get()}")
    yield


@app.task(pool="process")
def in_process() -> list[str]:
    return [tenant.get(), threading.current_thread().name, *left]


@app.task
async def on_loop() -> list[str]:
    return [tenant.get(), threading.current_thread().name, *left]


@app.task
def in_thread() -> list[str]:
    return [tenant.get(), threading.current_thread().name, *left]
