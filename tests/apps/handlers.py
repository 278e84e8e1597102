"""Tasks that a child process runs: well behaved ones, and each way of dying."""

import asyncio
import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from contextvars import ContextVar
from pathlib import Path

from drumbeat.app import Drumbeat
from drumbeat.context import current_job
from drumbeat.retry import SkipRetry, Snooze
from drumbeat.tasks import Call

app = Drumbeat()
opened: list[str] = []
shared: dict[str, object] = {}
broken = asyncio.Event()


async def watch() -> None:
    await broken.wait()
    raise RuntimeError("the connection is lost")


@app.lifespan
async def resources():  # type: ignore[no-untyped-def]
    async with asyncio.TaskGroup() as group:  # must be entered and left by one task
        watcher = group.create_task(watch())
        opened.append("open")
        yield
        opened.remove("open")
        watcher.cancel()
    if note := os.environ.get("TEST_GOODBYE"):
        Path(note).write_text("closed")


@app.task(pool="process")
def add(one: int, two: int) -> int:
    return one + two


@app.task(pool="process")
def facts() -> dict[str, object]:
    job = current_job()
    try:
        asyncio.get_running_loop()
        loop = True
    except RuntimeError:
        loop = False
    return {
        "pid": os.getpid(),
        "id": job.id,
        "attempt": job.attempt,
        "main": threading.current_thread() is threading.main_thread(),
        "loop": loop,
        "opened": list(opened),
        "url": app.settings.url,
    }


@app.task
async def on_loop() -> dict[str, object]:
    await asyncio.sleep(0)
    return {"pid": os.getpid(), "id": current_job().id, "opened": list(opened)}


@app.task
def in_thread() -> dict[str, object]:
    return {"id": current_job().id, "main": threading.current_thread() is threading.main_thread()}


@app.task(batch=10)
async def in_bulk(calls: list[Call[int]]) -> list[int]:
    return [call.value * 2 for call in calls]


@app.task(pool="process")
def fail(text: str) -> None:
    raise ValueError(text)


class Unpayable(Exception):
    """The worker may not know this class: the child judges by it."""


@app.task(pool="process", no_retry_on=Unpayable)
def refuse(text: str) -> None:
    raise Unpayable(text)


@app.task(pool="process")
def leave(code: int) -> None:
    sys.exit(code)


@app.task
async def leave_loop(code: int) -> None:
    sys.exit(code)


@app.task(pool="process")
def snooze() -> None:
    raise Snooze(60)


@app.task(pool="process")
def skip() -> None:
    raise SkipRetry("no use")


@app.task(pool="process")
def too_much() -> str:
    return "x" * 300_000


@app.task(pool="process")
def die(how: str) -> None:
    match how:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            ctypes.string_at(0)
        case "exit":
            os._exit(0)


@app.task
async def die_on_loop() -> None:
    os._exit(7)


@app.task(pool="process")
def hang(path: str) -> None:
    """Say who runs, and go on for ever, deaf to everything."""
    Path(path).write_text(str(os.getpid()))
    while True:
        time.sleep(0.1)


@app.task(pool="process")
def hang_in_c(path: str) -> None:
    """The same in a C function that keeps the interpreter's lock, so that no other thread of this process can do anything."""
    Path(path).write_text(str(os.getpid()))
    ctypes.PyDLL(None).sleep(600)


@app.task(pool="process")
def hang_with_company(path: str) -> None:
    """The same with a program that the handler has started."""
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    draft = Path(f"{path}.new")
    draft.write_text(f"{os.getpid()} {other.pid}")
    draft.rename(path)
    other.wait()


@app.task(pool="process")
def die_with_company(path: str) -> None:
    """Dies while a process that it forked, and that has left its group, holds its socket."""
    if os.fork() == 0:
        os.setsid()
        Path(path).write_text(str(os.getpid()))
        time.sleep(60)
        os._exit(0)
    while not Path(path).exists():
        time.sleep(0.01)
    os._exit(9)


@app.task(pool="process")
def listen(path: str) -> str:
    Path(path).write_text(str(os.getpid()))
    current_job().aborted.wait(30)
    return str(current_job().aborted.reason)


@app.task(pool="process")
def obey(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    while True:
        current_job().check()
        time.sleep(0.01)


@app.task(pool="process")
def count(to: int) -> None:
    for number in range(to + 1):
        current_job().progress({"at": number})


@app.task(pool="process")
def tell() -> str:
    current_job().progress("half")
    current_job().aborted.wait(30)
    return str(current_job().aborted.reason)


@app.task(pool="process")
def bad_progress() -> None:
    current_job().progress(float("nan"))


@app.task(pool="process")
def signalled() -> str:
    """What the terminal and a service manager may send; and a program of the handler's own must still end by it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(os.getpid(), number)
    other = subprocess.Popen([sys.executable, "-c", "print('up', flush=True); import time; time.sleep(600)"], stdout=-1)
    assert other.stdout is not None
    other.stdout.readline()
    other.terminate()
    return f"alive, {other.wait(10)}"


colour: ContextVar[str] = ContextVar("colour", default="none")


@app.task(pool="process")
def stain() -> str:
    before = colour.get()
    colour.set("red")
    return before


@app.task(pool="process")
def enqueue_from_process(number: int) -> str:
    return add.enqueue_sync(number, number).id


@app.task
async def enqueue_from_loop(number: int) -> str:
    return (await add.enqueue(number, number)).id


@app.task(pool="process")
def with_its_own_loop() -> int:
    async def answer() -> int:
        await asyncio.sleep(0)
        return 42

    return asyncio.run(answer())


@app.task
async def tell_loop() -> None:
    shared["loop"] = asyncio.get_running_loop()


@app.task
def ask_the_loop() -> int:
    """A `def` handler in a thread may talk to the loop beside it."""

    async def answer() -> int:
        return 42

    return asyncio.run_coroutine_threadsafe(answer(), shared["loop"]).result(10)  # type: ignore[arg-type]


@app.task
async def break_lifespan() -> None:
    """What the program had opened breaks, some time after this job."""
    broken.set()


@app.task(pool="process")
def log_something() -> None:
    logging.getLogger("shop").warning("a handler speaks", extra={"number": 7})
