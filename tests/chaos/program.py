"""The program that chaos runs: a task of each kind, a schedule on a grid, a room. Handlers write their own journal."""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from drumbeat import Drumbeat, LeaderChanged, Limit, Snooze, current_job
from drumbeat.clock import SYSTEM
from drumbeat.errors import LockLost
from drumbeat.retry import Backoff
from drumbeat.sinks import WebhookSink
from tests.chaos import journal, stalls
from tests.chaos.recorded_calls import record_calls
from tests.chaos.sagas import perform_parts
from tests.chaos.shared_clock import SharedClock
from tests.proof.history import TaskLimits

FENCE = "CHAOS_FENCE"
CLOCK = SharedClock.of_environment()
QUICK = Backoff(base=0.2, cap=1)
TIMEOUTS = {"timed": 0.5, "timed_in_process": 0.5}
POISONOUS = ("poison",)
SCHEDULE = "tick"
PERIOD = 1
INTERRUPTIBLE = ("slow",)
SLOTS = int(os.environ.get("DRUMBEAT_CONCURRENCY", "10"))
"""Of this process."""
LIMITS = {
    "limited": TaskLimits(per_group=2, whole=3),
    "rated": TaskLimits(rate=5, per=1.0),
    "ordered": TaskLimits(per_group=1, is_ordered=True),
}
FORWARDED = ("notice",)
RECEIVER = "CHAOS_RECEIVER"

app = Drumbeat(name="chaos", clock=CLOCK)
if journal.NODE in os.environ:  # the harness imports this module, too
    stalls.watch_process()
    record_calls(app)


class Run:
    """One run of a handler, as the journal knows it."""

    def __init__(self) -> None:
        self.number = int.from_bytes(os.urandom(7))
        self.result: str | None = None


@contextmanager
def recorded() -> Iterator[Run]:
    job, run = current_job(), Run()
    journal.write(
        "started",
        run=run.number,
        job=str(job.id),
        token=job.token,
        task=job.task,
        slots=SLOTS,
        late=CLOCK.now_us() / 1e6 - job.scheduled_for.timestamp(),
        due=job.scheduled_for.timestamp(),
    )
    try:
        yield run
        run.result = f"{job.id}-{run.number}"
    finally:
        journal.write("ended", run=run.number, result=None if run.result is None else f'"{run.result}"')


@app.task(retries=50, backoff=QUICK)
async def quick(number: int) -> str:
    with recorded() as run:
        pass
    return str(run.result)


@app.task(retries=50, backoff=QUICK)
def threaded(number: int) -> str:
    with recorded() as run:
        threading.Event().wait(0.002)
    return str(run.result)


@app.task(retries=50, backoff=QUICK, pool="process")
def apart(number: int) -> str:
    with recorded() as run:
        pass
    return str(run.result)


@app.task(retries=50, backoff=QUICK)
async def flaky(number: int) -> str:
    with recorded() as run:
        if current_job().attempt <= number % 3:
            raise RuntimeError("fails on purpose")
    return str(run.result)


@app.task(retries=50, backoff=QUICK, priority=1)
async def slow(number: int) -> str:
    with recorded() as run:
        await SYSTEM.sleep(number % 30 / 10)
    return str(run.result)


@app.task(retries=50, backoff=QUICK, priority=1)
def slow_in_thread(number: int) -> str:
    with recorded() as run:
        threading.Event().wait(number % 20 / 10)
    return str(run.result)


@app.task(retries=50, backoff=QUICK, priority=1, pool="process")
def slow_apart(number: int) -> str:
    with recorded() as run:
        threading.Event().wait(number % 20 / 10)
    return str(run.result)


@app.task(retries=50, backoff=QUICK)
async def unique(number: int) -> str:
    with recorded() as run:
        await SYSTEM.sleep(0.2)
    return str(run.result)


@app.task(retries=50, backoff=QUICK)
async def snoozer(number: int) -> str:
    with recorded() as run:
        if number % 3 and time.monotonic_ns() % 3:
            raise Snooze("0.3s")
    return str(run.result)


@app.task(retries=1, backoff=QUICK)
async def doomed(number: int) -> str:
    """Dies until somebody replays it; then it has one chance in two."""
    with recorded() as run:
        if time.monotonic_ns() % 2 or current_job()._claimed.token == number:
            raise RuntimeError("doomed")
    return str(run.result)


@app.task(retries=50, backoff=QUICK)
async def node(number: int, seconds: float, failures: int) -> str:
    """A job of a graph."""
    with recorded() as run:
        await SYSTEM.sleep(seconds)
        if current_job().attempt <= failures:
            raise RuntimeError("fails on purpose")
    return str(run.result)


@app.task(retries=0)
async def mortal(number: int, seconds: float, failures: int) -> str:
    """The same, which dies in its first lives."""
    with recorded() as run:
        await SYSTEM.sleep(seconds)
        if current_job()._claimed.replays < failures:
            raise RuntimeError("dies in this life")
    return str(run.result)


@app.task(retries=50, backoff=QUICK)
async def saga(number: int) -> str:
    with recorded() as run:
        await perform_parts(current_job(), number, run.number)
    return str(run.result)


@app.task(
    retries=50, backoff=QUICK, limits=[Limit(concurrency=2, per_group=True), Limit(concurrency=LIMITS["limited"].whole)]
)
async def limited(number: int) -> str:
    with recorded() as run:
        await SYSTEM.sleep(number % 20 / 100)
    return str(run.result)


@app.task(retries=50, backoff=QUICK, limits=[Limit(rate=5, per="1s", per_group=True)])
def rated(number: int) -> str:
    with recorded() as run:
        pass
    return str(run.result)


@app.task(retries=50, backoff=QUICK, order=True)
async def ordered(number: int) -> str:
    with recorded() as run:
        if number % 7 == 0 and current_job().attempt == 1:
            raise RuntimeError("holds the line")
    return str(run.result)


@app.task(retries=0, timeout=TIMEOUTS["timed"])
async def timed(number: int) -> str:
    with recorded() as run:
        await SYSTEM.sleep(60)
    return str(run.result)


@app.task(retries=0, timeout=TIMEOUTS["timed_in_process"], pool="process")
def timed_in_process(number: int) -> str:
    with recorded() as run:
        threading.Event().wait(0.2 if number % 2 else 60)
    return str(run.result)


@app.task(retries=50, backoff=QUICK)
async def poison(number: int) -> str:
    with recorded() as run:
        os.kill(os.getpid(), signal.SIGKILL)
    return str(run.result)


@app.task(retries=50, backoff=QUICK)
async def locked(number: int) -> str:
    with recorded() as run:
        try:
            await hold_lock(f"resource-{number % 2}", number % 10 / 50)
        except LockLost:
            raise RuntimeError("the lock was lost") from None
    return str(run.result)


async def hold_lock(name: str, seconds: float) -> None:
    """Hold a lock, and write to the resource behind it twice, with the lock's token."""
    asked, hold = time.monotonic_ns(), int.from_bytes(os.urandom(7))
    async with app.lock(name) as lock:
        journal.write("entered", hold=hold, lock=name, token=lock.token, asked=asked / 1e9)
        try:
            write_resource(name, lock.token)
            await SYSTEM.sleep(seconds)
            write_resource(name, lock.token)
        finally:
            journal.write("left", hold=hold, lost=lock.lost.is_set())


def write_resource(name: str, token: int) -> None:
    """The resource is a server that no fault concerns: it checks the token, and writes down what it said."""
    host, _, port = os.environ[FENCE].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as link:
        link.sendall(f"{name} {token}\n".encode())
        link.recv(10)


@app.room
async def hear(message: int) -> None:
    journal.write("heard", message=message)


@app.every(PERIOD, grid=True, name=SCHEDULE, retries=50, queue="clockwork", priority=0, overlap="allow")
async def tick() -> str:
    with recorded() as run:
        pass
    return str(run.result)


@app.on_event(LeaderChanged)
def see_leader(event: LeaderChanged) -> None:
    journal.write("leader", term=event.term, leader=str(event.leader))


notice = app.forward(
    "notice",
    to=WebhookSink(
        url=os.environ.get(RECEIVER, "http://127.0.0.1:9/"),
        secret="a secret of more than sixteen bytes",
        allow_private=True,
        connections=4,
        batch=16,
    ),
    type=int,
    queue="notices",
    retries=50,
    backoff=QUICK,
)
